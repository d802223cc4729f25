// What a node sees when the process at the other end of a link dies, hangs or comes back.
#include <doctest/doctest.h>

#include "actors/cluster/guarded_request.hpp"
#include "tests/actors/cluster/child_process.hpp"
#include "tests/actors/cluster/echo.hpp"
#include "tests/support/actor_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using node = linked_system<caf::id_block::cluster_tests>;

namespace {

constexpr auto secret_text = "the secret of this cluster";

/// Settings with a short patience, so that a hang is noticed within the test's.
const system_settings quick{.scheduler_threads = 1,
                            .heartbeat_interval = std::chrono::milliseconds(100),
                            .connection_timeout = std::chrono::milliseconds(600)};
/// Settings under which silence would be noticed only after the test's patience: an end is seen by itself.
const system_settings patient{.scheduler_threads = 1,
                              .heartbeat_interval = std::chrono::milliseconds(100),
                              .connection_timeout = std::chrono::seconds(20)};

key_ring secret_if(bool wanted) { return wanted ? key_ring{secret_text} : key_ring{}; }

/// Waits for the DOWN message of an actor that `n.self` monitors.
std::optional<duration> time_to_down(node& n, duration limit) {
  const auto begin = clock_type::now();
  bool down = false;
  n.self->receive([&](const caf::down_msg&) { down = true; }, caf::after(caf::timespan{limit}) >> [] {});
  return down ? std::optional{duration{clock_type::now() - begin}} : std::nullopt;
}

}  // namespace

TEST_CASE("a killed peer is reported at once, and reached again when it comes back on its port") {
  for (const bool authenticated : {false, true}) {
    CAPTURE(authenticated);
    node n{secret_if(authenticated), patient};
    child_process first{0, authenticated ? secret_text : ""};
    auto far = n.link.dial<echo_actor>("127.0.0.1", first.port());
    REQUIRE_MESSAGE(far, to_string(far.error()));
    n.self->monitor(*far);
    REQUIRE(n.ask<std::string>(*far, echo_atom_v, std::string{"x"}));

    first.end(SIGKILL);
    const auto noticed = time_to_down(n, std::chrono::seconds(10));
    REQUIRE(noticed);
    CHECK(*noticed < std::chrono::seconds(5));
    CHECK_FALSE(n.link.dial<echo_actor>("127.0.0.1", first.port()));

    child_process second{first.port(), authenticated ? secret_text : ""};
    far = n.link.dial<echo_actor>("127.0.0.1", second.port());
    REQUIRE_MESSAGE(far, to_string(far.error()));
    CHECK(n.ask<std::string>(*far, echo_atom_v, std::string{"back"}) == std::string{"back"});
  }
}

TEST_CASE("a peer that hangs is reported after the connection time-out") {
  for (const bool authenticated : {false, true}) {
    CAPTURE(authenticated);
    node n{secret_if(authenticated), quick};
    child_process peer{0, authenticated ? secret_text : ""};
    auto far = n.link.dial<echo_actor>("127.0.0.1", peer.port());
    REQUIRE(far);
    n.self->monitor(*far);
    REQUIRE(n.ask<std::string>(*far, echo_atom_v, std::string{"x"}));
    peer.signal(SIGSTOP);
    const auto noticed = time_to_down(n, std::chrono::seconds(10));
    REQUIRE(noticed);
    CHECK(*noticed < std::chrono::seconds(8));
  }
}

TEST_CASE("a peer that ends by a signal ends cleanly") {
  child_process peer{0, secret_text};
  node n{secret_if(true)};
  auto far = n.link.dial<echo_actor>("127.0.0.1", peer.port());
  REQUIRE(far);
  const int status = peer.end(SIGTERM);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

namespace {

using asker_actor =
    caf::typed_actor<MOONCAF_RPC(std::string, echo_atom, echo_actor),
                     MOONCAF_RPC(std::string, hold_atom, echo_actor), MOONCAF_RPC(std::uint64_t, count_atom)>;

/// Asks another actor through a request guard, with a limit far beyond any test's patience.
class asker final : public asker_actor::base {
 public:
  using asker_actor::base::base;
  behavior_type make_behavior() override {
    guard_.install();
    return {
        [this](echo_atom, const echo_actor& to) {
          return forward(guard_.request(to, limit, echo_atom_v, std::string{"x"}));
        },
        [this](hold_atom, const echo_actor& to) { return forward(guard_.request(to, limit, hold_atom_v)); },
        [this](count_atom) { return std::uint64_t{guard_.waiting()}; },
    };
  }

  void on_exit() override { guard_.forget_all(); }

 private:
  static constexpr duration limit = std::chrono::minutes(10);

  template <class Order>
  caf::result<std::string> forward(Order order) {
    auto promise = make_response_promise<std::string>();
    std::move(order).then([promise](const std::string& text) mutable { promise.deliver(text); },
                          [promise](const error& e) mutable { promise.deliver(to_caf(e)); });
    return promise;
  }

  request_guard<asker> guard_{this};
};

}  // namespace

TEST_CASE("a guarded request fails when its receiver's process dies, and at once if it is dead already") {
  node n{secret_if(true), patient};
  child_process peer{0, secret_text};
  auto far = n.link.dial<echo_actor>("127.0.0.1", peer.port());
  REQUIRE(far);
  const auto asking = n.keep(asker_actor{n.sys.spawn<asker>()});
  CHECK(n.ask<std::string>(asking, echo_atom_v, *far) == std::string{"x"});

  auto under_way = n.self->request(asking, std::chrono::seconds(10), hold_atom_v, *far);
  while (n.ask<std::uint64_t>(asking, count_atom_v) != std::uint64_t{1}) {
  }
  peer.end(SIGKILL);
  result<std::string> answer = std::string{"an answer"};
  under_way.receive([](const std::string&) {}, [&](const caf::error& e) { answer = fail(from_caf(e)); });
  REQUIRE_FALSE(answer);
  CHECK(answer.error() == ec::peer_lost);

  const auto begin = clock_type::now();
  const auto dead = n.ask<std::string>(asking, echo_atom_v, *far);
  REQUIRE_FALSE(dead);
  CHECK(dead.error() == ec::peer_lost);
  CHECK(clock_type::now() - begin < std::chrono::seconds(5));
  CHECK(n.ask<std::uint64_t>(asking, count_atom_v) == std::uint64_t{0});
}

TEST_CASE("a guarded request tells errors, answers, and the end of its receiver apart") {
  actor_fixture<caf::id_block::cluster_tests> f;
  const auto near = f.keep(echo_actor{f.sys.spawn<echo>()});
  const auto asking = f.keep(asker_actor{f.sys.spawn<asker>()});
  CHECK(f.ask<std::string>(asking, echo_atom_v, near) == std::string{"x"});

  const auto waits = f.ask<std::string>(asking, hold_atom_v, near);
  REQUIRE_FALSE(waits);
  CHECK(waits.error() == ec::timed_out);  // nothing moves until time does
  CHECK(f.ask<std::uint64_t>(asking, count_atom_v) == std::uint64_t{1});
  f.advance_time(std::chrono::minutes(11));
  CHECK(f.ask<std::uint64_t>(asking, count_atom_v) == std::uint64_t{0});

  SUBCASE("the asker ends first, with a request under way") {
    CHECK_FALSE(f.ask<std::string>(asking, hold_atom_v, near));
    f.stop(asking);
    return;
  }
  f.stop(near);
  const auto dead = f.ask<std::string>(asking, echo_atom_v, near);
  REQUIRE_FALSE(dead);
  CHECK(dead.error() == ec::peer_lost);
}
