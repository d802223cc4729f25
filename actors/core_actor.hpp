#pragma once
// An actor around a state machine of `runtime`: a message becomes an event of the core, whose orders are then
// carried out.

#include <caf/actor_config.hpp>
#include <type_traits>
#include <utility>
#include <variant>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Base of such an actor. `Actor` has a `carry_out` for each action of `Core::take_actions`, and may hide
/// `now`.
template <class Actor, class Interface, class Core>
class core_actor : public Interface::base {
 protected:
  template <class... Arguments>
  explicit core_actor(caf::actor_config& config, Arguments&&... of_core)
      : Interface::base(config), core_(std::forward<Arguments>(of_core)...) {}

  /// Tells the core of an event, with the time where it asks for that, and carries out its orders. @param
  /// event  a member function of the core. @returns its result.
  template <class Event, class... Arguments>
  auto tell(Event event, Arguments&&... what) {
    const auto told = [&] {
      if constexpr (std::is_invocable_v<Event, Core&, Arguments..., time_point>)
        return (core_.*event)(std::forward<Arguments>(what)..., self().now());
      else return (core_.*event)(std::forward<Arguments>(what)...);
    };
    if constexpr (std::is_void_v<decltype(told())>) {
      told();
      act();
    } else {
      auto answer = told();
      act();
      return answer;
    }
  }

  /// Carries out the orders of the core, and those that follow from them.
  void act() {
    for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
      for (auto& action : actions) std::visit([this](auto& order) { self().carry_out(order); }, action);
    }
  }

  static time_point now() { return clock_type::now(); }

  Core core_;

 private:
  Actor& self() { return static_cast<Actor&>(*this); }
};

}  // namespace mooncaf
