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
  double seconds = costs_->prefill_constant();
  for (const auto& c : step.chunks) {
    const auto cached = requests[request_table::slot_of(c.id)].cached_tokens;
    seconds += costs_->chunk({c.start, c.tokens, c.start == cached ? cached : 0});
  }
  seconds *= random.noise(jitter_) * slowdown;
  const auto stage = std::max<ticks>(from_sec(seconds / stages_), 1);
  step.began = now;
  step.seconds = seconds;
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

}  // namespace mooncaf::sim
