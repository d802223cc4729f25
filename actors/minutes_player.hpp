#pragma once
// Minutes of a conductor that are played again, as a task of an executor.

#include <ctime>
#include <functional>
#include <utility>
#include <vector>

#include "actors/interfaces.hpp"
#include "runtime/sched/admission_rule.hpp"
#include "runtime/sched/shadow_question.hpp"

namespace mooncaf {

/// Its outcome is there once it has run.
class minutes_player final : public blocking_task {
 public:
  using play_function = std::function<std::vector<played_rule>(const shadow_question&)>;

  minutes_player(shadow_question question, play_function play)
      : question_(std::move(question)), play_(std::move(play)) {}

  void run() override {
    const auto began = worked();
    rules_ = play_(question_);
    took_ = worked() - began;
  }
  const std::vector<played_rule>& rules() const noexcept { return rules_; }
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
  std::vector<played_rule> rules_;
  duration took_{};
};

}  // namespace mooncaf
