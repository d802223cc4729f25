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
  c.hot_copy_share = o.hot_copy_share;
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
  c.ssd.copy_age = o.copy_age;
  c.device_gives_back = o.device_write == write_policy::write_back;
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

/// What the prefill side believes of its own speed.
prefill_model told_prefill(const simulation_options& o) {
  auto samples = prefill_samples(o.hardware, o.coupled == coupled_mode::off ? o.pipeline : 1);
  for (auto& s : samples) s.seconds *= o.prefill_calibration;
  return prefill_model{samples};
}

/// What the decode side believes of its own speed.
decode_model told_decode(const simulation_options& o) {
  auto samples = decode_samples(o.decode_profile());
  for (auto& s : samples) s.seconds *= o.decode_calibration;
  return decode_model{samples};
}

constexpr bool is_about_machines(event_kind k) noexcept {
  return k == event_kind::disturbance || k == event_kind::machine || k == event_kind::elastic;
}

}  // namespace

block_key key_of(std::uint64_t hash_id) noexcept {
  return hash_bytes128(std::as_bytes(std::span{&hash_id, 1}));
}

simulation::simulation(const simulation_options& options)
    : options_(options),
      prefetch_(options.prefetch),
      costs_(options.hardware),
      decode_costs_(options.decode_profile()),
      prefill_estimate_(told_prefill(options)),
      decode_estimate_(told_decode(options)),
      conductor_(conductor_options_of(options)),
      queue_(conductor_, {options.max_queued, from_seconds(options.ttft_slo_s)}),
      random_(options.seed),
      priority_random_(options.seed ^ 0x5EED),
      elastic_(options.elastic) {
  add_instances();
}

simulation::~simulation() = default;

void simulation::add_instance(worker_id id, node_id node, instance_role role) {
  instance_desc d;
  d.id = id;
  d.node = node;
  d.role = role;
  const auto& machine = role == instance_role::prefill ? options_.hardware : options_.decode_profile();
  d.capacity = machine.max_batch;
  d.capacity_tokens = machine.device_kv_tokens;
  d.reserves_answers = true;
  d.samples =
      role == instance_role::prefill ? prefill_samples(machine, options_.pipeline) : decode_samples(machine);
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
  make_room();
  const auto nodes = options_.prefill + options_.decode;
  links_.resize(nodes);
  conditions_.resize(nodes);
  reported_.resize(nodes);
  sampled_busy_.resize(nodes);
  const auto cache = cache_options_of(options_);
  const double hop = options_.hardware.network_latency_s;
  caches_.reserve(options_.prefill);
  on_the_way_.resize(options_.prefill);
  elastic_.busy.resize(options_.prefill);
  for (std::uint32_t i = 0; i < options_.prefill; ++i) {
    caches_.emplace_back(cache, conductor_, node_id{prefill_id(i).value});
    begin_with(i);
    if (is_coupled()) coupled_.emplace_back(costs_, options_, caches_.back().tree());
    else
      prefills_.emplace_back(costs_, prefill_options_of(options_),
                             tier_of(options_.hardware, options_.pipeline, {}, caches_.back().tree()),
                             options_.pipeline, hop, options_.jitter);
  }
  for (std::uint32_t i = 0; i < options_.decode; ++i) {
    if (is_coupled()) continue;
    decodes_.emplace_back(decode_costs_, decode_options_of(options_), tier_of(options_.decode_profile()),
                          options_.jitter);
    begin_with(decode_machine(i));
  }
}

void simulation::begin_with(std::uint32_t machine) {
  if (is_there_at_first(machine)) join(machine);
  else conditions_[machine].state = machine_state::off;
}

/// The conductor hears of a machine, which holds nothing.
void simulation::join(std::uint32_t machine) {
  const node_id node{machine + 1};
  if (machine >= options_.prefill)
    return add_instance(decode_id(machine - options_.prefill), node, instance_role::decode);
  add_instance(prefill_id(machine), node, instance_role::prefill);
  conductor_.memory_of(node, cache_options_of(options_).dram_blocks);
  if (is_coupled()) add_instance(decode_id(machine), node, instance_role::decode);
}

result<bool> simulation::take_next(trace_source& source) {
  auto more = source.next(upcoming_);
  if (!more || !*more) {
    arriving_ = false;
    return more;
  }
  take_keys();
  const auto at = from_sec(with_bursts(options_.disturbances,
                                       static_cast<double>(upcoming_.timestamp_ms) * 1e-3 / options_.speed));
  events_.push(std::max(at, now_), event_kind::arrival, 0);
  return true;
}

/// Keys of the full blocks of what was taken.
void simulation::take_keys() {
  const auto full = std::min<std::size_t>(upcoming_.input_tokens / options_.hardware.block_tokens,
                                          upcoming_.hash_ids.size());
  upcoming_keys_.clear();
  for (const auto id : std::span{upcoming_.hash_ids}.first(full)) upcoming_keys_.push_back(key_of(id));
  conductor_.prefetch(upcoming_keys_);
}

/// Where requests follow from answers, an earlier one may become known at any time: its event overtakes the
/// one that was expected, which is void then.
void simulation::expect_arrival() {
  const double due = source_->due_s();
  arriving_ = arriving_ && source_->share_given() < 1;
  if (std::isinf(due)) return;
  const auto at = std::max(from_sec(due), now_);
  if (expected_ > 0 && expected_ <= at) return;
  expected_ = std::max<ticks>(at, 1);
  events_.push(expected_, event_kind::arrival, 0);
}

/// A request comes; then the next one is known, or waits for an answer.
result<void> simulation::arrivals(trace_source& source, const event& e) {
  if (!source.follows_answers()) {
    arrive();
    const auto more = take_next(source);
    return more ? result<void>{} : fail(more.error());
  }
  if (e.at != expected_) return {};
  expected_ = 0;
  const auto more = source.next(upcoming_);
  if (!more) return fail(more.error());
  if (*more) {
    take_keys();
    arrive();
  }
  expect_arrival();
  return {};
}

result<outcome> simulation::run(trace_source& source, const std::function<void(std::uint64_t)>& progress) {
  constexpr std::uint64_t progress_every = 4096;
  source_ = &source;
  if (source.follows_answers()) {
    expect_arrival();
  } else if (const auto more = take_next(source); !more) {
    return fail(more.error());
  }
  if (!events_.empty()) now_ = events_.next().at;
  expect_disturbances();
  const auto begin = began_ = now_;
  begin_paying();
  sampled_at_ = begin;
  events_.push(begin + out_.history.interval(), event_kind::sample, 0);
  while (!events_.empty() && !hopeless()) {
    const auto e = events_.pop();
    const bool over = !arriving_ && requests_.live() == 0;
    // Of nobody's request:
    if (over && is_about_machines(e.kind)) continue;
    now_ = e.at;
    ++out_.events;
    if (e.kind == event_kind::arrival) {
      const auto before = number_;
      if (const auto came = arrivals(source, e); !came) return fail(came.error());
      if (number_ > before) out_.last_arrival_s = to_sec(now_ - begin);
      if (progress && number_ % progress_every == 0) progress(number_);
    } else if (e.kind == event_kind::sample) {
      sample();
      if (!events_.empty() && !over) events_.push(now_ + out_.history.interval(), event_kind::sample, 0);
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
      // Unless nobody waited for the rest of its prefix.
      if (requests_.is_current(e.target, e.stamp) && requests_[e.target].loading) enter_prefill(e.target);
      return;
    case event_kind::prefill_free:
      if (e.stamp != conditions_[e.target].lives) return;
      prefills_[e.target].first_stage_free();
      return start_prefill(e.target);
    case event_kind::prefill_exit:
      if (e.stamp == conditions_[e.target].lives) prefill_exit(e.target);
      return;
    case event_kind::kv_arrived:
      if (requests_.is_current(e.target, e.stamp)) kv_arrived(e.target);
      return;
    case event_kind::decode_turn:
      return decode_turn(e.target, e.stamp);
    case event_kind::copy_arrived:
      return copy_arrived(e.target);
    case event_kind::coupled_turn:
      return coupled_turn(e.target, e.stamp);
    case event_kind::disturbance:
      return disturbed(e.target, e.stamp);
    case event_kind::machine:
      return machine_event_of(e.target, e.stamp);
    case event_kind::elastic:
      return decide_on_machines();
    case event_kind::retry:
      if (requests_.is_current(e.target, e.stamp)) ask(e.target);
      return;
    case event_kind::arrival:
    case event_kind::sample:
      return;
  }
}

}  // namespace mooncaf::sim
