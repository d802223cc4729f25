#pragma once
// A small typed actor to talk to, for the tests of this folder.

#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <cstdint>
#include <string>

#include "actors/cluster/wire.hpp"

CAF_BEGIN_TYPE_ID_BLOCK(cluster_tests, first_custom_type_id)
CAF_ADD_ATOM(cluster_tests, mooncaf::testing, echo_atom, "echo")
CAF_ADD_ATOM(cluster_tests, mooncaf::testing, refuse_atom, "refuse")
CAF_ADD_ATOM(cluster_tests, mooncaf::testing, hold_atom, "hold")
CAF_ADD_ATOM(cluster_tests, mooncaf::testing, count_atom, "count")
CAF_ADD_ATOM(cluster_tests, mooncaf::testing, quit_atom, "quit")
CAF_END_TYPE_ID_BLOCK(cluster_tests)

namespace mooncaf::testing {

using echo_actor = caf::typed_actor<
    // Says the same.
    MOONCAF_RPC(std::string, echo_atom, std::string),
    // Fails with `ec::overloaded` and the text.
    MOONCAF_RPC(void, refuse_atom, std::string),
    // Never answers.
    MOONCAF_RPC(std::string, hold_atom),
    // Counts its calls, answers with the count.
    MOONCAF_RPC(std::uint64_t, count_atom, std::string),
    // Ends.
    MOONCAF_RPC(void, quit_atom)>;

class echo final : public echo_actor::base {
 public:
  using echo_actor::base::base;
  behavior_type make_behavior() override {
    return {
        [](echo_atom, const std::string& text) { return text; },
        [](refuse_atom, const std::string& text) -> caf::result<void> {
          return to_caf(error{ec::overloaded, text});
        },
        [this](hold_atom) -> caf::result<std::string> {
          held_ = make_response_promise<std::string>();
          return held_;
        },
        [this](count_atom, const std::string&) { return ++calls_; },
        [this](quit_atom) { quit(); },
    };
  }

  // A promise keeps its actor alive.
  void on_exit() override { held_ = {}; }

 private:
  caf::typed_response_promise<std::string> held_;
  std::uint64_t calls_ = 0;
};

}  // namespace mooncaf::testing
