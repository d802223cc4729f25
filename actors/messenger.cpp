#include "actors/messenger.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"
#include "actors/log.hpp"
#include "actors/stray_errors.hpp"
#include "runtime/sched/link_book.hpp"

namespace mooncaf {

namespace {

constexpr auto pin_limit = std::chrono::seconds(10);  ///< the source may read SSD first
constexpr auto fence_again = std::chrono::seconds(1);
constexpr auto read_limit = std::chrono::seconds(20);
/// Blocks of a run: large enough to fill a link, few enough that a fetch that is stopped wasted little.
/// HiCache has 128 pages of 64 tokens.
constexpr std::uint32_t run_blocks = 32;
/// Runs of a sender at once: one is on the link while the next one is asked for.
constexpr std::size_t runs_under_way = 2;
/// What somebody beside the source reads of its SSD for a fetch, as time: nothing.
constexpr std::int64_t memory_alone_ns = 1;

/// Layers of one piece: as many as make slices that paths move at full speed (tests/bench/README.md: from
/// 160 KiB up), and no more, since computing waits for the first. All of them where a page has its layers
/// token by token.
std::uint32_t layers_at_once(const kv_layout& layout) {
  if (layout.pages == page_order::page_first) return layout.n_layers;
  constexpr std::size_t full_speed = 160 * KiB;
  const auto layers = std::max<std::size_t>(1, full_speed / layout.layer_bytes());
  return static_cast<std::uint32_t>(std::min<std::size_t>(layers, layout.n_layers));
}

/// Without the leading blocks that are there already.
void skip_blocks(remote_blocks& held, std::uint32_t skip, std::size_t most) {
  held.blocks.resize(std::min(held.blocks.size(), most));
  held.blocks.erase(
      held.blocks.begin(),
      held.blocks.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(skip, held.blocks.size())));
}

/// Leaves of `held` what is to the byte what the source has: blocks of one prefix that different devices
/// computed may differ in a last digit, and then in their checksums.
void keep_equal(remote_blocks& held, const remote_blocks& source) {
  const auto equal = [](const remote_block& a, const remote_block& b) {
    return a.key == b.key && a.checksum == b.checksum;
  };
  const auto differs = std::ranges::mismatch(held.blocks, source.blocks, equal).in1;
  held.blocks.erase(differs, held.blocks.end());
}

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
      [this](fetch_atom, const fetch_plan& plan) { return fetch(plan, nullptr); },
      [this](load_atom, const fetch_plan& plan, const prefix_load_ptr& load) { return fetch(plan, load); },
      [this](stop_atom, const attempt_id& id) { stop(id); },
      [this](fence_atom, node_id peer, std::uint64_t fences) { return fence(peer, fences); },
      [this](read_atom, std::uint64_t ticket, const error& failure) {
        if (auto piece = pieces_.extract(ticket)) piece.mapped()(failure);
      },
      [this](status_atom) { return report(); },
      [this](tick_atom, node_id peer) { shut(peer); },
  };
}

void messenger::on_exit() {
  guard_.forget_all();
  shards_.clear();
  shutting_.clear();
  pieces_.clear();
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
  context_->links->forget(peer);
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

caf::result<remote_blocks> messenger::fetch(const fetch_plan& plan, prefix_load_ptr load) {
  const auto i = shards_.find(plan.source);
  if (i == shards_.end())
    return to_caf(error{ec::unavailable, "node " + to_string(plan.source) + " is not a peer"});
  auto work = std::make_shared<reading>();
  work->plan = plan;
  work->load = std::move(load);
  work->reply = make_response_promise();
  reading_[plan.id.reader()] = work;
  guard_.request(i->second, pin_limit, pin_remote_atom_v, plan.id.reader(), plan.keys, plan.worth_ns)
      .then([this, work](const remote_blocks& held) { begin(work, held); },
            [this, work](const error& e) {
              work->failure = e;
              finish(work);
            });
  pin_beside(work);
  return work->reply;
}

void messenger::pin_beside(const reading_ptr& work) {
  const auto& plan = work->plan;
  for (const auto& other : plan.beside) {
    const auto shard = shards_.find(other.node);
    if (shard == shards_.end() || other.blocks <= plan.skip) continue;
    block_keys_t keys(plan.keys.begin(),
                      plan.keys.begin() + std::min<std::ptrdiff_t>(other.blocks, std::ssize(plan.keys)));
    guard_
        .request(shard->second, pin_limit, pin_remote_atom_v, plan.id.reader(), std::move(keys),
                 memory_alone_ns)
        .then(
            [this, work, node = other.node](const remote_blocks& held) {
              join(work, {node, held});
            },
            [](const error&) {});
  }
}

void messenger::join(const reading_ptr& work, sender other) {
  const auto i = reading_.find(work->plan.id.reader());
  if (i == reading_.end() || i->second != work) return;
  skip_blocks(other.held, work->plan.skip, work->plan.skip + work->plan.slots.size());
  if (work->begun) keep_equal(other.held, work->wanted);
  work->senders.push_back(std::move(other));
  if (work->begun) go_on(work);
}

void messenger::begin(const reading_ptr& work, remote_blocks held) {
  if (work->stopped) return;
  work->begun = true;
  const auto& plan = work->plan;
  skip_blocks(held, plan.skip, plan.skip + plan.slots.size());
  work->wanted = std::move(held);
  auto& blocks = work->wanted.blocks;
  const auto path = static_cast<std::uint8_t>(context_->plane->preferred_path(plan.source));
  const auto bytes = blocks.size() * context_->layout.block_bytes();
  // Blocks that come in layers are of use all together, so fewer than were asked for are not begun.
  const bool too_few = work->load && blocks.size() < plan.slots.size();
  const bool too_slow =
      plan.worth_ns > 0 &&
      context_->links->estimate(plan.source, path, bytes, clock_type::now()) > duration{plan.worth_ns};
  if (too_few || too_slow) blocks.clear();
  for (auto& other : work->senders) keep_equal(other.held, work->wanted);
  work->senders.insert(work->senders.begin(), {plan.source, work->wanted});
  work->end = pieces(*work);
  work->arrived.resize(work->end);
  go_on(work);
}

std::uint32_t messenger::pieces(const reading& work) const {
  const auto blocks = static_cast<std::uint32_t>(work.wanted.blocks.size());
  if (blocks == 0) return 0;
  if (!work.load) return (blocks + run_blocks - 1) / run_blocks;
  const auto group = layers_at_once(context_->layout);
  return (context_->layout.n_layers + group - 1) / group;
}

std::vector<slice_pair> messenger::slices_of(const reading& work, std::uint32_t piece,
                                             const remote_blocks& there) const {
  const auto& layout = context_->layout;
  const auto shape = layout.pieces();
  std::uint64_t at = 0, length = layout.block_bytes();
  std::uint32_t first = 0;
  const auto last = blocks_until(work, piece);
  if (work.load) {
    const auto group = layers_at_once(layout);
    at = std::uint64_t{piece} * group * layout.layer_bytes();
    length = std::min<std::uint64_t>(group * layout.layer_bytes(), layout.block_bytes() - at);
  } else {
    first = piece * run_blocks;
  }
  std::vector<slice_pair> out;
  out.reserve((last - first) * shape.count);
  for (auto i = first; i < last; ++i) {
    const auto& block = there.blocks[i];
    const auto here = context_->slot_offset(work.plan.slots[i]);
    shape.each(at, length, [&](std::uint64_t from, std::uint64_t bytes) {
      slice_pair pair{
          {context_->region.id, here + from, bytes}, {there.region, block.offset + from, bytes}, {}};
      if (!work.load && shape.count == 1) pair.expected_checksum = block.checksum;
      out.push_back(pair);
    });
  }
  return out;
}

std::uint32_t messenger::blocks_until(const reading& work, std::uint32_t piece) {
  const auto blocks = static_cast<std::uint32_t>(work.wanted.blocks.size());
  return work.load ? blocks : std::min(blocks, (piece + 1) * run_blocks);
}

messenger::sender* messenger::sender_for(reading& work, std::uint32_t piece) {
  // Layers are wanted in order and all of them; runs may be stopped, so few are begun ahead. So are layers
  // where others may take some.
  const bool alone = work.plan.beside.empty();
  const auto most = work.load && alone ? work.arrived.size() : runs_under_way;
  const auto needed = blocks_until(work, piece);
  sender* best = nullptr;
  for (auto& s : work.senders) {
    if (s.held.blocks.size() < needed || s.under_way >= most) continue;
    if (best == nullptr || s.under_way < best->under_way) best = &s;
  }
  return best;
}

bool messenger::can_come(const reading& work, std::uint32_t piece) {
  const auto needed = blocks_until(work, piece);
  return std::ranges::any_of(work.senders, [&](const sender& s) { return s.held.blocks.size() >= needed; });
}

void messenger::go_on(const reading_ptr& work) {
  while (!work->stopped) {
    const bool repeats = !work->again.empty();
    const auto piece = repeats ? *work->again.begin() : work->submitted;
    if (piece >= work->end) break;
    auto* const from = sender_for(*work, piece);
    if (from == nullptr) {
      if (can_come(*work, piece)) break;
      work->end = piece;  // what is behind it is no prefix
      if (work->load) work->load->give_up();
      break;
    }
    if (repeats) work->again.erase(piece);
    else ++work->submitted;
    submit(work, piece, *from);
  }
  if (work->under_way.empty()) finish(work);
}

void messenger::submit(const reading_ptr& work, std::uint32_t piece, sender& from) {
  transfer order;
  order.id = transfer_id{context_->transfer_ids->fetch_add(1)};
  order.peer = from.node;
  order.op = transfer_op::read;
  order.tag.request = request_id{work->plan.id.reader()};
  order.deadline = clock_type::now() + read_limit;
  order.slices = slices_of(*work, piece, from.held);
  work->under_way.push_back(order.id);
  ++from.under_way;
  // The data plane completes on a thread of its own; what follows is done in our mailbox.
  const messenger_actor self{this};
  const auto ticket = next_ticket_++;
  const auto id = order.id;
  const auto peer = order.peer;
  pieces_.emplace(ticket, [this, work, piece, id, peer](const error& failure) {
    arrived(work, piece, id, peer, failure);
  });
  const auto bytes = order.size_bytes();
  const auto ahead = context_->links->began(peer, bytes);
  const auto group = layers_at_once(context_->layout);
  context_->plane->submit(
      std::move(order), [self, ticket, peer, bytes, ahead, piece, group, links = context_->links,
                         load = work->load](const completion& end) {
        links->ended(peer, static_cast<std::uint8_t>(end.path), bytes, ahead, from_seconds(end.seconds),
                     end.outcome.has_value(), clock_type::now());
        // Whoever computes with it waits on a thread, not in a mailbox.
        if (load && end.outcome) load->landed(piece * group, group);
        caf::anon_send(self, read_atom_v, ticket, end.outcome ? error{} : end.outcome.error());
      });
}

void messenger::arrived(const reading_ptr& work, std::uint32_t piece, transfer_id id, node_id from,
                        const error& failure) {
  std::erase(work->under_way, id);
  const auto sent_by = std::ranges::find(work->senders, from, &sender::node);
  --sent_by->under_way;
  if (failure.code == ec::none) {
    work->arrived[piece] = true;
  } else {
    work->failure = failure;
    work->again.insert(piece);  // somebody else may have it
    sent_by->held.blocks.clear();
  }
  go_on(work);
}

void messenger::stop(const attempt_id& id) {
  const auto i = reading_.find(id.reader());
  if (i == reading_.end()) return;
  const auto work = i->second;
  work->stopped = true;
  for (const auto transfer : work->under_way) context_->plane->cancel(transfer);
  // The source may read its SSD for seconds before it answers. It is told, and nobody waits for it.
  if (!work->begun) finish(work);
}

void messenger::finish(const reading_ptr& work) {
  const auto i = reading_.find(work->plan.id.reader());
  if (i == reading_.end() || i->second != work) return;
  reading_.erase(i);
  if (work->load) return finish_load(work);
  let_go(*work);
  const auto whole =
      static_cast<std::size_t>(std::ranges::find(work->arrived, false) - work->arrived.begin());
  if (whole == 0 && work->failure.code != ec::none && !work->stopped)
    return work->reply.deliver(to_caf(work->failure));
  auto& held = work->wanted;
  held.blocks.resize(std::min(held.blocks.size(), whole * run_blocks));
  // What came in one piece was verified as it came.
  if (context_->layout.pieces().count > 1 && whole > 0) return verify(work);
  work->reply.deliver(std::move(held));
}

void messenger::finish_load(const reading_ptr& work) {
  let_go(*work);
  const bool complete = std::ranges::find(work->arrived, false) == work->arrived.end();
  if (complete && !work->wanted.blocks.empty()) return verify(work);
  work->load->give_up();
  work->reply.deliver(remote_blocks{work->wanted.region, {}});
}

/// Answers with the leading blocks that are what they should be; of those that are computed with already with
/// all of them or none.
void messenger::verify(const reading_ptr& work) {
  auto good = std::make_shared<std::size_t>(0);
  auto task = make_task([context = context_, work, good] {
    const auto is_good = [&](std::size_t i) {
      return checksum64(context->slot(work->plan.slots[i]), context->layout.pieces()) ==
             work->wanted.blocks[i].checksum;
    };
    while (*good < work->wanted.blocks.size() && is_good(*good)) ++*good;
  });
  request(blocking_, caf::infinite, run_atom_v, std::move(task)).then([work, good](const task_ptr&) {
    const bool all = *good == work->wanted.blocks.size();
    work->wanted.blocks.resize(work->load && !all ? 0 : *good);
    work->reply.deliver(std::move(work->wanted));
  });
}

void messenger::let_go(const reading& work) {
  const auto tell = [&](node_id node) {
    const auto shard = shards_.find(node);
    if (shard != shards_.end()) send(shard->second, release_atom_v, work.plan.id.reader());
  };
  tell(work.plan.source);
  for (const auto& other : work.plan.beside) tell(other.node);
}

transfer_report messenger::report() {
  transfer_report out;
  const auto learned = context_->links->view(clock_type::now());
  for (const auto& s : context_->plane->stats()) {
    auto path = as_message(s);
    const auto price = std::ranges::find_if(learned, [&](const link_view& v) {
      return v.peer == s.peer && v.path == static_cast<std::uint8_t>(s.path);
    });
    if (price != learned.end()) {
      path.learned_bytes_per_s = static_cast<std::uint64_t>(price->bytes_per_s);
      path.learned_latency_ns = price->latency.count();
      path.preferred = context_->plane->preferred_path(s.peer) == s.path;
    }
    out.paths.push_back(std::move(path));
  }
  auto rails = context_->plane->rails();
  for (const auto& s : rails) out.rails.push_back(as_message(s));
  tell_of_rails(std::move(rails));
  out.fenced = fenced_;
  return out;
}

}  // namespace mooncaf
