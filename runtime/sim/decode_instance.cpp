#include "runtime/sim/decode_instance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mooncaf::sim {

decode_batch_options decode_options_of(const simulation_options& o) {
  decode_batch_options d;
  d.max_batch = o.decode_profile().max_batch;
  d.max_context_tokens = o.decode_profile().device_kv_tokens;
  d.aging = from_seconds(o.ttft_slo_s);
  return d;
}

bool decode_instance::push(const decode_entry& entry, std::uint32_t tokens) {
  auto longest = entry;
  longest.max_tokens = std::max(longest.max_tokens, tokens);
  return batch_.push(longest);
}

/// The least number of steps that take `seconds` or longer.
std::int64_t decode_instance::steps_within(double seconds) const noexcept {
  const double first = run_.seconds - run_.growth / 2;
  double n = seconds / run_.seconds;
  if (run_.growth > 0) n = (std::sqrt(first * first + 2 * run_.growth * seconds) - first) / run_.growth;
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::ceil(n - 1e-9)), 0);
}

std::optional<next_turn> decode_instance::wake(ticks now) {
  if (planned_ == 0) return next_turn{now, ++stamp_};
  return batch_.running().size() >= max_batch_ ? std::nullopt : cut(now);
}

std::optional<next_turn> decode_instance::cut(ticks now) {
  const auto steps = std::max<std::int64_t>(steps_within(to_sec(now - began_)), 1);
  if (steps >= planned_) return std::nullopt;
  planned_ = steps;
  return next_turn{std::max(began_ + from_sec(run_seconds(planned_)), now), ++stamp_};
}

std::optional<next_turn> decode_instance::turn(ticks now, double slowdown, random_source& random,
                                               request_table& requests, log_histogram& gaps,
                                               std::vector<std::uint32_t>& finished) {
  if (planned_ > 0) {
    count_gaps(gaps);
    busy_ += now - began_;
    context_ += static_cast<std::uint64_t>(planned_) * members_.size();
    latest_ = step_of_run(planned_);
    steps_ += planned_;
    planned_ = 0;
    retire(requests, finished);
  }
  if (batch_.waiting() > 0) join(now, requests);
  return begin_run(now, slowdown, random);
}

void decode_instance::count_gaps(log_histogram& gaps) const {
  // A long run is counted in parts, since its steps grow.
  const std::int64_t parts = run_.growth * static_cast<double>(planned_) > 0.04 * run_.seconds ? 4 : 1;
  for (std::int64_t p = 0; p < parts; ++p) {
    const auto begin = planned_ * p / parts, end = planned_ * (p + 1) / parts;
    if (end == begin) continue;
    const double middle = static_cast<double>(begin + end - 1) / 2;
    gaps.add(run_.seconds + middle * run_.growth, static_cast<std::uint64_t>(end - begin) * members_.size());
  }
}

void decode_instance::retire(request_table& requests, std::vector<std::uint32_t>& finished) {
  while (!members_.empty() && members_.front().finish <= steps_) {
    std::ranges::pop_heap(members_, later);
    const auto [finish, start, turn, slot, place] = members_.back();
    members_.pop_back();
    const auto& r = requests[slot];
    if (tier_) {
      tier_->leave(place, r.prompt_tokens + r.decode_tokens);
      tier_->wrote(r.decode_tokens);
    }
    context_ -= std::uint64_t{r.prompt_tokens} + 1 + r.decode_tokens;
    batch_.cancel(r.id);
    finished.push_back(slot);
  }
}

void decode_instance::join(ticks now, request_table& requests) {
  for (const auto id : batch_.admit(time_point{duration{now}})) {
    const auto slot = request_table::slot_of(id);
    auto& r = requests[slot];
    r.first_step = steps_;
    r.joined = now;
    context_ += std::uint64_t{r.prompt_tokens} + 1;  // the first token came from prefill
    members_.push_back({steps_ + r.decode_tokens, steps_, joined_++, slot});
    if (tier_) {
      auto& place = members_.back().place;
      place = tier_->join({id.value, r.keys, r.prompt_tokens, r.prompt_tokens + r.decode_tokens});
      load_blocks_ += place.load_blocks;
    }
    std::ranges::push_heap(members_, later);
  }
}

std::optional<next_turn> decode_instance::begin_run(ticks now, double slowdown, random_source& random) {
  if (members_.empty()) return std::nullopt;
  const double factor = random.noise(jitter_) * slowdown;
  run_ = {steps_, costs_->decode_step(members_.size(), context_) * factor,
          costs_->decode_growth(members_.size()) * factor};
  run_batch_ = static_cast<std::uint32_t>(members_.size());
  run_context_ = context_;
  planned_ = members_.front().finish - steps_;
  if (load_blocks_ > 0) {  // the first step after a request joined is a run of its own
    run_.seconds = tier_->beside_loads(run_.seconds, std::exchange(load_blocks_, 0));
    planned_ = 1;
  }
  history_.begin(run_, oldest_start());
  began_ = now;
  return next_turn{now + std::max<ticks>(from_sec(run_seconds(planned_)), 1), ++stamp_};
}

std::int64_t decode_instance::oldest_start() const noexcept {
  if (history_.size() < 512 || history_.size() % 64 != 0) return 0;
  auto oldest = steps_;
  for (const auto& m : members_) oldest = std::min(oldest, m.start);
  return oldest;
}

std::vector<torn_answer> decode_instance::crash(ticks now, const request_table& requests,
                                                log_histogram& gaps) {
  if (planned_ > 0) {
    planned_ = std::min(steps_over(run_, to_sec(now - began_)), planned_);
    count_gaps(gaps);
    busy_ += now - began_;
    steps_ += planned_;
  }
  const auto last = began_ + from_sec(run_seconds(planned_));
  std::vector<torn_answer> torn;
  for (const auto& m : members_) {
    const auto& r = requests[m.slot];
    // An answer that is complete by now has no further token on its way.
    const auto tokens = std::min(steps_ - r.first_step, std::int64_t{r.decode_tokens} - 1);
    torn.push_back({m.slot, static_cast<std::uint32_t>(tokens), tokens > 0 ? last : 0,
                    history_.gaps(r.first_step, r.first_step + tokens, to_sec(r.joined - r.first_token))});
  }
  forget_kv();
  load_blocks_ = 0;
  planned_ = 0;
  latest_ = {};
  context_ = 0;
  run_batch_ = 0;
  members_.clear();
  batch_ = decode_batch{options_};
  ++stamp_;
  return torn;
}

/// Jitter is drawn once for a run: whoever learns from several of its steps must not take them for as many draws,
/// so the first stands for all.
/// @param number  in the run, from 1.
timed_step decode_instance::step_of_run(std::int64_t number) const noexcept {
  if (jitter_ > 0) number = 1;
  const auto before = static_cast<std::uint64_t>(number - 1);
  const double seconds = run_.seconds + run_.growth * static_cast<double>(before);
  return {static_cast<std::uint64_t>(steps_ + number), run_batch_, run_context_ + before * run_batch_,
          duration{from_sec(seconds)}};
}

instance_load decode_instance::load(ticks now) const {
  instance_load l;
  l.running = static_cast<std::uint32_t>(batch_.running().size());
  l.waiting = static_cast<std::uint32_t>(batch_.waiting());
  const auto over = planned_ > 0 ? std::min(steps_over(run_, to_sec(now - began_)), planned_) : 0;
  // The next token of each is in no block yet.
  l.context_tokens = context_ + static_cast<std::uint64_t>(over) * members_.size() - members_.size();
  l.step = over > 0 ? step_of_run(over) : latest_;
  return l;
}

}  // namespace mooncaf::sim
