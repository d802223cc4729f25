#include "runtime/sched/decode_pool.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

/// Load as a key of the tree, in picoseconds: a sequence more is microseconds on a fast device.
std::int64_t as_key(double seconds) noexcept {
  return static_cast<std::int64_t>(std::min(seconds, 1e6) * 1e12);
}

constexpr std::uint32_t waiting_batches = 2;  // as many requests as a full batch may wait for a place

}  // namespace

instance_slot decode_pool::add(const instance_desc& desc) {
  const auto free = std::ranges::find(all_, false, &member::used);
  const auto slot = static_cast<instance_slot>(free - all_.begin());
  if (free == all_.end()) all_.emplace_back();
  auto& m = all_[slot];
  m = member{};
  m.used = true;
  m.desc = desc;
  m.desc.capacity = std::max(m.desc.capacity, 1u);
  m.speed = classes_.join(decode_model{desc.samples}, slot);
  live_in_class_.resize(classes_.size());
  // Positions behind the new member moved.
  for (const auto other : classes_[m.speed].members) publish(other);
  set_state(slot, desc.state);
  return slot;
}

void decode_pool::remove(instance_slot slot) {
  set_state(slot, instance_state::lost);
  const auto speed = all_[slot].speed;
  classes_.leave(speed, slot);
  all_[slot] = member{};
  for (const auto other : classes_[speed].members) publish(other);
}

void decode_pool::set_state(instance_slot slot, instance_state state) {
  all_[slot].desc.state = state;
  auto& in_class = live_in_class_[all_[slot].speed];
  in_class -= std::erase(live_, slot);
  if (state == instance_state::live) {
    live_.push_back(slot);
    ++in_class;
  }
  largest_ = 0;
  for (const auto other : live_) {
    const auto holds = all_[other].desc.capacity_tokens;
    if (holds == 0) {
      largest_ = 0;
      break;
    }
    largest_ = std::max(largest_, holds);
  }
  publish(slot);
}

void decode_pool::publish(instance_slot slot) {
  const auto& m = all_[slot];
  auto& mine = classes_[m.speed];
  const bool live = m.desc.state == instance_state::live;
  mine.tree.set(mine.position(slot), live ? as_key(load_seconds(m)) : min_tree::absent);
}

double decode_pool::load_seconds(const member& m) const {
  const auto& model = classes_[m.speed].model;
  const auto batch = std::min(batch_of(m) + 1, m.desc.capacity);
  double seconds = model.part_of(batch, static_cast<double>(context_of(m)));
  // A place comes free as often as a batch finishes in `span_`.
  double over = static_cast<double>(batch_of(m) + 1 - batch) / m.desc.capacity;
  const auto taken = std::max(m.reserved, context_of(m)) + m.occupied;
  if (m.desc.capacity_tokens > 0 && taken > m.desc.capacity_tokens) {
    over = std::max(over, static_cast<double>(taken - m.desc.capacity_tokens) /
                              static_cast<double>(m.desc.capacity_tokens));
  }
  return seconds + over * to_seconds(span_);
}

void decode_pool::charge(instance_slot slot, const needs& n) {
  auto& m = all_[slot];
  ++m.charged;
  m.context += n.context;
  m.reserved += n.memory;
  publish(slot);
}

void decode_pool::arrived(instance_slot slot, const needs& n) {
  auto& m = all_[slot];
  ++m.arrived;
  m.arrived_context += n.context;
  m.arrived_memory += n.memory;
}

void decode_pool::release(instance_slot slot, const needs& n, bool had_arrived) {
  auto& m = all_[slot];
  --m.charged;
  m.context -= n.context;
  m.reserved -= n.memory;
  if (had_arrived) {
    // The tokens that the request had generated go with it: its share, until the next report.
    m.grown -= m.grown / m.arrived;
    --m.arrived;
    m.arrived_context -= n.context;
    m.arrived_memory -= n.memory;
  }
  publish(slot);
}

void decode_pool::occupy(instance_slot slot, std::uint64_t tokens) {
  all_[slot].occupied += tokens;
  publish(slot);
}

void decode_pool::vacate(instance_slot slot, std::uint64_t tokens) {
  auto& taken = all_[slot].occupied;
  taken -= std::min(taken, tokens);  // the instance may have joined after its node took the prompt
  publish(slot);
}

void decode_pool::report(instance_slot slot, const instance_load& load) {
  auto& m = all_[slot];
  // A step teaches once, also if its batch is over by now: lone short answers are all that a slow estimate
  // lets in.
  if (const auto& s = load.step; s.number > m.latest.step.number) {
    auto& model = classes_[m.speed].model;
    if (s.batch > 0) noise_.observe(model.estimate(s.batch, s.context_tokens), s.took);
    model.observe(s.batch, s.context_tokens, s.took);
  }
  m.latest = load;
  m.grown = load.context_tokens > m.arrived_context ? load.context_tokens - m.arrived_context : 0;
  publish(slot);
}

duration decode_pool::cost(instance_slot slot, std::uint64_t prompt_tokens) const {
  const auto& m = all_[slot];
  const auto& model = classes_[m.speed].model;
  // In the tree's own unit first, so that instances that are equal there are equal here.
  const double load = static_cast<double>(as_key(load_seconds(m))) * 1e-12;
  return model.corrected(load + model.part_of(0, static_cast<double>(prompt_tokens)));
}

duration decode_pool::step(instance_slot slot, std::uint64_t prompt_tokens, bool extra) const {
  const auto& m = all_[slot];
  const auto batch = std::min(batch_of(m) + (extra ? 1 : 0), m.desc.capacity);
  return classes_[m.speed].model.estimate(batch, context_of(m) + prompt_tokens);
}

decode_choice decode_pool::select(std::uint64_t prompt_tokens, std::span<const worker_id> avoid,
                                  std::span<const node_id> barred) const {
  decode_choice best;
  duration least{};
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const auto at = classes_[c].tree.best(0, [&](std::size_t position) {
      const auto& desc = all_[classes_[c].members[position]].desc;
      return std::ranges::find(avoid, desc.id) == avoid.end() &&
             std::ranges::find(barred, desc.node) == barred.end();
    });
    if (at == min_tree::npos) continue;
    const auto slot = classes_[c].members[at];
    const auto mine = cost(slot, prompt_tokens);
    if (best.slot == no_slot || mine < least || (mine == least && slot < best.slot)) {
      best.slot = slot;
      least = mine;
    }
  }
  if (best.slot == no_slot) return avoid.empty() ? best : select(prompt_tokens, {}, barred);
  return choice(best.slot, prompt_tokens);
}

decode_choice decode_pool::choice(instance_slot slot, std::uint64_t prompt_tokens) const {
  const auto& m = all_[slot];
  decode_choice out;
  out.slot = slot;
  out.tbt = step(slot, prompt_tokens);
  out.tbt_running =
      classes_[m.speed].model.estimate(std::min(m.arrived + m.latest.others + 1, m.desc.capacity),
                                       m.arrived_context + m.grown + prompt_tokens);
  out.saturated = batch_of(m) >= waiting_batches * m.desc.capacity;
  return out;
}

instance_slot decode_pool::roomiest(std::span<const worker_id> avoid) const {
  auto best = no_slot;
  std::int64_t most = 0;
  for (const auto slot : live_) {
    const auto& m = all_[slot];
    if (m.desc.capacity_tokens == 0 || std::ranges::find(avoid, m.desc.id) != avoid.end()) continue;
    const auto free =
        static_cast<std::int64_t>(m.desc.capacity_tokens) - static_cast<std::int64_t>(reserved(slot));
    if (best != no_slot && (free < most || (free == most && slot > best))) continue;
    best = slot;
    most = free;
  }
  return best;
}

duration decode_pool::mean_step(std::uint64_t requests, std::uint64_t context_tokens) const {
  if (live_.empty()) return {};
  const auto n = live_.size();
  double sum = 0;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const auto& mine = classes_[c];
    if (live_in_class_[c] == 0) continue;
    const auto batch =
        std::min<std::uint64_t>((requests + n - 1) / n, all_[mine.members.front()].desc.capacity);
    sum +=
        to_seconds(mine.model.estimate(batch, context_tokens / n)) * static_cast<double>(live_in_class_[c]);
  }
  return bounded_duration(sum / static_cast<double>(n));
}

}  // namespace mooncaf
