#include "actors/pool_keeper.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto keeper_interval = std::chrono::milliseconds(500);

}  // namespace

pool_keeper::pool_keeper(caf::actor_config& config, const context_ptr& context, cache_shard_actor shard,
                         messenger_actor messenger)
    : pool_keeper_actor::base(config),
      shard_(std::move(shard)),
      messenger_(std::move(messenger)),
      core_(context->id) {}

pool_keeper_actor::behavior_type pool_keeper::make_behavior() {
  outlive_stray_errors(*this);
  delayed_send(this, keeper_interval, tick_atom_v);
  return {
      [this](keep_atom, const keep_order& order) {
        core_.take(order);
        act();
      },
      [this](peer_up_atom, node_id peer) {
        core_.peer_up(peer);
        act();
      },
      [this](peer_down_atom, node_id peer) { core_.peer_down(peer); },
      [this](tick_atom) {
        if (const auto owner = core_.at_work())
          send(shard_, renew_atom_v, std::vector<std::uint64_t>{*owner});
        delayed_send(this, keeper_interval, tick_atom_v);
      },
  };
}

void pool_keeper::on_exit() {
  core_.close();
  shard_ = nullptr;
  messenger_ = nullptr;
}

void pool_keeper::act() {
  for (auto& action : core_.take_actions()) {
    std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void pool_keeper::carry_out(copy_action::pin& order) {
  request(shard_, shard_limit, pin_atom_v, order.owner, std::move(order.what.keys), order.what.from_ssd)
      .then(
          [this, owner = order.owner, turn = order.what.turn](const pinned_slots& held) {
            core_.pinned(owner, turn, held);
            act();
          },
          [this, owner = order.owner](const caf::error&) {
            core_.refused(owner);
            act();
          });
}

void pool_keeper::carry_out(const copy_action::reserve& order) {
  request(shard_, shard_limit, reserve_atom_v, order.owner, order.count)
      .then(
          [this, owner = order.owner](const std::vector<slot_index>& slots) {
            core_.reserved(owner, slots);
            act();
          },
          [this, owner = order.owner](const caf::error&) {
            core_.refused(owner);
            act();
          });
}

void pool_keeper::carry_out(copy_action::fetch& order) {
  const auto fetched = [this, owner = order.owner](const remote_blocks& got) {
    core_.fetched(owner, got);
    act();
  };
  // The messenger bounds it.
  request(messenger_, caf::infinite, fetch_atom_v, std::move(order.what))
      .then(fetched, [fetched](const caf::error&) { fetched({}); });
}

void pool_keeper::carry_out(copy_action::commit& order) {
  send(shard_, commit_atom_v, order.owner, std::move(order.items));
}

void pool_keeper::carry_out(const copy_action::release& order) { send(shard_, release_atom_v, order.owner); }

}  // namespace mooncaf
