#pragma once
// Minutes of a conductor that are played again, as a task of an executor.

#include <ctime>
#include <functional>
#include <utility>

#include "actors/interfaces.hpp"
#include "runtime/sched/shadow_question.hpp"
#include "runtime/sched/what_if.hpp"

namespace mooncaf {

/// Its outcome is there once it has run.
class minutes_player final : public blocking_task {
 public:
  using play_function = std::function<played_minutes(const shadow_question&)>;

  minutes_player(shadow_question question, play_function play)
      : question_(std::move(question)), play_(std::move(play)) {}

  void run() override {
    const auto began = worked();
    played_ = play_(question_);
    took_ = worked() - began;
  }
  const played_minutes& played() const noexcept { return played_; }
  /// Processor time.
  duration took() const noexcept { return took_; }

 private:
  static duration worked() noexcept {
    timespec t{};
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);  // fails for no thread that runs
    return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
  }

  shadow_question question_;
  play_function play_;
  played_minutes played_;
  duration took_{};
};

}  // namespace mooncaf
