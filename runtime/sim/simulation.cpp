#include "runtime/sim/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace mooncaf::sim {

namespace {

conductor_options conductor_options_of(const simulation_options& o) {
  conductor_options c;
  c.policy = o.policy;
  c.admission = o.admission;
  c.balancing_threshold = o.balancing_threshold;
  c.ttft_slo = from_seconds(o.ttft_slo_s);
  c.tbt_slo = from_seconds(o.tbt_slo_s);
  c.decode_span = from_seconds(o.decode_span_s);
  c.coupled = o.coupled != coupled_mode::off;
  c.block_tokens = o.hardware.block_tokens;
  c.bytes_per_token = o.hardware.kv_bytes_per_token;
  c.seed = o.seed;
  c.transfer = {o.hardware.nic_bytes_per_s * o.pipeline, from_seconds(o.hardware.network_latency_s),
                o.hardware.ssd_bytes_per_s};
  return c;
}

node_cache_options cache_options_of(const simulation_options& o) {
  const auto blocks = [&](std::uint64_t tokens) {
    return o.local_cache ? tokens * o.pipeline / o.hardware.block_tokens : 0;
  };
  node_cache_options c;
  c.dram = c.ssd = {o.eviction, o.leaf_first};
  c.dram_blocks = blocks(o.hardware.dram_tokens);
  c.ssd_blocks = blocks(o.hardware.ssd_tokens);
  c.write = o.write;
  c.selective_hits = o.selective_hits;
  return c;
}

prefill_batch_options prefill_options_of(const simulation_options& o) {
  prefill_batch_options p;
  p.chunk_tokens = o.hardware.chunk_tokens;
  p.max_batch_tokens = o.hardware.chunk_tokens;
  p.aging = from_seconds(o.ttft_slo_s);
  p.block_tokens = std::min(o.hardware.block_tokens, o.hardware.chunk_tokens);
  return p;
}

/// What the decode side believes of its own speed.
decode_model told_decode(const simulation_options& o) {
  auto samples = decode_samples(o.hardware);
  for (auto& s : samples) s.seconds *= o.decode_calibration;
  return decode_model{samples};
}

}  // namespace

block_key key_of(std::uint64_t hash_id) noexcept {
  return hash_bytes128(std::as_bytes(std::span{&hash_id, 1}));
}

simulation::simulation(const simulation_options& options)
    : options_(options),
      costs_(options.hardware),
      decode_estimate_(told_decode(options)),
      conductor_(conductor_options_of(options)),
      queue_(conductor_, {options.max_queued, from_seconds(options.ttft_slo_s)}),
      random_(options.seed),
      priority_random_(options.seed ^ 0x5EED) {
  add_instances();
}

simulation::~simulation() = default;

void simulation::add_instance(worker_id id, node_id node, instance_role role) {
  instance_desc d;
  d.id = id;
  d.node = node;
  d.role = role;
  d.capacity = options_.hardware.max_batch;
  d.capacity_tokens = options_.hardware.device_kv_tokens;
  d.reserves_answers = true;
  d.samples = role == instance_role::prefill ? prefill_samples(options_.hardware, options_.pipeline)
                                             : decode_samples(options_.hardware);
  const double told =
      role == instance_role::prefill ? options_.prefill_calibration : options_.decode_calibration;
  for (auto& s : d.samples) s.seconds *= told;
  // Neither can fail: the options bound the number of nodes, and ids are counted up.
  (void)conductor_.add_node(node);
  (void)conductor_.add_instance(d);
}

void simulation::add_instances() {
  if (is_coupled()) {
    // Every node is both.
    options_.prefill += options_.decode;
    options_.decode = options_.prefill;
    options_.pipeline = 1;
  }
  const auto nodes = options_.prefill + options_.decode;
  links_.resize(nodes);
  reported_.resize(nodes);
  sampled_busy_.resize(nodes);
  const auto cache = cache_options_of(options_);
  const double hop = options_.hardware.network_latency_s;
  caches_.reserve(options_.prefill);
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    add_instance(prefill_id(i), node_id{prefill_id(i).value}, instance_role::prefill);
    caches_.emplace_back(cache, conductor_, node_id{prefill_id(i).value});
    if (is_coupled()) coupled_.emplace_back(costs_, options_);
    else
      prefills_.emplace_back(costs_, prefill_options_of(options_), options_.pipeline, hop, options_.jitter);
  }
  for (std::uint32_t i = 0; i < options_.decode; ++i) {
    const auto node = is_coupled() ? prefill_id(i) : decode_id(i);
    add_instance(decode_id(i), node_id{node.value}, instance_role::decode);
    if (!is_coupled()) decodes_.emplace_back(costs_, decode_options_of(options_), options_.jitter);
  }
}

// ---- the loop
// -------------------------------------------------------------------------------------------------------

result<bool> simulation::take_next(trace_source& source) {
  auto more = source.next(upcoming_);
  if (!more || !*more) return more;
  const auto full = std::min<std::size_t>(upcoming_.input_tokens / options_.hardware.block_tokens,
                                          upcoming_.hash_ids.size());
  upcoming_keys_.clear();
  for (const auto id : std::span{upcoming_.hash_ids}.first(full)) upcoming_keys_.push_back(key_of(id));
  conductor_.prefetch(upcoming_keys_);
  const auto at = from_sec(static_cast<double>(upcoming_.timestamp_ms) * 1e-3 / options_.speed);
  events_.push(std::max(at, now_), event_kind::arrival, 0);
  return true;
}

result<outcome> simulation::run(trace_source& source, const std::function<void(std::uint64_t)>& progress) {
  constexpr std::uint64_t progress_every = 4096;
  auto more = take_next(source);
  if (!more) return fail(more.error());
  if (*more) now_ = events_.next().at;
  const auto begin = now_;
  sampled_at_ = begin;
  events_.push(begin + out_.history.interval(), event_kind::sample, 0);
  while (!events_.empty() && !hopeless()) {
    const auto e = events_.pop();
    now_ = e.at;
    ++out_.events;
    if (e.kind == event_kind::arrival) {
      arrive();
      out_.last_arrival_s = to_sec(now_ - begin);
      if (progress && number_ % progress_every == 0) progress(number_);
      if (more = take_next(source); !more) return fail(more.error());
    } else if (e.kind == event_kind::sample) {
      sample();
      if (!events_.empty()) events_.push(now_ + out_.history.interval(), event_kind::sample, 0);
    } else {
      dispatch(e);
      if (queue_.size() > 0) {
        queue_.advance(clock(), decided_);
        act_on(decided_);
      }
      out_.span_s = to_sec(now_ - begin);
    }
  }
  out_.span_s = std::max(out_.span_s, out_.last_arrival_s);
  sum_up();
  return std::move(out_);
}

bool simulation::hopeless() const noexcept {
  return options_.give_up_after > 0 && missed_ > options_.give_up_after;
}

void simulation::dispatch(const event& e) {
  switch (e.kind) {
    case event_kind::prefill_ready:
      return enter_prefill(e.target);
    case event_kind::prefill_free:
      prefills_[e.target].first_stage_free();
      return start_prefill(e.target);
    case event_kind::prefill_exit:
      return prefill_exit(e.target);
    case event_kind::kv_arrived:
      return kv_arrived(e.target);
    case event_kind::decode_turn:
      return decode_turn(e.target, e.stamp);
    case event_kind::coupled_turn:
      return coupled_turn(e.target, e.stamp);
    case event_kind::arrival:
    case event_kind::sample:
      return;
  }
}

// ---- arrival and placement
// ------------------------------------------------------------------------------------------

void simulation::arrive() {
  const auto slot = requests_.open(number_++);
  auto& r = requests_[slot];
  out_.peak_live = std::max<std::uint64_t>(out_.peak_live, requests_.live());
  r.arrival = now_;
  r.prompt_tokens = upcoming_.input_tokens;
  r.output_tokens = upcoming_.output_tokens;
  if (options_.high_share > 0 || options_.low_share > 0) {
    const double draw = priority_random_.uniform();
    r.priority = draw < options_.high_share ? 0 : draw < options_.high_share + options_.low_share ? 2 : 1;
  }
  r.keys.swap(upcoming_keys_);
  ++counts(r).arrived;

  schedule_request ask;
  ask.id = r.id;
  ask.keys = r.keys;
  ask.prompt_tokens = r.prompt_tokens;
  ask.max_tokens = options_.max_tokens;
  ask.priority = r.priority;
  ask.arrival = clock();
  queue_.submit(ask, clock(), decided_);
  act_on(decided_);
}

void simulation::act_on(std::vector<decision>& decided) {
  for (auto& d : decided) {
    const auto slot = request_table::slot_of(d.id);
    if (d.outcome) {
      place(slot, *d.outcome);
    } else {
      refuse(requests_[slot], d.outcome.error());
      close(slot);
    }
  }
  decided.clear();
}

void simulation::refuse(request_state_record& r, const rejection& why) {
  auto& c = counts(r);
  ++missed_;
  switch (why.stage) {
    case reject_stage::placement:
    case reject_stage::queue:
      ++c.rejected_placement;
      break;
    case reject_stage::prefill:
      ++c.rejected_prefill;
      break;
    case reject_stage::decode:
      ++c.rejected_decode;
      break;
    case reject_stage::memory:
      ++c.rejected_memory;
      break;
    case reject_stage::at_decode:
      ++(why.cause.code == ec::out_of_space ? c.rejected_memory : c.rejected_at_decode);
      out_.wasted_prefill_s += r.prefill_seconds;
      break;
  }
}

void simulation::place(std::uint32_t slot, const placement& where) {
  auto& r = requests_[slot];
  r.prefill = static_cast<std::uint32_t>(where.prefill.value - 1);
  r.decode = static_cast<std::uint32_t>(where.decode.value - 1 - options_.prefill);
  const auto hit =
      caches_[r.prefill].pin(r.keys, where.local_blocks, static_cast<std::uint64_t>(now_), r.pins);
  r.local_blocks = r.fetched_to = hit.blocks;
  auto ready = now_;
  const double block_bytes = static_cast<double>(options_.hardware.block_bytes());
  if (hit.from_ssd > 0) ready = read_disk(r.prefill, hit.from_ssd * block_bytes);
  if (where.source && where.source_blocks > hit.blocks) ready = std::max(ready, fetch(r, where));

  const auto reusable = (r.prompt_tokens - 1) / options_.hardware.block_tokens;
  out_.blocks_dram += hit.blocks - hit.from_ssd;
  out_.blocks_ssd += hit.from_ssd;
  out_.blocks_remote += r.fetched_to - hit.blocks;
  out_.blocks_missed += std::max(reusable, r.fetched_to) - r.fetched_to;
  r.cached_tokens = r.computed = std::min(r.fetched_to * options_.hardware.block_tokens, r.prompt_tokens - 1);
  out_.prompt_tokens += r.prompt_tokens;
  out_.computed_tokens += r.prompt_tokens - r.cached_tokens;
  if (ready <= now_) return enter_prefill(slot);
  if (options_.layerwise) {
    // All but the first layer may arrive beside the computation, which then takes at least as long.
    const auto compute = from_sec(costs_.prefill(r.prompt_tokens, r.cached_tokens) / options_.pipeline);
    ready -= std::min(ready - now_, compute) * (costs_.layers() - 1) / costs_.layers();
  }
  events_.push(ready, event_kind::prefill_ready, slot);
}

/// Brings the prefix that another node holds. @returns when it is here.
ticks simulation::fetch(request_state_record& r, const placement& where) {
  const auto source = static_cast<std::uint32_t>(where.source.value - 1);
  const double bytes =
      static_cast<double>(options_.hardware.block_bytes()) * (where.source_blocks - r.local_blocks);
  caches_[source].sent(r.keys, r.local_blocks, where.source_blocks, static_cast<std::uint64_t>(now_));
  auto begin = now_;
  if (where.source_tier == holder_tier::ssd) begin = read_disk(source, bytes);
  const auto end = transfer(source, r.prefill, bytes, now_);
  r.fetched_to = where.source_blocks;
  caches_[r.prefill].prepare(std::span{r.keys}.first(r.fetched_to), r.local_blocks);
  ++out_.fetches;
  out_.bytes_fetched += bytes;
  return std::max(begin, end);
}

/// Both ends work off what they had before. @returns when the last byte is there.
ticks simulation::transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
  const auto speed_of = [&](std::uint32_t node) {
    return options_.hardware.nic_bytes_per_s * (node < options_.prefill ? options_.pipeline : 1);
  };
  auto& sends = links_[from].sends;
  auto& receives = links_[to].receives;
  const auto sending = from_sec(bytes / speed_of(from));
  links_[from].worked += sending;
  sends = std::max(sends, begin) + sending;
  receives = std::max(receives, begin) + from_sec(bytes / speed_of(to));
  return std::max(sends, receives) + from_sec(options_.hardware.network_latency_s);
}

ticks simulation::read_disk(std::uint32_t node, double bytes) {
  auto& reads = links_[node].reads;
  reads = std::max(reads, now_) + from_sec(bytes / options_.hardware.ssd_bytes_per_s);
  out_.bytes_ssd_read += bytes;
  return reads;
}

// ---- prefill
// --------------------------------------------------------------------------------------------------------

void simulation::enter_prefill(std::uint32_t slot) {
  auto& r = requests_[slot];
  if (r.fetched_to > r.local_blocks) {
    // What was fetched is held here from now on: a hot prefix has one more replica.
    caches_[r.prefill].insert(std::span{r.keys}.first(r.fetched_to), r.local_blocks,
                              static_cast<std::uint64_t>(now_));
  }
  if (is_coupled()) return enter_coupled(slot);
  prefill_entry entry;
  entry.id = r.id;
  entry.prompt_tokens = r.prompt_tokens;
  entry.start = r.cached_tokens;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = entry.arrival + from_seconds(options_.ttft_slo_s);
  prefills_[r.prefill].push(entry);
  start_prefill(r.prefill);
}

void simulation::start_prefill(std::uint32_t instance) {
  auto& p = prefills_[instance];
  const bool slowed = instance < decodes_.size() && decodes_[instance].running() > 0;
  const auto step = p.start(now_, slowed ? costs_.prefill_beside_decode() : 1, random_, requests_);
  neighbour_changed(instance);
  if (!step) return;
  if (p.stages() > 1) events_.push(step->free, event_kind::prefill_free, instance);
  events_.push(step->exits, event_kind::prefill_exit, instance);
}

/// Prefill instance `instance` began a step, or has none to begin: where it shares its machine, the decode
/// instance beside it goes on at another speed.
void simulation::neighbour_changed(std::uint32_t instance) {
  if (costs_.decode_beside_prefill() == 1 || instance >= decodes_.size()) return;
  auto& d = decodes_[instance];
  if (d.running() == 0) return;
  if (const auto turn = d.cut(now_)) events_.push(turn->at, event_kind::decode_turn, instance, turn->stamp);
}

void simulation::prefill_exit(std::uint32_t instance) {
  auto& p = prefills_[instance];
  const auto step = p.take_exit();
  if (p.stages() == 1) p.first_stage_free();
  std::uint64_t tokens = 0;
  for (const auto& c : step.chunks) tokens += c.tokens;
  for (const auto& c : step.chunks) {
    const auto slot = request_table::slot_of(c.id);
    auto& r = requests_[slot];
    r.prefill_seconds += step.seconds * c.tokens / static_cast<double>(tokens);
    r.computed += c.tokens;
    if (r.computed == r.prompt_tokens) caches_[r.prefill].prepare(r.keys, r.local_blocks);
    stream_out(r, c, step);
    if (r.computed == r.prompt_tokens) first_token(slot);
  }
  if (p.stages() == 1) start_prefill(instance);
}

/// Sends a chunk's KV to the decode side, with the cached prefix before the first one.
void simulation::stream_out(request_state_record& r, const prefill_chunk& c, const prefill_step& step) {
  if (r.output_tokens <= 1) return;
  const auto to = options_.prefill + r.decode;
  const auto per_token = static_cast<double>(options_.hardware.kv_bytes_per_token);
  if (!options_.layerwise) {
    if (r.computed < r.prompt_tokens) return;
    const double bytes = per_token * r.prompt_tokens;
    out_.bytes_streamed += bytes;
    r.kv_sent = transfer(r.prefill, to, bytes, now_);
    return;
  }
  const double bytes = per_token * (c.tokens + (c.start == r.cached_tokens ? c.start : 0));
  out_.bytes_streamed += bytes;
  // Layer by layer beside the computation; the last layer follows it.
  const auto sent = transfer(r.prefill, to, bytes, step.began + (step.exits - step.began) / costs_.layers());
  const auto last_layer = from_sec(bytes / options_.hardware.nic_bytes_per_s / costs_.layers() +
                                   options_.hardware.network_latency_s);
  r.kv_sent = std::max({r.kv_sent, sent, now_ + last_layer});
}

void simulation::first_token(std::uint32_t slot) {
  auto& r = requests_[slot];
  r.first_token = now_;
  const double ttft = to_sec(now_ - r.arrival);
  out_.ttft.add(ttft);
  out_.queueing.add(std::max(ttft - r.prefill_seconds / options_.pipeline, 0.0));
  ++out_.output_tokens;
  conductor_.first_token(r.id, r.prompt_tokens - r.cached_tokens, r.cached_tokens,
                         from_seconds(r.prefill_seconds / options_.pipeline), clock());
  auto& cache = caches_[r.prefill];
  cache.insert(r.keys, r.local_blocks, static_cast<std::uint64_t>(now_));
  cache.unpin(r.pins);
  report(static_cast<std::uint32_t>(prefill_id(r.prefill).value), {});
  if (r.output_tokens <= 1) return finish(slot, 0);
  r.decode_tokens = r.output_tokens - 1;
  if (is_coupled()) return coupled_[r.prefill].decode(slot, requests_);
  events_.push(std::max(r.kv_sent, now_), event_kind::kv_arrived, slot);
}

// ---- decode
// ---------------------------------------------------------------------------------------------------------

void simulation::kv_arrived(std::uint32_t slot) {
  auto& r = requests_[slot];
  auto& d = decodes_[r.decode];
  decode_entry entry;
  entry.id = r.id;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  entry.deadline = time_point{duration{r.first_token}} + from_seconds(options_.tbt_slo_s);
  entry.context_tokens = r.prompt_tokens;
  entry.max_tokens = options_.max_tokens;
  std::optional<rejection> refused;
  if (checks_at_decode(options_.admission)) {
    refused = d.check(entry, decode_estimate_, from_seconds(options_.tbt_slo_s));
  }
  if (!refused && !d.push(entry, r.decode_tokens)) {
    refused =
        rejection{{ec::out_of_space, "longer than a decode instance's memory"}, {}, reject_stage::at_decode};
  }
  if (refused) {
    refuse(r, *refused);
    conductor_.failed(r.id, clock());
    return close(slot);
  }
  if (const auto turn = d.wake(now_)) events_.push(turn->at, event_kind::decode_turn, r.decode, turn->stamp);
}

void simulation::decode_turn(std::uint32_t instance, std::uint32_t stamp) {
  auto& d = decodes_[instance];
  if (!d.is_current(stamp)) return;
  finished_.clear();
  const bool slowed = instance < prefills_.size() && prefills_[instance].computing();
  const double slowdown = slowed ? costs_.decode_beside_prefill() : 1;
  const auto next = d.turn(now_, slowdown, random_, requests_, out_.gap, finished_);
  for (const auto slot : finished_) {
    const auto& r = requests_[slot];
    const double wait = to_sec(r.joined - r.first_token);
    out_.handover.add(wait);
    out_.output_tokens += r.decode_tokens;
    finish(slot, d.tbt(r, wait, options_.tbt));
  }
  if (next) events_.push(next->at, event_kind::decode_turn, instance, next->stamp);
  const auto load = d.load();
  if (next) decode_estimate_.observe(load.running, load.context_tokens, load.step);
  report(static_cast<std::uint32_t>(decode_id(instance).value), load);
}

void simulation::finish(std::uint32_t slot, double tbt) {
  auto& r = requests_[slot];
  auto& c = counts(r);
  ++c.completed;
  const bool late = to_sec(r.first_token - r.arrival) > options_.ttft_slo_s;
  const bool slow = tbt > options_.tbt_slo_s;
  c.ttft_missed += late;
  c.tbt_missed += slow;
  c.slo_met += !late && !slow;
  if (late || slow) out_.missed_prefill_s += r.prefill_seconds;
  missed_ += late || slow;
  if (r.output_tokens > 1) out_.tbt.add(tbt);
  conductor_.finished(r.id, clock(), r.output_tokens);
  close(slot);
}

void simulation::close(std::uint32_t slot) { requests_.close(slot); }

void simulation::report(std::uint32_t worker, const instance_load& load) {
  auto& last = reported_[worker - 1];
  if (now_ - last < from_sec(options_.report_interval_s)) return;
  last = now_;
  conductor_.report(worker_id{worker}, load, clock());
}

result<void> check_options(const simulation_options& o) {
  const auto bad = [](const std::string& what) { return fail(ec::invalid_argument, what); };
  constexpr std::uint32_t most = 8191;
  if (o.prefill == 0 || o.decode == 0) return bad("at least one prefill and one decode instance are needed");
  if (o.prefill > most || o.decode > most) return bad("at most 8191 instances of each role");
  if (o.pipeline == 0 || o.pipeline > 64) return bad("a pipeline group has 1 to 64 nodes");
  if (!(o.speed > 0) || o.speed > 1e6) return bad("speed must be above 0, at most 10^6");
  if (!(o.jitter >= 0) || o.jitter > 1) return bad("jitter must be 0 to 1");
  for (const double told : {o.prefill_calibration, o.decode_calibration}) {
    if (!(told >= 0.1) || told > 10) return bad("a calibration must be told 0.1 to 10 times what it is");
  }
  if (!(o.ttft_slo_s > 0) || !(o.tbt_slo_s > 0)) return bad("SLOs must be above 0");
  if (!(o.high_share >= 0) || !(o.low_share >= 0) || o.high_share + o.low_share > 1) {
    return bad("shares of priorities must be 0 to 1 and together at most 1");
  }
  if (!(o.balancing_threshold >= 1)) return bad("the balancing threshold must be at least 1");
  return {};
}

}  // namespace mooncaf::sim
