#include "actors/cluster/link_middleman.hpp"

#include <poll.h>

#include <caf/io/basp_broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/interfaces.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <caf/io/scribe.hpp>
#include <string>
#include <utility>
#include <vector>

#include "actors/cluster/wire.hpp"
#include "transport/net/socket.hpp"

namespace mooncaf {

namespace {

namespace net = caf::io::network;

/// How CAF's stream reads and writes an encrypted connection. The handshake is over before one is made.
class tls_policy {
 public:
  explicit tls_policy(tls_session session) : session_(std::move(session)) {}

  net::rw_state read_some(std::size_t& got, net::native_socket, void* to, std::size_t size) {
    got = 0;
    if (size == 0) return net::rw_state::indeterminate;
    return state_of(session_.read(to, size, got));
  }
  net::rw_state write_some(std::size_t& put, net::native_socket, const void* from, std::size_t size) {
    put = 0;
    if (size == 0) return net::rw_state::indeterminate;
    return state_of(session_.write(from, size, put));
  }
  /// Bytes that are decrypted already make no socket readable, so CAF must not go back to polling before it
  /// has read them.
  bool must_read_more(net::native_socket, std::size_t threshold) const {
    return session_.pending() >= threshold;
  }

 private:
  /// Success with no bytes makes CAF wait for the socket.
  static net::rw_state state_of(tls_step step) {
    const bool open = step == tls_step::done || step == tls_step::wants_read || step == tls_step::wants_write;
    return open ? net::rw_state::success : net::rw_state::failure;
  }

  tls_session session_;
};

/// One encrypted connection, as CAF's broker sees it.
class tls_scribe final : public caf::io::scribe {
 public:
  tls_scribe(net::default_multiplexer& mpx, unique_fd fd, tls_session session)
      : scribe(net::conn_hdl_from_socket(fd.get())), stream_(mpx, fd.release(), std::move(session)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!started_) stream_.start(this);
    started_ = true;
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void flush() override { stream_.flush(this); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  std::string addr() const override {
    const auto found = net::remote_addr_of_fd(stream_.fd());
    return found ? *found : std::string{};
  }
  std::uint16_t port() const override {
    const auto found = net::remote_port_of_fd(stream_.fd());
    return found ? *found : std::uint16_t{0};
  }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  net::stream_impl<tls_policy> stream_;
  bool started_ = false;
};

/// Gives every new connection to the handshaker, and to CAF those that come back proven.
class guarded_doorman final : public net::doorman_impl {
 public:
  guarded_doorman(net::default_multiplexer& mpx, net::native_socket fd, std::shared_ptr<link_guard> guard)
      : net::doorman_impl(mpx, fd), guard_(std::move(guard)) {}

  bool new_connection() override {
    unique_fd fd{acceptor_.accepted_socket()};
    if (detached()) return false;
    net::nonblocking(fd.get(), true);
    caf::intrusive_ptr<guarded_doorman> self{this};
    auto& mpx = acceptor_.backend();
    guard_->door.submit(std::move(fd), [self, &mpx](unique_fd proved, tls_session session) {
      mpx.post([self, held = std::make_shared<proved_connection>(std::move(proved), std::move(session))] {
        self->admit(std::move(*held));
      });
    });
    return true;
  }

 private:
  struct proved_connection {
    proved_connection(unique_fd f, tls_session s) : fd(std::move(f)), session(std::move(s)) {}
    unique_fd fd;
    tls_session session;
  };

  /// @thread the multiplexer's
  void admit(proved_connection connection) {
    if (detached()) return;
    auto& mpx = acceptor_.backend();
    auto scribe = caf::make_counted<tls_scribe>(mpx, std::move(connection.fd), std::move(connection.session));
    const auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    doorman::new_connection(&mpx, handle);
  }

  std::shared_ptr<link_guard> guard_;
};

class link_middleman final : public caf::io::middleman_actor_impl {
 public:
  link_middleman(caf::actor_config& config, caf::actor broker, std::shared_ptr<link_guard> guard)
      : middleman_actor_impl(config, std::move(broker)), guard_(std::move(guard)) {}

  const char* name() const override { return "mooncaf.link"; }

 protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host, std::uint16_t port) override {
    const auto where = host + ":" + std::to_string(port);
    auto fd = dial_tcp(host, port, clock_type::now() + connect_limit);
    if (!fd) return to_caf(fd.error());
    if (!guard_) {
      if (auto greeted = greeting(fd->get(), where); !greeted) return to_caf(greeted.error());
      return mpx().new_scribe(fd->release());
    }
    auto session = guard_->tls->start(fd->get(), tls_role::client);
    if (!session) return to_caf(session.error());
    if (auto proved = prove(*session, fd->get(), where); !proved) return to_caf(proved.error());
    if (auto greeted = greeting(fd->get(), where); !greeted) return to_caf(greeted.error());
    return caf::make_counted<tls_scribe>(mpx(), std::move(*fd), std::move(*session));
  }

  caf::expected<caf::io::doorman_ptr> open(std::uint16_t port, const char* address, bool reuse) override {
    if (!guard_) return middleman_actor_impl::open(port, address, reuse);
    auto fd = net::new_tcp_acceptor_impl(port, address, reuse);
    if (!fd) return std::move(fd.error());
    return caf::make_counted<guarded_doorman>(mpx(), *fd, guard_);
  }

 private:
  static result<void> prove(tls_session& session, int fd, const std::string& where) {
    const auto until = clock_type::now() + proof_limit;
    for (;;) {
      const auto step = session.handshake();
      if (step == tls_step::done) return {};
      if (step == tls_step::closed || step == tls_step::failed) {
        return fail(ec::unauthenticated,
                    where + " does not share our cluster secret (" + session.problem() + ")");
      }
      const short wanted = step == tls_step::wants_read ? POLLIN : POLLOUT;
      if (!wait_for_socket(fd, wanted, until)) {
        return fail(ec::timed_out,
                    where + ": no handshake; does a mooncaf node with a cluster secret listen there?");
      }
    }
  }

  /// The accepting side of CAF's protocol speaks first. Waiting for it here keeps a mute peer out of the
  /// broker, which would wait for ever, and answer no later dial to that address.
  static result<void> greeting(int fd, const std::string& where) {
    if (wait_for_socket(fd, POLLIN, clock_type::now() + proof_limit)) return {};
    return fail(ec::timed_out,
                where +
                    " accepts connections but says nothing; is that a mooncaf control port, and "
                    "does it expect a cluster secret?");
  }

  net::default_multiplexer& mpx() {
    return static_cast<net::default_multiplexer&>(system().middleman().backend());
  }

  std::shared_ptr<link_guard> guard_;
};

}  // namespace

caf::io::middleman_actor spawn_link_middleman(caf::actor_system& system, std::shared_ptr<link_guard> guard) {
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  return system.spawn<link_middleman, caf::detached + caf::hidden>(std::move(broker), std::move(guard));
}

}  // namespace mooncaf
