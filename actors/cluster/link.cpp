#include "actors/cluster/link.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <caf/io/middleman.hpp>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "actors/cluster/host_names.hpp"
#include "actors/cluster/link_middleman.hpp"
#include "actors/cluster/node_identity.hpp"
#include "actors/cluster/wire.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto local_limit =
    std::chrono::seconds(10);  // for the link's own actor, which may be busy dialling

/// CAF's error of a failed dial as one that a person can act on.
error dial_error(const caf::error& e, const std::string& where, bool authenticated) {
  if (e.category() == error_category) return from_caf(e);
  if (e == caf::sec::disconnect_during_handshake && !authenticated) {
    return {ec::unauthenticated, where + " closed the link at once; it may expect a cluster secret"};
  }
  if (e == caf::sec::disconnect_during_handshake) return {ec::peer_lost, where + " closed the link at once"};
  if (e == caf::sec::incompatible_application_ids || e == caf::sec::incompatible_versions) {
    return {ec::incompatible, where + " runs another protocol version of mooncaf"};
  }
  if (e == caf::sec::request_timeout) {
    return {ec::timed_out,
            where + ": no link in time" + (authenticated ? "" : "; it may expect a cluster secret")};
  }
  return {ec::peer_lost, where + ": " + caf::to_string(e)};
}

}  // namespace

namespace detail {

class link_state {
 public:
  link_state(caf::actor_system& system, std::shared_ptr<link_guard> guard)
      : system_(system), guard_(std::move(guard)), middleman_(spawn_link_middleman(system, guard_)) {}

  ~link_state() { close(); }

  void close() {
    caf::io::middleman_actor middleman;
    std::vector<std::uint16_t> ports;
    {
      const std::lock_guard lock(mutex_);
      middleman = std::exchange(middleman_, nullptr);
      ports = std::exchange(ports_, {});
    }
    if (!middleman) return;
    caf::scoped_actor self{system_, true};
    for (const auto port : ports) {
      self->request(middleman, local_limit, caf::close_atom_v, port).receive([] {}, [](const caf::error&) {});
    }
    if (guard_) guard_->door.stop();
    self->send_exit(middleman, caf::exit_reason::kill);
    self->wait_for(middleman);
  }

  caf::io::middleman_actor middleman() const {
    const std::lock_guard lock(mutex_);
    return middleman_;
  }
  void published(std::uint16_t port) {
    const std::lock_guard lock(mutex_);
    ports_.push_back(port);
  }
  caf::actor_system& system() const noexcept { return system_; }
  const link_guard* guard() const noexcept { return guard_.get(); }

 private:
  caf::actor_system& system_;
  std::shared_ptr<link_guard> guard_;  ///< null: no proof asked
  mutable std::mutex mutex_;
  caf::io::middleman_actor middleman_;  ///< null once closed
  std::vector<std::uint16_t> ports_;
};

}  // namespace detail

result<void> check_distinct(const caf::actor_system& mine, const caf::strong_actor_ptr& peer,
                            const std::string& where) {
  if (!peer || peer->node() != mine.node()) return {};
  return fail(
      ec::already_exists,
      where + " has this process's own CAF node id (" + caf::to_string(mine.node()) +
          "): it is this process, or a container that shares our network and our process id; give one of "
          "them another process id (for instance with --init, or a shared pid namespace)");
}

cluster_link::cluster_link(std::unique_ptr<detail::link_state> state) : state_(std::move(state)) {}
cluster_link::cluster_link(cluster_link&&) noexcept = default;
cluster_link& cluster_link::operator=(cluster_link&&) noexcept = default;
cluster_link::~cluster_link() = default;

result<cluster_link> cluster_link::open(caf::actor_system& system, key_ring keys) {
  std::shared_ptr<link_guard> guard;
  if (!keys.empty()) {
    // OpenSSL writes to sockets without MSG_NOSIGNAL: a peer that hangs up must not end this process.
    std::signal(SIGPIPE, SIG_IGN);
    auto tls = tls_context::make(std::move(keys));
    if (!tls) return fail(std::move(tls.error()));
    guard = std::make_shared<link_guard>(std::move(*tls), door_limits{});
  }
  return cluster_link{std::make_unique<detail::link_state>(system, std::move(guard))};
}

void cluster_link::close() { state_->close(); }

link_counters cluster_link::counters() const {
  if (state_->guard() == nullptr) return {};
  const auto seen = state_->guard()->door.counters();
  return {seen.admitted, seen.refused, seen.expired};
}

bool cluster_link::authenticated() const noexcept { return state_->guard() != nullptr; }
caf::actor_system& cluster_link::system() const noexcept { return state_->system(); }

result<std::uint16_t> cluster_link::publish_actor(caf::strong_actor_ptr root, std::set<std::string> interface,
                                                  const std::string& host, std::uint16_t port) {
  const auto where = host + ":" + std::to_string(port);
  if (!authenticated() && !is_loopback(host)) {
    return fail(ec::invalid_argument,
                "listening on " + where +
                    ", which others can reach, needs a cluster secret; without one only "
                    "loopback addresses are allowed");
  }
  const auto middleman = state_->middleman();
  if (!middleman) return fail(ec::cancelled, "the link is closed");
  result<std::uint16_t> out = fail(ec::internal);
  caf::scoped_actor self{system(), true};
  self->request(middleman, local_limit, caf::publish_atom_v, port, std::move(root), std::move(interface),
                host, true)
      .receive(
          [&](std::uint16_t bound) {
            state_->published(bound);
            out = bound;
          },
          [&](const caf::error& e) {
            out = fail(ec::io_error, "cannot listen on " + where + ": " + caf::to_string(e));
          });
  return out;
}

namespace {

/// One try at a dial. @returns a handle, which may come from the middleman's memory of earlier dials.
result<caf::strong_actor_ptr> connect(caf::scoped_actor& self, const caf::io::middleman_actor& middleman,
                                      const std::set<std::string>& interface, const std::string& host,
                                      std::uint16_t port, duration limit, bool authenticated) {
  const auto where = host + ":" + std::to_string(port);
  result<caf::strong_actor_ptr> out = fail(ec::internal);
  self->request(middleman, caf::timespan{limit}, caf::connect_atom_v, host, port)
      .receive(
          [&](const caf::node_id&, const caf::strong_actor_ptr& found, const std::set<std::string>& offered) {
            if (auto distinct = check_distinct(self->system(), found, where); !distinct) {
              out = fail(std::move(distinct.error()));
            } else if (!found) {
              out = fail(ec::already_exists,
                         where +
                             " offers no actor; it may be this process itself, or share its "
                             "CAF node id (containers with the same process id)");
            } else if (!self->system().assignable(offered, interface)) {
              out = fail(ec::incompatible, where + " offers another interface");
            } else {
              out = found;
            }
          },
          [&](const caf::error& e) { out = fail(dial_error(e, where, authenticated)); });
  return out;
}

/// A watch on a dead actor reports at once.
bool is_dead(caf::scoped_actor& self, const caf::strong_actor_ptr& found) {
  bool dead = false;
  self->monitor(caf::actor_cast<caf::actor_addr>(found));
  self->receive([&](const caf::down_msg&) { dead = true; }, caf::after(std::chrono::seconds(0)) >> [] {});
  if (!dead) self->demonitor(caf::actor_cast<caf::actor_addr>(found));
  return dead;
}

}  // namespace

result<caf::strong_actor_ptr> cluster_link::dial_actor(std::set<std::string> interface,
                                                       const std::string& host, std::uint16_t port,
                                                       duration limit) {
  const auto middleman = state_->middleman();
  if (!middleman) return fail(ec::cancelled, "the link is closed");
  caf::scoped_actor self{system(), true};
  const auto until = clock_type::now() + limit;
  for (;;) {
    const auto left = std::max<duration>(until - clock_type::now(), std::chrono::milliseconds(1));
    auto found = connect(self, middleman, interface, host, port, left, authenticated());
    if (!found || !is_dead(self, *found)) return found;
    // CAF remembers the nodes that it reached, and forgets one only once it has heard that its link broke:
    // ask again in a moment.
    if (clock_type::now() >= until)
      return fail(ec::peer_lost, host + ":" + std::to_string(port) + ": the link broke");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace mooncaf
