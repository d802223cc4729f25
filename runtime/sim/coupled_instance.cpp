#include "runtime/sim/coupled_instance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mooncaf::sim {

namespace {

constexpr std::uint32_t no_limit = 1u << 30;

constexpr auto later = [](const auto& a, const auto& b) {
  return a.finish != b.finish ? a.finish > b.finish : a.slot > b.slot;
};

prefill_batch_options prompts_of(const simulation_options& o) {
  const auto step = o.coupled == coupled_mode::chunked ? o.coupled_chunk : no_limit;
  prefill_batch_options p;
  p.chunk_tokens = p.max_batch_tokens = step;
  p.block_tokens = 1;  // nothing leaves the instance, so chunks may end anywhere
  return p;
}

}  // namespace

coupled_instance::coupled_instance(const cost_model& costs, const simulation_options& o,
                                   std::shared_ptr<prefix_tree> tree)
    : costs_(&costs),
      batch_options_(decode_options_of(o)),
      prompt_options_(prompts_of(o)),
      mode_(o.coupled),
      tier_(tier_of(o.hardware, 1, device_write_rule::of(o.device_write, o.selective_hits), std::move(tree))),
      max_batch_(o.hardware.max_batch),
      chunk_(o.coupled == coupled_mode::chunked ? o.coupled_chunk : o.hardware.chunk_tokens),
      jitter_(o.jitter),
      batch_(batch_options_),
      prompts_(prompt_options_) {}

std::optional<next_turn> coupled_instance::wake(ticks now) {
  if (!active_) return next_turn{now, ++stamp_};
  if (!chunks_.empty() || batch_.running().size() >= max_batch_) return std::nullopt;
  // A run of decode steps ends with the one under way.
  const double passed = to_sec(now - began_);
  const double first = run_.seconds - run_.growth / 2;
  double n = passed / run_.seconds;
  if (run_.growth > 0) n = (std::sqrt(first * first + 2 * run_.growth * passed) - first) / run_.growth;
  const auto steps = std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(n - 1e-9)), 1);
  if (steps >= planned_) return std::nullopt;
  planned_ = steps;
  return next_turn{std::max(began_ + from_sec(run_seconds(planned_)), now), ++stamp_};
}

void coupled_instance::turn(ticks now, request_table& requests, log_histogram& gaps, news& out) {
  if (!active_) return;
  busy_ += now - began_;
  settle_steps(gaps, requests, out);
  settle_prompts(requests, out);
  active_ = false;
}

/// Decode steps that are done: tokens for every member.
void coupled_instance::settle_steps(log_histogram& gaps, request_table& requests, news& out) {
  if (planned_ == 0) {
    if (!members_.empty()) stall_ += working_;
    return;
  }
  const double middle = static_cast<double>(planned_ - 1) / 2;
  gaps.add(run_.seconds + middle * run_.growth + (planned_ == 1 ? stall_ : 0),
           static_cast<std::uint64_t>(planned_) * members_.size());
  context_ += static_cast<std::uint64_t>(planned_) * members_.size();
  steps_ += planned_;
  planned_ = 0;
  stall_ = 0;
  while (!members_.empty() && members_.front().finish <= steps_) {
    std::ranges::pop_heap(members_, later);
    const auto [finish, start, slot, place] = members_.back();
    members_.pop_back();
    const auto& r = requests[slot];
    if (tier_) {
      // What stays comes to memory if somebody wants it there.
      if (!place.stays) tier_->wrote(r.decode_tokens);
      tier_->leave(place, r.prompt_tokens + r.decode_tokens);
      tier_->let_go(r.id.value);
    }
    context_ -= std::uint64_t{r.prompt_tokens} + 1 + r.decode_tokens;
    batch_.cancel(r.id);
    out.finished.push_back(slot);
  }
}

void coupled_instance::settle_prompts(request_table& requests, news& out) {
  std::uint64_t tokens = 0;
  for (const auto& c : chunks_) tokens += c.tokens;
  for (const auto& c : chunks_) {
    const auto slot = request_table::slot_of(c.id);
    auto& r = requests[slot];
    r.prefill_seconds += part_of_step(working_, c.tokens, tokens);
    r.computed += c.tokens;
    if (r.computed == r.prompt_tokens) out.first_tokens.push_back(slot);
  }
  prompts_busy_ += from_sec(working_);
  chunks_.clear();
  working_ = 0;
}

bool coupled_instance::decode(std::uint32_t slot, request_table& requests) {
  auto& r = requests[slot];
  r.first_step = steps_;
  r.stall_before = stall_;
  context_ += std::uint64_t{r.prompt_tokens} + 1;
  members_.push_back({steps_ + r.decode_tokens, steps_, slot});
  if (tier_) {
    auto& place = members_.back().place;
    const auto end = r.prompt_tokens + r.decode_tokens;
    place = tier_->join({r.id.value, r.keys, r.prompt_tokens, end, tier_->keeps()});
    load_blocks_ += place.load_blocks;
  }
  const bool stays = members_.back().place.stays;
  std::ranges::push_heap(members_, later);
  return stays;
}

std::optional<next_turn> coupled_instance::next(ticks now, double slowdown, random_source& random,
                                                const request_table& requests) {
  for (const auto id : batch_.admit(time_point{duration{now}})) {
    const auto& r = requests[request_table::slot_of(id)];
    prefill_entry entry;
    entry.id = id;
    entry.prompt_tokens = r.prompt_tokens;
    entry.start = r.cached_tokens;
    entry.priority = r.priority;
    entry.arrival = time_point{duration{r.arrival}};
    prompts_.push(entry);
  }
  take_chunks(now);
  if (chunks_.empty() && members_.empty()) return std::nullopt;
  const bool decodes = !members_.empty() && (chunks_.empty() || mode_ == coupled_mode::chunked);
  const double noise = random.noise(jitter_) * slowdown;
  working_ = prompt_seconds(requests, noise);
  double seconds = working_;
  if (decodes) {
    double step = costs_->decode_step(members_.size(), context_) * noise;
    const bool loads = load_blocks_ > 0;
    if (loads) step = tier_->beside_loads(step, std::exchange(load_blocks_, 0));
    seconds += step;
    run_ = {steps_, seconds, chunks_.empty() ? costs_->decode_growth(members_.size()) * noise : 0};
    // A step after a stall, one that carries a prompt and one that waits for KV is a run of its own.
    planned_ = chunks_.empty() && stall_ == 0 && !loads ? members_.front().finish - steps_ : 1;
    history_.begin({steps_, seconds + stall_, run_.growth}, oldest_start());
    seconds = run_seconds(planned_);
  } else {
    seconds += costs_->prefill_constant();
    working_ = seconds;
  }
  began_ = now;
  active_ = true;
  return next_turn{now + std::max<ticks>(from_sec(seconds), 1), ++stamp_};
}

std::vector<torn_answer> coupled_instance::crash(ticks now, const request_table& requests,
                                                 log_histogram& gaps) {
  std::int64_t over = 0;
  if (active_) busy_ += now - began_;
  // A step that carries a prompt, or follows a stall, is planned alone: it is not over, or it had ended.
  if (active_ && planned_ > 1) over = std::min(steps_over(run_, to_sec(now - began_)), planned_);
  const double middle = static_cast<double>(over - 1) / 2;
  if (over > 0) {
    gaps.add(run_.seconds + middle * run_.growth, static_cast<std::uint64_t>(over) * members_.size());
  }
  steps_ += over;
  // Where no step of this run is over, the last token came at its beginning, or before its stall.
  const auto last = began_ + from_sec(over > 0 ? run_seconds(over) : -stall_);
  std::vector<torn_answer> torn;
  for (const auto& m : members_) {
    const auto& r = requests[m.slot];
    const auto tokens = std::min(steps_ - r.first_step, std::int64_t{r.decode_tokens} - 1);
    torn.push_back({m.slot, static_cast<std::uint32_t>(tokens), tokens > 0 ? last : 0,
                    history_.gaps(r.first_step, r.first_step + tokens, -r.stall_before)});
  }
  forget_kv();
  load_blocks_ = 0;
  members_.clear();
  chunks_.clear();
  planned_ = 0;
  context_ = 0;
  stall_ = working_ = 0;
  batch_ = decode_batch{batch_options_};
  prompts_ = prefill_batch{prompt_options_};
  active_ = false;
  ++stamp_;
  return torn;
}

void coupled_instance::take_chunks(ticks now) {
  const auto at = time_point{duration{now}};
  switch (mode_) {
    case coupled_mode::chunked: {
      const auto used = static_cast<std::uint32_t>(std::min<std::size_t>(members_.size(), chunk_ - 1));
      chunks_ = prompts_.next(at, chunk_ - used);
      return;
    }
    case coupled_mode::batched:
      chunks_ = prompts_.next(at, chunk_);
      return;
    case coupled_mode::one_by_one:
      chunks_ = prompts_.next_prompt(at);
      return;
    case coupled_mode::off:
      return;
  }
}

/// Of the chunks. @param slowdown  of computing, not of the device's link.
double coupled_instance::prompt_seconds(const request_table& requests, double slowdown) {
  double sum = 0;
  items_.clear();
  for (const auto& c : chunks_) {
    const auto& r = requests[request_table::slot_of(c.id)];
    const double part = costs_->chunk({c.start, c.tokens, c.start == r.cached_tokens ? r.cached_tokens : 0});
    sum += part;
    if (tier_) items_.push_back({c.id.value, r.keys, c.start, c.tokens, part * slowdown});
  }
  return tier_ ? tier_->pass(items_, 0) : sum * slowdown;
}

instance_load coupled_instance::load() const {
  instance_load l;
  l.running = static_cast<std::uint32_t>(members_.size());
  l.waiting = static_cast<std::uint32_t>(waiting());
  l.context_tokens = context_;
  if (planned_ > 0 && chunks_.empty())
    l.step = {static_cast<std::uint64_t>(steps_) + 1, l.running, context_, from_seconds(run_.seconds)};
  return l;
}

std::int64_t coupled_instance::oldest_start() const noexcept {
  if (history_.size() < 512 || history_.size() % 64 != 0) return 0;
  auto oldest = steps_;
  for (const auto& m : members_) oldest = std::min(oldest, m.start);
  return oldest;
}

}  // namespace mooncaf::sim
