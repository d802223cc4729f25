#include "actors/node.hpp"

#include <caf/send.hpp>
#include <memory>
#include <utility>

#include "actors/executor.hpp"
#include "actors/introductions.hpp"
#include "actors/metrics/report_metrics.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/compute/device_reach.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/intervals.hpp"

namespace mooncaf {

namespace {

constexpr auto peer_limit = std::chrono::seconds(5);

}  // namespace

node::node(caf::actor_config& config, context_ptr context, local_actors local,
           const std::shared_ptr<node_info>& self_info, conductor_seats seats, leadership_voter voter,
           dial_function dial, executor_actor dialler, directory_function directory)
    : core_actor(config, self_info, std::move(seats), std::move(voter)),
      context_(std::move(context)),
      local_(std::move(local)),
      info_(self_info),
      dial_(std::move(dial)),
      dialler_(std::move(dialler)),
      directory_(std::move(directory)) {
  for (const auto& w : info_->workers)
    if (w.role == worker_role::prefill) prefills_.push_back(w.id);
}

node_actor::behavior_type node::make_behavior() {
  outlive_stray_errors(*this);
  info_->node = caf::actor_cast<caf::actor>(node_actor{this});
  set_down_handler([this](const caf::down_msg& down) {
    if (const auto gone = connected_.extract(down.source))
      tell(&membership_core::lost, gone.mapped(), caf::to_string(down.reason));
  });
  return {
      [this](listen_atom, std::uint16_t port) {
        info_->control_port = port;
        if (local_.gateway) send(local_.gateway, peer_up_atom_v, *info_);
        tick();
      },
      [this](hello_atom, const node_info& peer) { return greeted(peer); },
      [this](claim_atom, const lead_claim& claim) {
        const auto vote = tell(&membership_core::claimed, claim);
        if (vote.granted) local_.heard(claim);
        return vote;
      },
      [this](status_atom) {
        auto mine = core_.report();
        mine.device = stats_of(context_->device_blocks.get(), context_->reach.get());
        return local_.report(*this, std::move(mine));
      },
      [this](drain_atom) { tell(&membership_core::drain); },
      [this](tick_atom) { tick(); },
  };
}

void node::on_exit() {
  core_.close();
  local_ = {};
  dialler_ = nullptr;
  dial_ = nullptr;
  directory_ = nullptr;
  info_ = nullptr;
}

void node::tick() {
  report();
  tell(&membership_core::tick);
  delayed_send(this, report_interval, tick_atom_v);
}

void node::report() {
  request(node_actor{this}, peer_limit, status_atom_v)
      .then(
          [this, asked = now()](const node_report& mine) {
            if (context_->meters) show(*context_->meters, mine, prefills_);
            tell(&membership_core::fenced, mine.moved.fenced, asked);
            for (const auto& [at, version] : core_.conductors()) report_to(at, version, mine);
          },
          [](const caf::error&) {});
}

void node::report_to(const introduction_ptr& conductor, std::uint64_t version, node_report mine) {
  mine.roster = version;
  request(conductor_of(conductor), peer_limit, report_atom_v, std::move(mine))
      .then(
          [this, from = conductor->id](const roster_msg& answer) {
            tell(&membership_core::stands, from, answer, without_handles(answer.others));
          },
          [](const caf::error&) {});
}

node_info node::introduced(std::uint64_t meeting) const {
  auto mine = *info_;
  mine.meeting = meeting;
  return mine;
}

caf::result<node_info> node::greeted(const node_info& peer) {
  return to_caf(tell(&membership_core::greeted, std::make_shared<node_info>(peer), peer.meeting)
                    .map([this](std::uint64_t number) { return introduced(number); }));
}

void node::carry_out(const membership_action::dial& order) {
  auto found = std::make_shared<result<node_actor>>(fail(ec::internal));
  auto task =
      make_task([dial = dial_, where = order.where, found] { *found = dial(where.host, where.port); });
  request(dialler_, caf::infinite, run_atom_v, std::move(task))
      .then([this, found, greeting = order.greeting](const task_ptr&) {
        if (*found) introduce(greeting, **found);
        else tell(&membership_core::missed, greeting, found->error());
      });
}

void node::introduce(greeting_ticket greeting, const node_actor& peer) {
  request(peer, peer_limit, hello_atom_v, introduced(tell(&membership_core::reached, greeting)))
      .then(
          [this, greeting](const node_info& found) {
            tell(&membership_core::answered, greeting, std::make_shared<node_info>(found), found.meeting,
                 found.conductor != nullptr);
          },
          [this, greeting](const caf::error& e) { tell(&membership_core::refused, greeting, from_caf(e)); });
}

void node::carry_out(const membership_action::join& order) {
  request(conductor_of(order.conductor), peer_limit, join_atom_v, *info_)
      .then(
          [this, at = order.conductor](const std::vector<node_info>& others) {
            local_.announce_to(conductor_of(at));
            tell(&membership_core::joined, at->id, without_handles(others));
          },
          [this, at = order.conductor->id](const caf::error& e) {
            tell(&membership_core::not_joined, at, from_caf(e));
          });
}

void node::carry_out(const membership_action::found& order) {
  const auto& found = with_handles(order.conductor);
  if (directory_) directory_(found);
}

void node::carry_out(const membership_action::follow& order) {
  if (order.conductor) log_info("member", {{"conductor", with_handles(order.conductor).name}});
  local_.follow(conductor_of(order.conductor), order.term);
}

void node::carry_out(const membership_action::meet& order) {
  const auto& peer = with_handles(order.peer);
  log_info("peer up", {{"peer", peer.name}, {"roles", peer.roles}});
  monitor(peer.node);
  connected_.emplace(peer.node.address(), peer.id);
  local_.peer_up(peer);
}

void node::carry_out(const membership_action::part& order) {
  const auto& peer = with_handles(order.peer);
  log_warn("peer down", {{"peer", peer.name}, {"reason", order.why}});
  demonitor(peer.node.address());
  connected_.erase(peer.node.address());
  local_.peer_down(peer.id);
}

void node::carry_out(const membership_action::complain& order) {
  log_warn(order.about, {{"problem", order.problem}});
}

}  // namespace mooncaf
