#pragma once
// Actors under test: on a deterministic scheduler with virtual time, or as two systems over real loopback
// links. Include this instead of caf/test/*.hpp, whose macros collide with doctest's.

#include <caf/all.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "actors/cluster/link.hpp"
#include "actors/cluster/system.hpp"
#include "actors/cluster/wire.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf::testing {

/// Waits for something that happens on another thread and announces itself to nobody. @returns whether it
/// came true.
template <class Condition>
bool eventually(Condition holds, duration limit = std::chrono::seconds(10)) {
  const auto until = clock_type::now() + limit;
  while (!holds()) {
    if (clock_type::now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Registers id blocks with a configuration: `actor_fixture<caf::id_block::mooncaf>`.
template <class Base, class... Blocks>
class config_with : public Base {
 public:
  template <class... Args>
  explicit config_with(Args&&... args) : Base(std::forward<Args>(args)...) {
    (this->template add_message_types<Blocks>(), ...);
  }
};

/// One actor system whose actors move only when `run` is called, and whose time moves only in `advance_time`.
/// Actors that are alive at the end are stopped with `stop(handle)` or by the destructor through
/// `keep(handle)`.
template <class... Blocks>
class actor_fixture {
 public:
  actor_fixture()
      : sched(dynamic_cast<caf::scheduler::test_coordinator&>(sys.scheduler())), self(sys, true) {}
  ~actor_fixture() {
    for (auto& handle : kept_) caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    kept_.clear();
    run();
  }

  /// Handles every message until all actors are idle. @returns how many were handled.
  std::size_t run() { return sched.run(); }

  /// Moves virtual time, fires what is due by then, and runs.
  void advance_time(caf::timespan by) {
    sched.advance_time(by);
    run();
  }

  /// Remembers an actor so that it is stopped at the end. @returns the handle.
  template <class Handle>
  Handle keep(Handle handle) {
    kept_.push_back(caf::actor_cast<caf::actor>(handle));
    return handle;
  }

  template <class Handle>
  void stop(const Handle& handle) {
    caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    run();
  }

  /// Sends a request, runs, and returns the answer; `T` may be void.
  /// @error of the actor; `ec::timed_out` if the system went idle without an answer (it may wait for time to
  /// pass).
  template <class T, class Handle, class... Args>
  result<T> ask(const Handle& actor, Args&&... args) {
    result<T> out = fail(ec::timed_out, "all actors are idle and none has answered");
    // An asker of its own, so that what it gets can only be this answer, and not a late one to an earlier
    // question.
    caf::scoped_actor asker{sys, true};
    auto request = asker->request(actor, caf::infinite, std::forward<Args>(args)...);
    run();
    if (!asker->has_next_message()) return out;
    auto failed = [&out](caf::error& e) { out = fail(from_caf(e)); };
    if constexpr (std::is_void_v<T>) {
      request.receive([&out] { out = {}; }, failed);
    } else {
      request.receive([&out](T& value) { out = std::move(value); }, failed);
    }
    return out;
  }

  /// Takes the next message of type (Ts...) that was sent to `self`, or nothing if none waits.
  template <class... Ts>
  std::optional<std::tuple<Ts...>> take() {
    std::optional<std::tuple<Ts...>> out;
    if (!self->has_next_message()) return out;
    self->receive([&out](Ts&... values) { out.emplace(std::move(values)...); },
                  caf::after(std::chrono::seconds(0)) >> [] {});
    return out;
  }

  config_with<cluster_config, Blocks...> cfg{cluster_config::for_tests{}};
  caf::actor_system sys{cfg};
  caf::scheduler::test_coordinator& sched;
  caf::scoped_actor self;

 private:
  std::vector<caf::actor> kept_;
};

/// One process's worth of actor system, with real threads and a link.
template <class... Blocks>
class linked_system {
 public:
  explicit linked_system(key_ring secret = {}, system_settings settings = {.scheduler_threads = 1})
      : cfg(settings), link(open(sys, std::move(secret))), self(sys) {}
  ~linked_system() {
    for (auto& handle : kept_) caf::anon_send_exit(handle, caf::exit_reason::user_shutdown);
    kept_.clear();
    link.close();
  }

  template <class Handle>
  Handle keep(Handle handle) {
    kept_.push_back(caf::actor_cast<caf::actor>(handle));
    return handle;
  }

  /// Sends a request over whatever lies between and waits for the answer.
  template <class T, class Handle, class... Args>
  result<T> ask(const Handle& actor, Args&&... args) {
    result<T> out = fail(ec::internal);
    auto failed = [&out](caf::error& e) { out = fail(from_caf(e)); };
    auto request = self->request(actor, std::chrono::seconds(10), std::forward<Args>(args)...);
    if constexpr (std::is_void_v<T>) {
      request.receive([&out] { out = {}; }, failed);
    } else {
      request.receive([&out](T& value) { out = std::move(value); }, failed);
    }
    return out;
  }

  config_with<cluster_config, Blocks...> cfg;
  caf::actor_system sys{cfg};
  cluster_link link;
  caf::scoped_actor self;

 private:
  static cluster_link open(caf::actor_system& sys, key_ring secret) {
    return std::move(cluster_link::open(sys, std::move(secret)).value());
  }
  std::vector<caf::actor> kept_;
};

/// Two processes' worth, in one process, over loopback: every message is serialised.
template <class... Blocks>
struct two_systems {
  explicit two_systems(const key_ring& secret = {}) : a(secret), b(secret) {}

  /// Publishes `root` of `a` and returns the handle under which `b` reaches it.
  template <class Handle>
  result<Handle> reach(const Handle& root) {
    auto port = a.link.publish(root, "127.0.0.1", 0);
    if (!port) return fail(port.error());
    return b.link.template dial<Handle>("127.0.0.1", *port);
  }

  linked_system<Blocks...> a;
  linked_system<Blocks...> b;
};

}  // namespace mooncaf::testing
