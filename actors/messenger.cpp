#include "actors/messenger.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"
#include "actors/log.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto pin_limit = std::chrono::seconds(10);  ///< the source may read SSD first
constexpr auto fence_again = std::chrono::seconds(1);
constexpr auto read_limit = std::chrono::seconds(20);

std::int64_t mean_ns(const latency_summary& l) {
  return l.count > 0 ? static_cast<std::int64_t>(l.sum_seconds * 1e9 / static_cast<double>(l.count)) : 0;
}

path_status as_message(const path_stats& s) {
  path_status out;
  out.peer = s.peer;
  out.path = std::string{to_string(s.path)};
  out.bytes = s.bytes();
  out.transfers = s.transfers;
  out.retries = s.retries;
  out.checksum_failures = s.checksum_failures;
  out.control_messages = s.control_messages;
  out.slices = s.slices;
  out.failures = s.failures;
  out.latency_ns = mean_ns(s.latency);
  return out;
}

rail_status as_message(const rail_stats& s) {
  rail_status out;
  out.name = s.name;
  out.address = s.address;
  out.up = s.up;
  out.bytes = s.bytes_written + s.bytes_read;
  out.slices = s.slices;
  out.retries = s.retries;
  out.failures = s.failures;
  out.latency_ns = mean_ns(s.latency);
  out.last_error = s.last_error;
  return out;
}

}  // namespace

messenger::messenger(caf::actor_config& config, context_ptr context, executor_actor blocking)
    : messenger_actor::base(config), context_(std::move(context)), blocking_(std::move(blocking)) {}

messenger_actor::behavior_type messenger::make_behavior() {
  outlive_stray_errors(*this);
  guard_.install();
  return {
      [this](peer_up_atom, const node_info& peer) { up(peer); },
      [this](peer_down_atom, node_id peer) { down(peer); },
      [this](fetch_atom, const fetch_plan& plan) { return fetch(plan); },
      [this](fence_atom, node_id peer, std::uint64_t fences) { return fence(peer, fences); },
      [this](read_atom, std::uint64_t ticket, const error& failure) {
        if (auto read = reading_.extract(ticket)) read.mapped()(failure);
      },
      [this](status_atom) {
        transfer_report out;
        for (const auto& s : context_->plane->stats()) out.paths.push_back(as_message(s));
        auto rails = context_->plane->rails();
        for (const auto& s : rails) out.rails.push_back(as_message(s));
        tell_of_rails(std::move(rails));
        out.fenced = fenced_;
        return out;
      },
      [this](tick_atom, node_id peer) { shut(peer); },
  };
}

void messenger::on_exit() {
  guard_.forget_all();
  shards_.clear();
  shutting_.clear();
  reading_.clear();
  blocking_ = nullptr;
}

void messenger::up(const node_info& peer) {
  std::erase(fenced_, peer.id);
  if (const auto i = shutting_.find(peer.id); i != shutting_.end()) {
    i->second.next = peer;
  } else {
    admit(peer);
  }
}

void messenger::admit(const node_info& peer) {
  const auto announced = decode_announcement(peer.data_plane);
  if (!announced) return;
  if (context_->plane->add_peer(announced->address, announced->regions) && peer.shard) {
    shards_[peer.id] = caf::actor_cast<cache_shard_actor>(peer.shard);
  }
}

void messenger::down(node_id peer) {
  shards_.erase(peer);
  std::erase(fenced_, peer);
  context_->plane->remove_peer(peer);
  if (const auto i = shutting_.find(peer); i != shutting_.end()) {
    i->second.next.reset();
    return;
  }
  // What it still had under way must not land among what it writes once it is back.
  shutting_.try_emplace(peer);
  shut(peer);
}

caf::result<void> messenger::fence(node_id peer, std::uint64_t fences) {
  if (context_->plane->fences_of(peer) > fences) return caf::unit;
  const auto [i, first] = shutting_.try_emplace(peer);
  auto promise = make_response_promise();
  i->second.waiting.push_back(promise);
  if (first) {
    shards_.erase(peer);
    fenced_.push_back(peer);
    shut(peer);
  }
  return promise;
}

void messenger::shut(node_id peer) {
  auto outcome = std::make_shared<result<void>>();
  auto task = make_task([plane = context_->plane, peer, outcome] { *outcome = plane->close_peer(peer); });
  request(blocking_, caf::infinite, run_atom_v, std::move(task)).then([this, peer, outcome](const task_ptr&) {
    if (*outcome) return closed(peer);
    // It maps our memory, and neither stopped nor died: what it knew must not be reused yet.
    log_warn("fence", {{"peer", to_string(peer)}, {"problem", to_string(outcome->error())}});
    delayed_send(this, fence_again, tick_atom_v, peer);
  });
}

void messenger::closed(node_id peer) {
  auto gone = shutting_.extract(peer);
  for (auto& promise : gone.mapped().waiting) promise.deliver(caf::unit);
  if (gone.mapped().next) admit(*gone.mapped().next);
}

void messenger::tell_of_rails(std::vector<rail_stats> now) {
  for (std::size_t i = 0; i < seen_rails_.size() && i < now.size(); ++i) {
    const auto& r = now[i];
    if (r.failures > seen_rails_[i].failures)
      log_warn("rdma rail broke",
               {{"rail", r.name}, {"times", std::to_string(r.failures)}, {"problem", r.last_error}});
    if (r.up != seen_rails_[i].up)
      log_warn(r.up ? "rdma rail is up" : "rdma rail is down", {{"rail", r.name}});
  }
  seen_rails_ = std::move(now);
}

caf::result<remote_blocks> messenger::fetch(const fetch_plan& plan) {
  const auto i = shards_.find(plan.source);
  if (i == shards_.end())
    return to_caf(error{ec::unavailable, "node " + to_string(plan.source) + " is not a peer"});
  auto promise = make_response_promise();
  guard_.request(i->second, pin_limit, pin_remote_atom_v, plan.id.reader(), plan.keys)
      .then([this, plan, promise](const remote_blocks& held) { read(plan, held, promise); },
            [promise](const error& e) mutable { promise.deliver(to_caf(e)); });
  return promise;
}

void messenger::read(const fetch_plan& plan, remote_blocks held, caf::response_promise reply) {
  const auto source = shards_.find(plan.source);
  const auto holder = source == shards_.end() ? cache_shard_actor{} : source->second;
  const auto let_go = [this, holder, reader = plan.id.reader()] {
    if (holder) send(holder, release_atom_v, reader);
  };
  if (held.blocks.size() <= plan.skip) {
    let_go();
    return reply.deliver(remote_blocks{held.region, {}});
  }
  held.blocks.erase(held.blocks.begin(), held.blocks.begin() + plan.skip);
  const auto bytes = context_->layout.block_bytes();
  transfer order;
  order.id = transfer_id{context_->transfer_ids->fetch_add(1)};
  order.peer = plan.source;
  order.op = transfer_op::read;
  order.tag.request = request_id{plan.id.reader()};
  order.deadline = clock_type::now() + read_limit;
  for (std::size_t i = 0; i < held.blocks.size(); ++i) {
    const auto& block = held.blocks[i];
    order.slices.push_back({{context_->region.id, context_->slot_offset(plan.slots[i]), bytes},
                            {held.region, block.offset, bytes},
                            block.checksum});
  }
  // The data plane completes on a thread of its own; the answer is given in our mailbox.
  const messenger_actor self{this};
  const auto ticket = next_ticket_++;
  reading_.emplace(ticket, [let_go, reply, held](const error& failure) mutable {
    let_go();
    if (failure.code == ec::none) {
      reply.deliver(std::move(held));
    } else {
      reply.deliver(to_caf(failure));
    }
  });
  context_->plane->submit(std::move(order), [self, ticket](const completion& end) {
    caf::anon_send(self, read_atom_v, ticket, end.outcome ? error{} : end.outcome.error());
  });
}

}  // namespace mooncaf
