#include "actors/rank.hpp"

#include <utility>

#include "actors/cluster/wire.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

rank::rank(caf::actor_config& config, rank_self self)
    : rank_actor::base(config), host_(std::move(self), [](const std::string& line) {
        log_warn("pass", {{"problem", line}});
      }) {}

rank_actor::behavior_type rank::make_behavior() {
  outlive_stray_errors(*this);
  return {[this](hello_atom, const rank_greeting& leader) -> caf::result<rank_welcome> {
            auto welcome = host_.greeted(leader);
            if (welcome) log_info("leader", {{"name", leader.name}});
            else log_warn("leader", {{"refused", leader.name}, {"reason", to_string(welcome.error())}});
            return to_caf(std::move(welcome));
          },
          [this](join_atom, const rank_group& group) -> caf::result<void> {
            return to_caf(host_.joined(group));
          }};
}

}  // namespace mooncaf
