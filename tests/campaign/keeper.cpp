// A pool keeper of a virtual process, around the real core: actors/pool_keeper.cpp.

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

keeper_twin::keeper_twin(machine& here) : core(node_of(here.self)), here_(here) {}

void keeper_twin::act() {
  for (auto& action : core.take_actions()) std::visit([this](auto& what) { carry_out(what); }, action);
}

void keeper_twin::carry_out(copy_action::pin& order) {
  here_.cache->pin(
      order.owner, std::move(order.what),
      [this, owner = order.owner, turn = order.what.turn](const pinned_slots& held) {
        core.pinned(owner, turn, held);
        act();
      },
      [this, owner = order.owner](const error&) {
        core.refused(owner);
        act();
      });
}

void keeper_twin::carry_out(const copy_action::reserve& order) {
  here_.cache->reserve(
      order.owner, order.count,
      [this, owner = order.owner](const std::vector<slot_index>& slots) {
        core.reserved(owner, slots);
        act();
      },
      [this, owner = order.owner](const error&) {
        core.refused(owner);
        act();
      });
}

void keeper_twin::carry_out(const copy_action::fetch& order) {
  here_.mail.fetch(order.what, [this, owner = order.owner](const remote_blocks& got) {
    core.fetched(owner, got);
    act();
  });
}

void keeper_twin::carry_out(copy_action::commit& order) {
  copied += order.items.size();
  here_.cache->commit(order.owner, std::move(order.items));
}

void keeper_twin::carry_out(const copy_action::release& order) { here_.cache->release(order.owner); }

}  // namespace mooncaf::campaign
