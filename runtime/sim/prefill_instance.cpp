#include "runtime/sim/prefill_instance.hpp"

#include <algorithm>

namespace mooncaf::sim {

std::optional<prefill_instance::started> prefill_instance::start(ticks now, double slowdown,
                                                                 random_source& random,
                                                                 const request_table& requests) {
  if (taken_ || queue_.size() == 0) return std::nullopt;
  prefill_step step;
  step.chunks = queue_.next(time_point{duration{now}});
  if (step.chunks.empty()) return std::nullopt;
  const double seconds = seconds_of(step.chunks, random.noise(jitter_) * slowdown, requests);
  const auto stage = std::max<ticks>(from_sec(seconds / stages_), 1);
  step.began = now;
  step.stage = stage;
  step.seconds = seconds;
  for (const auto& c : step.chunks) step.tokens += c.tokens;
  // Behind a longer step it waits at some stage, and leaves one stage's time after it at the earliest.
  step.exits = now + stage * stages_ + hop_ * (stages_ - 1);
  if (stages_ > 1) step.exits = std::max(step.exits, last_exit_ + stage);
  last_exit_ = step.exits;
  taken_ = true;
  free_at_ = now + stage;
  busy_ += stage;
  const started out{now + stage, step.exits};
  steps_.push_back(std::move(step));
  return out;
}

/// All stages together. @param slowdown  of computing, not of the device's link.
double prefill_instance::seconds_of(const std::vector<prefill_chunk>& chunks, double slowdown,
                                    const request_table& requests) {
  double seconds = costs_->prefill_constant();
  items_.clear();
  for (const auto& c : chunks) {
    const auto& r = requests[request_table::slot_of(c.id)];
    const double part = costs_->chunk({c.start, c.tokens, c.start == r.cached_tokens ? r.cached_tokens : 0});
    seconds += part;
    if (tier_) items_.push_back({c.id.value, r.keys, c.start, c.tokens, part * slowdown});
  }
  return tier_ ? tier_->pass(items_, costs_->prefill_constant() * slowdown) : seconds * slowdown;
}

}  // namespace mooncaf::sim
