#include "runtime/sim/coupled_instance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mooncaf::sim {

namespace {

constexpr auto later = [](const auto& a, const auto& b) {
  return a.finish != b.finish ? a.finish > b.finish : a.slot > b.slot;
};

}  // namespace

coupled_instance::coupled_instance(const cost_model& costs, const simulation_options& o,
                                   std::shared_ptr<prefix_tree> tree)
    : costs_(&costs),
      batch_options_(decode_options_of(o)),
      tier_(tier_of(o.hardware, 1, device_write_rule::of(o.device_write, o.selective_hits), std::move(tree))),
      max_batch_(o.hardware.max_batch),
      jitter_(o.jitter),
      batch_(batch_options_),
      prompts_(costs, o) {}

std::optional<next_turn> coupled_instance::wake(ticks now) {
  if (!active_) return next_turn{now, ++stamp_};
  if (prompts_.under_way() || batch_.running().size() >= max_batch_) return std::nullopt;
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
  prompts_.settle(requests, out.first_tokens);
  active_ = false;
}

/// Decode steps that are done: tokens for every member.
void coupled_instance::settle_steps(log_histogram& gaps, request_table& requests, news& out) {
  if (planned_ == 0) {
    if (!members_.empty()) stall_ += prompts_.working();
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
      // KV that stays on the device comes to memory when a request wants it there.
      if (!place.stays) tier_->wrote(r.decode_tokens);
      tier_->leave(place, r.prompt_tokens + r.decode_tokens);
      tier_->let_go(r.id.value);
    }
    context_ -= std::uint64_t{r.prompt_tokens} + 1 + r.decode_tokens;
    batch_.cancel(r.id);
    out.finished.push_back(slot);
  }
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
  for (const auto id : batch_.admit(time_point{duration{now}}))
    prompts_.push(requests[request_table::slot_of(id)]);
  prompts_.choose(now, members_.size());
  if (!prompts_.under_way() && members_.empty()) return std::nullopt;
  const bool decodes = !members_.empty() && (!prompts_.under_way() || prompts_.beside_decoding());
  const double noise = random.noise(jitter_) * slowdown;
  double seconds = prompts_.seconds(requests, noise, tier_);
  if (decodes) {
    double step = costs_->decode_step(members_.size(), context_) * noise;
    const bool loads = load_blocks_ > 0;
    if (loads) step = tier_->beside_loads(step, std::exchange(load_blocks_, 0));
    seconds += step;
    run_ = {steps_, seconds, !prompts_.under_way() ? costs_->decode_growth(members_.size()) * noise : 0};
    // A step after a stall, one that carries a prompt and one that waits for KV is a run of its own.
    planned_ = !prompts_.under_way() && stall_ == 0 && !loads ? members_.front().finish - steps_ : 1;
    history_.begin({steps_, seconds + stall_, run_.growth}, oldest_start());
    seconds = run_seconds(planned_);
  } else {
    seconds += costs_->prefill_constant();
    prompts_.takes(seconds);
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
  prompts_.clear();
  planned_ = 0;
  context_ = 0;
  stall_ = 0;
  batch_ = decode_batch{batch_options_};
  active_ = false;
  ++stamp_;
  return torn;
}

instance_load coupled_instance::load() const {
  instance_load l;
  l.running = static_cast<std::uint32_t>(members_.size());
  l.waiting = static_cast<std::uint32_t>(waiting());
  l.context_tokens = context_;
  if (planned_ > 0 && !prompts_.under_way())
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
