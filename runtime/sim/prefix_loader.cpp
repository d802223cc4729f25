#include "runtime/sim/prefix_loader.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/sched/layer_arrival.hpp"

namespace mooncaf::sim {

prefix_loader::prefix_loader(world& w, cluster& c)
    : w_(w), c_(c), policy_(w.options.prefetch), on_the_way_(w.layout.prefill()) {}

/// Until when the loading of so many blocks, begun at `since`, is waited for.
ticks prefix_loader::patience(std::uint32_t blocks, ticks since) const noexcept {
  const auto limit = policy_.limit(blocks * w_.options.hardware.block_tokens);
  return limit == duration::max() ? std::numeric_limits<ticks>::max() : since + limit.count();
}

/// @param held  its node's blocks of the prompt.
load_plan prefix_loader::plan(const request_state_record& r, const placement& where, const cache_hit& held) {
  const auto& machine = w_.options.hardware;
  const auto block_bytes = static_cast<double>(machine.block_bytes());
  const auto now = w_.time.now();
  load_question q;
  q.prompt_tokens = r.prompt_tokens;
  q.block_tokens = machine.block_tokens;
  q.threshold_tokens = policy_.threshold_tokens();
  q.device_blocks = c_.memories.on_device(r);
  q.dram_blocks = held.blocks - held.from_ssd;
  q.held_blocks = held.blocks;
  // A dead machine that the conductor still counts on does not answer.
  if (where.source && c_.machines.computes(w_.layout.machine_of(where.source)))
    q.remote_blocks = where.source_blocks;
  const auto disk = [&](std::uint32_t blocks) {
    return duration{std::max<ticks>(c_.links.disk_busy_until(r.prefill) - now, 0)} +
           from_seconds(blocks * block_bytes / machine.ssd_bytes_per_s);
  };
  if (w_.options.layerwise) q.disk_parts = machine.disk_parts();
  const auto link = [&](std::uint32_t blocks) {
    return c_.learned.estimate(r.prefill, w_.layout.machine_of(where.source), blocks * block_bytes);
  };
  q.ask(disk, link);
  return w_.decisions.run(
      journal::weigh_load{r.id, w_.time.clock(), q, c_.prefills.believed(r.prefill).state()});
}

/// When a request joins the queue if its prefix comes in parts beside its first step: as `layer_arrival`
/// says, and so late that the step, as long as the device's link at least, waits for none of them.
/// @param began  when its worker began to wait.
ticks prefix_loader::joins(const request_state_record& r, ticks began, const block_run& coming,
                           std::uint32_t parts) const {
  const auto cached = std::min(r.fetched_to * w_.options.hardware.block_tokens, r.prompt_tokens - 1);
  auto seconds = w_.prefill_costs.prefill(r.prompt_tokens, cached) / w_.layout.pipeline();
  if (const auto& tier = c_.tier(r.prefill)) seconds = tier->beside_loads(seconds, coming.blocks);
  const auto step = from_sec(seconds);
  const auto first = std::max(coming.begins, began), loading = std::max<ticks>(coming.ends - first, 0);
  layer_arrival arrival{parts, time_point{duration{began}}};
  for (std::uint32_t part = 1; part < parts; ++part) {
    const auto at = first + loading * part / parts;
    arrival.landed(part, time_point{duration{at}});
    if (arrival.may_begin(duration{step})) return std::max(at, coming.ends - step * (parts - 1) / parts);
  }
  return coming.ends;
}

bool prefix_loader::load(std::uint32_t slot, const placement& where) {
  auto& r = w_.requests[slot];
  auto& cache = c_.memories.of(r.prefill);
  const auto& o = w_.options;
  const auto now = w_.time.now();
  const auto held = cache.match(w_.reusable_keys(r));
  const auto loads = policy_.begins(c_.idle(r.prefill)) ? plan(r, where, held) : load_plan{};

  arriving_prefix a;
  a.slot = slot;
  a.stamp = request_table::stamp_of(r.id);
  if (loads.from_disk > 0) a.disk = c_.links.disk(r.prefill, loads.from_disk);
  const auto stop = patience(loads.from_disk, now);
  const auto hit = cache.pin(r.keys, held.blocks - held.from_ssd + a.disk.there(stop),
                             static_cast<std::uint64_t>(now), r.pins);
  a.disk.blocks = r.disk_blocks = hit.from_ssd;
  a.disk.ends = std::min(a.disk.ends, stop);
  if (hit.from_ssd > 0) c_.links.read_disk(r.prefill, hit.from_ssd);
  r.local_blocks = r.fetched_to = hit.blocks;

  auto read = std::max(a.disk.ends, now);  // reads are complete before fetched blocks come in
  auto ready = read;
  if (hit.from_ssd > 0 && loads.from_remote == 0 && o.layerwise &&
      policy_.by_layers(hit.from_ssd * o.hardware.block_tokens, duration{read - now}))
    ready = joins(r, now, {a.disk.begins, read, hit.from_ssd}, o.hardware.disk_parts());
  if (loads.from_remote > 0 && where.source_blocks > hit.blocks) {
    fetch(r, where, read, a);
    const auto began = read;
    if (r.source != 0 && where.source_tier == storage_tier::ssd)
      read = std::max(read, c_.links.disk_busy_until(r.source - 1));
    ready = std::max(read, a.link.ends);
    if (a.by_layers)
      ready = joins(r, began, {a.link.begins, ready, a.link.blocks}, pieces_of(a.link.blocks, true));
  }
  // What another node sends comes behind all that is here, even if it takes no time.
  if (ready <= now && a.link.blocks == 0) return true;
  r.loading = true;
  c_.turns.loads(r, true);
  if (o.prefetch.mode == prefetch_mode::best_effort) on_the_way_[r.prefill].push_back(std::move(a));
  w_.time.add(ready, event_kind::prefill_ready, slot, request_table::stamp_of(r.id));
  return false;
}

/// Brings the prefix that other nodes hold. The time that the worker expects of the source alone decides
/// whether it comes beside the computation.
/// @param begin  when it may.
void prefix_loader::fetch(request_state_record& r, const placement& where, ticks begin, arriving_prefix& a) {
  const auto source = w_.layout.machine_of(where.source);
  const auto& machine = w_.options.hardware;
  const auto block_bytes = static_cast<double>(machine.block_bytes());
  const bool from_disk = where.source_tier == storage_tier::ssd;
  auto& run = a.link;
  run.blocks = where.source_blocks - r.local_blocks;
  begin += c_.memories.bring_down(
      source, std::span{r.keys}.first(std::min<std::size_t>(where.source_blocks, r.keys.size())));
  const auto read = from_disk ? c_.links.disk(source, run.blocks).ends : begin;
  const auto coming = c_.learned.estimate(r.prefill, source, block_bytes * run.blocks);
  const auto expected = std::max(w_.time.now() + coming.count(), read);
  a.by_layers = w_.options.layerwise &&
                policy_.by_layers(run.blocks * machine.block_tokens, duration{expected - begin});
  a.shares = share_out(r, where, run.blocks, pieces_of(run.blocks, a.by_layers), a.by_layers, begin);
  const auto path = c_.links.path(a.shares, r.prefill, begin);
  run.begins = path.begins;
  run.ends = std::max(path.ends(), read);
  const auto stop = patience(run.blocks, begin);
  const auto all = run.blocks;
  // Layers are of use all together.
  run.blocks = a.by_layers && run.ends > stop ? 0 : run.there(stop);
  run.ends = std::min(run.ends, stop);
  if (run.blocks == 0) {
    a.by_layers = false;
    return;
  }
  for (auto& s : a.shares) s.bytes *= static_cast<double>(run.blocks) / all;

  r.source = source + 1;
  r.fetched_to = r.local_blocks + run.blocks;
  for (const auto& s : a.shares)
    c_.memories.of(s.from).sent(r.keys, r.local_blocks, r.fetched_to,
                                static_cast<std::uint64_t>(w_.time.now()));
  if (from_disk) c_.links.read_disk(source, run.blocks);
  const auto there = c_.links.transfer(a.shares, r.prefill, begin);
  for (const auto& s : a.shares)
    a.learning.push_back(c_.learned.moves(r.prefill, link_flow::in, s.from, s.bytes, begin, there));
  c_.memories.of(r.prefill).prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++w_.out.fetches;
  w_.out.fetches_shared += a.shares.size() > 1;
  w_.out.bytes_fetched += block_bytes * run.blocks;
}

std::uint32_t prefix_loader::pieces_of(std::uint32_t blocks, bool by_layers) const noexcept {
  const auto in_steps = [](std::uint32_t all, std::uint32_t step) { return (all + step - 1) / step; };
  if (!by_layers) return in_steps(blocks, sizes_.run_blocks);
  const auto layers = w_.prefill_costs.layers();
  return in_steps(layers, sizes_.layers_at_once(layers, w_.options.hardware.block_bytes() / layers));
}

/// Which bytes of a fetch come from its source, and which from each node beside it, piece by piece as a
/// messenger asks for them. A node that has the leading blocks alone sends runs of them, and no layers.
std::vector<link_share> prefix_loader::share_out(const request_state_record& r, const placement& where,
                                                 std::uint32_t blocks, std::uint32_t pieces, bool by_layers,
                                                 ticks begin) {
  const auto bytes = static_cast<double>(w_.options.hardware.block_bytes()) * blocks;
  if (where.beside.empty()) return {{w_.layout.machine_of(where.source), bytes}};
  struct sender {
    node_id node;
    link_share share;
    ticks free = 0;  ///< from when on it sends the next piece
  };
  std::vector<sender> senders;
  piece_book book{pieces, sizes_.at_once};
  const auto add = [&](node_id node, std::uint32_t can_send, ticks from) {
    const auto machine = w_.layout.machine_of(node);
    senders.push_back({node, {machine, 0}, c_.links.sends_from(machine, from)});
    book.add_sender(node, can_send);
  };
  add(where.source, pieces, begin);
  for (const auto& other : where.beside) {
    const auto machine = w_.layout.machine_of(other.node);
    const auto held = std::min(std::max(other.blocks, r.local_blocks) - r.local_blocks, blocks);
    const auto some = by_layers ? 0 : held / sizes_.run_blocks;
    const auto can_send = held == blocks ? pieces : some;
    if (can_send == 0 || !c_.machines.computes(machine)) continue;
    const auto there = std::span{r.keys}.first(std::min<std::size_t>(other.blocks, r.keys.size()));
    add(other.node, can_send, begin + c_.memories.bring_down(machine, there));
  }
  std::vector<std::pair<ticks, piece_book::share>> under_way;
  for (;;) {
    while (const auto next = book.next()) {
      auto& s = *std::ranges::find(senders, next->from, &sender::node);
      s.free += from_sec(bytes / pieces / c_.links.speed(s.share.from));
      s.share.bytes += bytes / pieces;
      under_way.emplace_back(s.free, *next);
    }
    if (under_way.empty()) break;
    const auto first = std::ranges::min_element(under_way, {}, &std::pair<ticks, piece_book::share>::first);
    book.arrived(first->second);
    under_way.erase(first);
  }
  std::vector<link_share> out;
  for (const auto& s : senders) {
    if (s.share.bytes > 0) out.push_back(s.share);
  }
  return out;
}

void prefix_loader::arrived(std::uint32_t slot) {
  auto& r = w_.requests[slot];
  r.source = 0;
  if (std::exchange(r.loading, false))
    std::erase_if(on_the_way_[r.prefill], [slot](const arriving_prefix& a) { return a.slot == slot; });
}

std::vector<std::uint32_t> prefix_loader::stop_if_idle(std::uint32_t instance) {
  if (on_the_way_[instance].empty() || !c_.idle(instance)) return {};
  std::vector<std::uint32_t> slots;
  for (const auto& a : std::exchange(on_the_way_[instance], {})) {
    if (!w_.requests.is_current(a.slot, a.stamp) || !w_.requests[a.slot].loading) continue;
    take_back(a);
    slots.push_back(a.slot);
  }
  return slots;
}

/// Blocks that have not come are neither read nor sent.
void prefix_loader::take_back(const arriving_prefix& a) {
  auto& r = w_.requests[a.slot];
  const auto now = w_.time.now();
  const auto fetched = r.fetched_to - r.local_blocks;
  const auto came = std::min(a.link.there(now), fetched);
  const auto unread = a.disk.blocks - a.disk.there(now);
  r.local_blocks -= unread;
  r.disk_blocks -= unread;
  r.fetched_to = r.local_blocks + came;
  if (fetched == 0) return;
  const double unsent = static_cast<double>(fetched - came) / fetched;
  for (const auto of : a.learning) c_.learned.broke_off(of);
  for (const auto& s : a.shares) {
    c_.links.take_back({s.from, s.bytes * unsent}, r.prefill);
    w_.out.bytes_fetched -= s.bytes * unsent;
  }
}

}  // namespace mooncaf::sim
