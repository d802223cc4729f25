#include "runtime/sim/simulation.hpp"

#include <algorithm>
#include <utility>

#include "runtime/sim/machine_event.hpp"

namespace mooncaf::sim {

namespace {

constexpr bool is_about_cluster(event_kind k) noexcept {
  return k == event_kind::disturbance || k == event_kind::machine || k == event_kind::elastic ||
         k == event_kind::shadow || k == event_kind::round;
}

}  // namespace

simulation::simulation(const simulation_options& options)
    : world_(options),
      arrivals_(world_),
      attempts_(world_, arrivals_),
      cluster_(world_, attempts_),
      loader_(world_, cluster_),
      copier_(world_, cluster_),
      rounds_(world_, cluster_, attempts_, copier_),
      disturber_(world_, cluster_, attempts_),
      scaling_(world_, cluster_),
      rules_(world_),
      sampler_(world_, cluster_) {}

// ---- the event loop ----

result<void> simulation::begin(trace_source& source) {
  if (const auto ok = arrivals_.begin(source); !ok) return ok;
  auto& time = world_.time;
  if (!time.empty()) time.advance_to(time.next_at());
  began_ = time.now();
  disturber_.begin();
  cluster_.machines.begin_paying();
  scaling_.begin();
  rules_.begin();
  sampler_.begin();
  time.add(began_ + world_.out.history.interval(), event_kind::sample, 0);
  return {};
}

result<outcome> simulation::run(trace_source& source, const std::function<void(std::uint64_t)>& progress) {
  constexpr std::uint64_t progress_every = 4096;
  if (const auto ok = begin(source); !ok) return fail(ok.error());
  auto& time = world_.time;
  while (!time.empty() && !hopeless()) {
    const auto e = time.take();
    if (is_over() && is_about_cluster(e.kind)) continue;  // concerns no request any more
    time.advance_to(e.at);
    ++world_.out.events;
    const auto before = arrivals_.count();
    if (const auto ok = play(e); !ok) return fail(ok.error());
    const auto arrived = arrivals_.count();
    if (progress && arrived > before && arrived % progress_every == 0) progress(arrived);
  }
  auto& out = world_.out;
  out.span_s = std::max(out.span_s, out.last_arrival_s);
  sampler_.sum_up();
  return std::move(out);
}

bool simulation::is_over() const noexcept { return !arrivals_.go_on() && live_requests() == 0; }

bool simulation::hopeless() const noexcept {
  const auto limit = world_.options.give_up_after;
  return limit > 0 && attempts_.missed() > limit;
}

result<void> simulation::play(const event& e) {
  auto& time = world_.time;
  cluster_.learned.settle();
  if (e.kind == event_kind::arrival) return arrival(e);
  if (e.kind == event_kind::sample) {
    const bool over = is_over();
    sampler_.sample(arrivals_.go_on());
    if (!time.empty() && !over) time.add(time.now() + world_.out.history.interval(), event_kind::sample, 0);
    return {};
  }
  if (e.kind == event_kind::shadow && !rules_.look()) return {};
  dispatch(e);
  act();
  world_.out.span_s = to_sec(time.now() - began_);
  return {};
}

result<void> simulation::arrival(const event& e) {
  if (arrivals_.is_void(e)) return {};
  const auto comes = arrivals_.comes();
  if (!comes) return fail(comes.error());
  if (*comes) {
    rounds_.wake();
    attempts_.ask(arrivals_.open());
    act();
    world_.out.last_arrival_s = to_sec(world_.time.now() - began_);
  }
  return arrivals_.expect();
}

void simulation::dispatch(const event& e) {
  const auto& requests = world_.requests;
  switch (e.kind) {
    case event_kind::prefill_ready:
      // Void if the request has joined the queue already, without the rest of its prefix.
      if (requests.is_current(e.target, e.stamp) && requests[e.target].loading) enter_prefill(e.target);
      return;
    case event_kind::prefill_free:
      if (!cluster_.prefills.is_current(e)) return;
      cluster_.prefills.first_stage_free(e.target);
      return start_prefill(e.target);
    case event_kind::prefill_exit:
      if (cluster_.prefills.is_current(e)) prefill_exit(e.target);
      return;
    case event_kind::kv_arrived:
      if (requests.is_current(e.target, e.stamp)) cluster_.kv_arrived(e.target);
      return;
    case event_kind::decode_turn:
      return cluster_.decode_turn(e.target, e.stamp);
    case event_kind::copy_arrived:
      return copier_.arrived(e.target);
    case event_kind::coupled_turn:
      return coupled_turn(e.target, e.stamp);
    case event_kind::disturbance:
      disturber_.happen(e.target, e.stamp);
      return attempts_.look_for_room();
    case event_kind::machine:
      happen_to_machine(e.target, e.stamp);
      return attempts_.look_for_room();
    case event_kind::elastic:
      return scaling_.decide();
    case event_kind::retry:
      if (requests.is_current(e.target, e.stamp)) attempts_.ask(e.target);
      return;
    case event_kind::round:
      return rounds_.make(e.stamp);
    case event_kind::arrival:
    case event_kind::sample:
    case event_kind::shadow:
      return;
  }
}

void simulation::happen_to_machine(std::uint32_t machine, std::uint32_t stamp) {
  switch (event_in(stamp)) {
    case machine_event::dies:
      return disturber_.die(line_in(stamp), machine);
    case machine_event::noticed:
      return disturber_.noticed(machine);
    case machine_event::returns:
      return disturber_.returns(line_in(stamp), machine);
    case machine_event::serves:
      return cluster_.machines.serve(machine);
    case machine_event::drains:
      return scaling_.look_at_leaving(machine);
  }
}

// ---- the way of a request ----

/// Prompts whose turn it is go on before a message about a new one could be here.
void simulation::act() {
  for (;;) {
    const auto ready = cluster_.turns.take_ready();
    for (const auto& [slot, where] : ready) begin_load(slot, where);
    if (!ready.empty()) continue;
    const auto decided = attempts_.take_decisions();
    if (decided.empty()) return;
    for (const auto& d : decided) act_on(d);
    // A worker has all of these prompts before its shard tells it of the first.
    for (const auto& [slot, where] : std::exchange(arriving_, {})) begin_load(slot, where);
  }
}

void simulation::act_on(const decision& d) {
  const auto slot = request_table::slot_of(d.id);
  if (d.outcome) place(slot, *d.outcome);
  else if (d.outcome.error().cause.code == ec::unavailable) attempts_.unplaced(slot, d.outcome.error());
  else attempts_.refuse(slot, d.outcome.error());
}

void simulation::place(std::uint32_t slot, const placement& where) {
  auto& r = world_.requests[slot];
  rounds_.wake();
  r.placed = true;
  r.check_at_decode = checks_at_decode(world_.conductor.rule().policy);
  r.prefill = world_.layout.prefill_of(where.prefill);
  r.decode = world_.layout.decode_of(where.decode);
  // Of a request that has waited for longer than its SLO no worker is told how late it is.
  r.due = std::max(r.arrival + from_sec(world_.options.ttft_slo_s), world_.time.now());
  if (!cluster_.turns.comes(slot, where)) arriving_.push_back({slot, where});
}

void simulation::begin_load(std::uint32_t slot, const placement& where) {
  if (loader_.load(slot, where)) enter_prefill(slot);
}

void simulation::enter_prefill(std::uint32_t slot) {
  auto& r = world_.requests[slot];
  loader_.arrived(slot);
  auto& memories = cluster_.memories;
  const auto here = memories.adopt_from_device(r);
  r.cached_tokens = r.computed = std::min(here * world_.options.hardware.block_tokens, r.prompt_tokens - 1);
  cluster_.turns.loads(r, false);
  cluster_.turns.there(r, here);
  count_prefix(r, here);
  if (!cluster_.machines.computes(r.prefill)) return;  // its loss is noticed later
  r.published = r.local_blocks;
  if (r.fetched_to > r.local_blocks) {
    // Fetched blocks are held here from now on: a hot prefix has one more replica.
    r.published = memories.of(r.prefill).insert(std::span{r.keys}.first(r.fetched_to), r.local_blocks,
                                                static_cast<std::uint64_t>(world_.time.now()), &r.pins);
  }
  if (world_.layout.coupled()) return cluster_.coupled.push(slot);
  cluster_.prefills.push(r);
  start_prefill(r.prefill);
}

/// Counts where the blocks of its prompt were, now that no more of them come.
/// @param here  leading blocks, blocks of the device alone included.
void simulation::count_prefix(const request_state_record& r, std::uint32_t here) {
  auto& out = world_.out;
  const auto reusable = (r.prompt_tokens - 1) / world_.options.hardware.block_tokens;
  out.blocks_dram += r.local_blocks - r.disk_blocks + here - r.fetched_to;
  out.blocks_ssd += r.disk_blocks;
  out.blocks_remote += r.fetched_to - r.local_blocks;
  out.blocks_missed += std::max(reusable, here) - here;
  out.prompt_tokens += r.prompt_tokens;
  out.computed_tokens += r.prompt_tokens - r.cached_tokens;
}

void simulation::stop_loading(std::uint32_t instance) {
  for (const auto slot : loader_.stop_if_idle(instance)) enter_prefill(slot);
}

void simulation::start_prefill(std::uint32_t instance) {
  if (!cluster_.start_prefill(instance)) stop_loading(instance);
}

void simulation::prefill_exit(std::uint32_t instance) {
  const auto step = cluster_.prefills.take_exit(instance);
  for (const auto& c : step.chunks) {
    if (!world_.requests.is_current(c.id)) continue;  // its decode instance died meanwhile
    const auto slot = request_table::slot_of(c.id);
    auto& r = world_.requests[slot];
    const bool complete = cluster_.prefills.computed(r, c, step);
    cluster_.turns.there(r, r.published);
    if (complete) first_token(slot);
  }
  if (!cluster_.prefills.has_stages()) start_prefill(instance);
}

void simulation::coupled_turn(std::uint32_t node, std::uint32_t stamp) {
  auto& coupled = cluster_.coupled;
  if (!coupled.is_current(node, stamp)) return;
  for (const auto slot : coupled.turn(node)) {
    const auto& r = world_.requests[slot];
    if (r.output_tokens <= 1) coupled.leave(r);
    first_token(slot);
  }
  coupled.go_on(node);
  stop_loading(node);
}

void simulation::first_token(std::uint32_t slot) {
  auto& r = world_.requests[slot];
  attempts_.first_token(slot);
  const bool decodes_here = world_.layout.coupled() && r.decode_tokens > 0;
  auto& cache = cluster_.memories.of(r.prefill);
  if (world_.layout.coupled() &&
      !(decodes_here ? cluster_.coupled.decode(slot) : cluster_.memories.stays_on_device(r)))
    cache.insert(r.keys, r.local_blocks, static_cast<std::uint64_t>(world_.time.now()));
  cache.unpin(r.pins);
  cluster_.turns.ends(r);
  if (r.decode_tokens == 0) {
    cluster_.memories.let_go(r);
    return attempts_.finish(slot, r.delivered > 0 ? attempts_.tbt_of_before(slot) : 0);
  }
  if (decodes_here) return;
  world_.time.add(std::max(r.kv_sent, world_.time.now()), event_kind::kv_arrived, slot,
                  request_table::stamp_of(r.id));
}

}  // namespace mooncaf::sim
