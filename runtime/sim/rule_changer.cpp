#include "runtime/sim/rule_changer.hpp"

#include "runtime/sim/shadow_play.hpp"

namespace mooncaf::sim {

void rule_changer::begin() {
  if (w_.options.admission != admission_policy::adaptive) return;
  static_cast<void>(look());
}

bool rule_changer::look() {
  bool changed = false;
  const auto now = w_.time.clock();
  if (const auto question = shadow_.due(w_.conductor, now)) {
    const auto rules = rules_to_play();
    if (const auto rule = shadow_.played(w_.conductor, {play_rules(*question, rules), {}}, {}, now)) {
      w_.out.rules.push_back({to_sec(w_.time.now()), *rule});
      changed = true;
    }
  }
  w_.time.add(w_.time.now() + from_sec(w_.options.shadow_every_s), event_kind::shadow, 0);
  return changed;
}

}  // namespace mooncaf::sim
