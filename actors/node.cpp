#include "actors/node.hpp"

#include <caf/send.hpp>
#include <memory>
#include <utility>

#include "actors/executor.hpp"
#include "actors/metrics/report_metrics.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto report_interval = std::chrono::milliseconds(200);
constexpr auto answer_limit = std::chrono::seconds(5);
constexpr auto first_join_wait = std::chrono::milliseconds(200);
constexpr auto longest_join_wait = std::chrono::seconds(2);

}  // namespace

node::node(caf::actor_config& config, context_ptr context, local_actors local, node_info self_info,
           std::optional<host_port> join, dial_function dial, executor_actor dialler,
           directory_function directory)
    : node_actor::base(config),
      context_(std::move(context)),
      local_(std::move(local)),
      info_(std::move(self_info)),
      join_(std::move(join)),
      dial_(std::move(dial)),
      dialler_(std::move(dialler)),
      directory_(std::move(directory)),
      join_wait_(first_join_wait, longest_join_wait, info_.id.value),
      roster_(info_.id, info_.id.value) {
  for (const auto& w : info_.workers) {
    if (w.role == worker_role::prefill) prefills_.push_back(w.id);
  }
}

node_actor::behavior_type node::make_behavior() {
  outlive_stray_errors(*this);
  info_.node = caf::actor_cast<caf::actor>(node_actor{this});
  set_down_handler([this](const caf::down_msg& down) { lost(down); });
  return {
      [this](listen_atom, std::uint16_t port) {
        info_.control_port = port;
        if (local_.gateway) send(local_.gateway, peer_up_atom_v, info_);
        if (local_.conductor) join(local_.conductor);
        send(this, tick_atom_v);
      },
      [this](hello_atom, const node_info& peer) { return greeted(peer); },
      [this](status_atom) { return status(); },
      [this](tick_atom) { tick(); },
  };
}

void node::on_exit() {
  local_ = {};
  conductor_ = nullptr;
  dialler_ = nullptr;
  dial_ = nullptr;
  directory_ = nullptr;
  peers_.clear();
  members_.clear();
  info_ = {};
}

void node::tick() {
  report();
  look_for_conductor();
  call_members();
  delayed_send(this, report_interval, tick_atom_v);
}

// ---- the conductor
// ------------------------------------------------------------------------------------------------------

void node::look_for_conductor() {
  if (conductor_ || !join_ || joining_ || clock().now() < join_at_) return;
  joining_ = true;
  greet(
      *join_, conductor_node_,
      [this](const node_info& found) {
        if (!found.conductor) return conductor_missed({ec::not_found, "no conductor runs there"});
        conductor_node_ = found.id;
        if (directory_ && !found.directory.empty()) directory_(found.directory);
        join(caf::actor_cast<conductor_actor>(found.conductor));
      },
      [this](const error& why) { conductor_missed(why); });
}

void node::conductor_missed(const error& why) {
  joining_ = false;
  join_at_ = clock().now() + join_wait_.next();
  complain(join_ ? "join " + to_string(*join_) : "join", to_string(why));
}

void node::join(const conductor_actor& conductor) {
  joining_ = true;
  request(conductor, answer_limit, join_atom_v, info_)
      .then(
          [this, conductor](const std::vector<node_info>& members) {
            joining_ = false;
            join_wait_.reset();
            complaints_.clear();
            roster_version_ = 0;
            follow(conductor);
            learn(members, true);
          },
          [this](const caf::error& e) {
            if (from_caf(e) == ec::incompatible) return quit(e);
            conductor_missed(from_caf(e));
          });
}

void node::stand(const roster_msg& answer) {
  if (!answer.member) {
    // Dropped for a silence that is over: we are here.
    if (conductor_ && !joining_) join(conductor_);
    return;
  }
  roster_version_ = answer.version;
  if (answer.news) learn(answer.others, false);
}

void node::follow(const conductor_actor& conductor) {
  conductor_ = conductor;
  const auto handle = conductor ? caf::actor_cast<caf::actor>(conductor) : caf::actor{};
  if (local_.gateway) send(local_.gateway, follow_atom_v, handle);
  if (local_.shard && conductor) send(local_.shard, follow_atom_v, handle);
}

void node::report() {
  request(node_actor{this}, answer_limit, status_atom_v)
      .then(
          [this, asked = clock().now()](const node_report& mine) {
            if (context_->meters) show(*context_->meters, mine, prefills_);
            leave_fenced(mine, asked);
            if (!conductor_) return;
            request(conductor_, answer_limit, report_atom_v, mine)
                .then([this](const roster_msg& answer) { stand(answer); }, [](const caf::error&) {});
          },
          [](const caf::error&) {});
}

// ---- the peers
// ----------------------------------------------------------------------------------------------------------

void node::learn(const std::vector<node_info>& others, bool joined) {
  std::vector<node_id> ids;
  members_.clear();
  for (const auto& other : others) {
    if (other.id == info_.id) continue;
    ids.push_back(other.id);
    members_.emplace(other.id, other);
  }
  roster_.set_members(ids, joined, clock().now());
  call_members();
}

void node::call_members() {
  // The conductor's node is called by `look_for_conductor`.
  for (const auto id : roster_.due(clock().now())) {
    const auto& member = members_.at(id);
    const auto missed = [this, id, name = member.name](const error& why) {
      roster_.missed(id, clock().now());
      complain("call " + name, to_string(why));
    };
    if (id == conductor_node_ && !conductor_) {
      roster_.missed(id, clock().now());
    } else {
      greet(
          {member.host, member.control_port}, id, [](const node_info&) {}, missed);
    }
  }
}

void node::greet(const host_port& where, node_id expected, answered_function answered,
                 missed_function missed) {
  auto found = std::make_shared<result<node_actor>>(fail(ec::internal));
  auto task = make_task([dial = dial_, where, found] { *found = dial(where.host, where.port); });
  request(dialler_, caf::infinite, run_atom_v, std::move(task))
      .then([this, found, expected, answered, missed](const task_ptr&) {
        if (!*found) return missed(found->error());
        auto mine = info_;
        mine.meeting = roster_.meeting_with(expected);
        hello(**found, mine, answered, missed);
      });
}

void node::hello(const node_actor& peer, const node_info& mine, answered_function answered,
                 missed_function missed) {
  request(peer, answer_limit, hello_atom_v, mine)
      .then(
          [this, answered, meeting = mine.meeting](const node_info& found) {
            meet(found);
            if (found.id != info_.id) roster_.met(found.id, meeting);
            answered(found);
          },
          [this, missed](const caf::error& e) {
            // Another model is another cluster: waiting would not help.
            if (from_caf(e) == ec::incompatible) return quit(e);
            missed(from_caf(e));
          });
}

caf::result<node_info> node::greeted(const node_info& peer) {
  if (peer.fingerprint != info_.fingerprint) {
    return to_caf(error{ec::incompatible, "node " + info_.name + " at " + info_.host + ":" +
                                              std::to_string(info_.control_port) + " serves " + info_.model +
                                              " (" + info_.layout + "), node " + peer.name + " has " +
                                              peer.model + " (" + peer.layout + ")"});
  }
  // Whoever it was that it had lost, it must not think that we went on: what it has here is gone.
  if (meet(peer)) roster_.begin_anew(peer.id);
  auto mine = info_;
  mine.meeting = roster_.meeting_with(peer.id);
  return mine;
}

bool node::meet(const node_info& peer) {
  if (peer.id == info_.id) return false;
  const auto known = peers_.find(peer.id);
  const bool had_lost_us = known != peers_.end();
  if (had_lost_us) {
    // A smaller number is of a greeting that was overtaken, or meant for who lived at our address before.
    if (peer.meeting <= known->second.info.meeting) return false;
    roster_.was_lost_by(peer.id, clock().now());
    part(peer.id, "it had lost this node");
  }
  peers_.emplace(peer.id, acquaintance{peer, clock().now()});
  roster_.met(peer.id);
  complaints_.erase("call " + peer.name);
  log_info("peer up", {{"peer", peer.name}, {"roles", peer.roles}});
  monitor(peer.node);
  if (local_.messenger) send(local_.messenger, peer_up_atom_v, peer);
  if (local_.keeper) send(local_.keeper, peer_up_atom_v, peer.id);
  if (local_.gateway) send(local_.gateway, peer_up_atom_v, peer);
  return had_lost_us;
}

void node::lost(const caf::down_msg& down) {
  for (const auto& [id, peer] : peers_) {
    if (peer.info.node.address() != down.source) continue;
    const auto lost_one = id;
    roster_.lost(lost_one, clock().now());
    return part(lost_one, caf::to_string(down.reason));
  }
}

void node::leave_fenced(const node_report& mine, time_point asked) {
  for (const auto id : mine.moved.fenced) {
    const auto peer = peers_.find(id);
    if (peer == peers_.end() || peer->second.since >= asked) continue;
    roster_.lost(id, clock().now());
    part(id, "it was fenced");
  }
}

void node::part(node_id peer, const std::string& why) {
  const auto known = peers_.extract(peer);
  log_warn("peer down", {{"peer", known.mapped().info.name}, {"reason", why}});
  demonitor(known.mapped().info.node.address());
  if (local_.messenger) send(local_.messenger, peer_down_atom_v, peer);
  if (local_.keeper) send(local_.keeper, peer_down_atom_v, peer);
  if (local_.gateway) send(local_.gateway, peer_down_atom_v, peer);
  for (const auto& worker : local_.prefill) send(worker, peer_down_atom_v, peer);
  for (const auto& worker : local_.decode) send(worker, peer_down_atom_v, peer);
  if (peer == conductor_node_) follow(conductor_actor{});
}

void node::complain(const std::string& about, const std::string& problem) {
  auto& latest = complaints_[about];
  if (latest == problem) return;
  latest = problem;
  log_warn(about, {{"problem", problem}});
}

}  // namespace mooncaf
