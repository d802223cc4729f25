#include "actors/conductor.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <memory>
#include <utility>

#include "actors/introductions.hpp"
#include "actors/minutes_player.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/base/wall_clock.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/intervals.hpp"

namespace mooncaf {

namespace {

constexpr auto vote_limit = std::chrono::seconds(5);

}  // namespace

conductor::conductor(caf::actor_config& config, conductor_setup setup)
    : conductor_actor::base(config),
      setup_(std::move(setup)),
      core_(setup_.core, setup_.queue, std::move(setup_.journal), std::move(setup_.lead)) {}

/// A member whose link breaks leaves at once; its silence is only the second sign (`cluster_core::tick`).
conductor_actor::behavior_type conductor::make_behavior() {
  outlive_stray_errors(*this);
  set_down_handler([this](const caf::down_msg& down) {
    const auto gone =
        std::ranges::find(members_, down.source, [](const auto& m) { return m.second.node.address(); });
    if (gone != members_.end()) leave(gone->first);
  });
  started_ = clock().now();
  delayed_send(this, conductor_interval, tick_atom_v);
  delayed_send(this, core_.lead_interval(), claim_atom_v);
  return {
      [this](join_atom, const node_info& node) { return join(node); },
      [this](schedule_atom, const schedule_job& job) { return schedule(job); },
      [this](event_atom, const request_event& e) {
        core_.event(e, clock().now());
        act();
      },
      [this](blocks_atom, const block_event_batch& batch) {
        core_.blocks(batch);
        act();
      },
      [this](keep_atom, node_id node, const block_keys_t& keys) {
        return core_.scheduler().kept_elsewhere(node, keys);
      },
      [this](report_atom, const node_report& message) { return report(message); },
      [this](status_atom) { return status(); },
      [this](claim_atom, const lead_claim& claim) {
        core_.heard(claim, clock().now());
        act();
      },
      [this](claim_atom) {
        core_.lead_tick(clock().now());
        act();
        delayed_send(this, core_.lead_interval(), claim_atom_v);
      },
      [this](tick_atom) {
        core_.tick(clock().now());
        act();
        delayed_send(this, conductor_interval, tick_atom_v);
      },
  };
}

void conductor::on_exit() {
  core_.close();
  act();
  members_.clear();
}

caf::result<std::vector<node_info>> conductor::join(const node_info& node) {
  if (node.fingerprint != setup_.fingerprint) {
    return to_caf(error{ec::incompatible, "the cluster serves " + setup_.model + " (" + setup_.layout +
                                              "), node " + node.name + " has " + node.model + " (" +
                                              node.layout + ")"});
  }
  const auto now = clock().now();
  leave(node.id);
  if (auto added = core_.join(card_of(node), now); !added) return to_caf(added.error());
  members_.emplace(node.id, node);
  act();
  monitor(node.node);
  log_info("joined", {{"member", node.name}, {"roles", node.roles}});
  return others_of(node.id);
}

void conductor::leave(node_id node) {
  core_.leave(node, clock().now());
  act();
}

roster_msg conductor::report(const node_report& report) {
  const auto now = clock().now();
  roster_msg out{core_.report(report, now), {}};
  act();
  if (out.news) out.others = others_of(report.node);
  return out;
}

std::vector<node_info> conductor::others_of(node_id node) const {
  std::vector<node_info> out;
  for (const auto& [id, info] : members_) {
    if (id != node) out.push_back(address_of(info));
  }
  return out;
}

caf::result<placement_msg> conductor::schedule(const schedule_job& job) {
  const auto answer = make_response_promise<placement_msg>();
  const auto asked = next_question_++;
  questions_.emplace(asked, answer);
  core_.ask(job, asked, clock().now());
  act();
  return answer;
}

void conductor::act() {
  for (auto& action : core_.take_actions()) {
    std::visit([this](auto& what) { carry_out(what); }, action);
  }
}

void conductor::carry_out(answer_question& what) {
  if (auto asked = questions_.extract(what.asked)) asked.mapped().deliver(std::move(what.where));
}

void conductor::carry_out(const follow_shard& what) {
  const auto m = members_.find(what.node);
  if (m == members_.end() || !m->second.shard) return;
  send(caf::actor_cast<cache_shard_actor>(m->second.shard), follow_atom_v,
       caf::actor_cast<caf::actor>(conductor_actor{this}));
}

void conductor::carry_out(copy_blocks& what) {
  const auto m = members_.find(what.target);
  if (m == members_.end() || !m->second.keeper) return;
  send(caf::actor_cast<pool_keeper_actor>(m->second.keeper), keep_atom_v, std::move(what.order));
}

void conductor::carry_out(const member_left& what) {
  const auto i = members_.find(what.node);
  if (i == members_.end()) return;
  log_warn("left", {{"member", i->second.name}});
  demonitor(i->second.node.address());
  members_.erase(i);
}

void conductor::carry_out(const charge_expired& what) {
  log_warn("expired", {{"charge", to_string(what.charge)}});
}

void conductor::carry_out(claim_lead& what) {
  const auto m = members_.find(what.member);
  if (m == members_.end()) return;
  what.claim.clock_us = wall_clock_us();
  const auto voter = caf::actor_cast<node_actor>(m->second.node);
  request(voter, vote_limit, claim_atom_v, what.claim)
      .then(
          [this, from = what.member, claim = what.claim, sent = clock().now()](const lead_vote& vote) {
            core_.answered(from, claim, sent, vote, clock().now());
            act();
          },
          // Silence is no vote, as the core counts.
          [](const caf::error&) {});
}

void conductor::carry_out(const log_turn& what) {
  log_info(what.event, {{"of", what.about}, {"stands", what.stands}, {"why", what.why}});
}

void conductor::carry_out(const tell_wish& what) {
  log_info("nodes", {{"wanted", what.wanted}, {"why", what.loads}});
  setup_.scale(what.wanted);
}

void conductor::carry_out(play_minutes& what) {
  const auto play = std::make_shared<minutes_player>(std::move(what.question), setup_.play);
  const auto over = [this, play] {
    core_.played(play->played(), play->took(), clock().now());
    act();
  };
  request(setup_.player, caf::infinite, run_atom_v, task_ptr{play})
      .then([over](const task_ptr&) { over(); }, [over](const caf::error&) { over(); });
}

cluster_status conductor::status() const {
  auto out = core_.status(clock().now());
  out.model = setup_.model;
  out.uptime_ns = (clock().now() - started_).count();
  return out;
}

}  // namespace mooncaf
