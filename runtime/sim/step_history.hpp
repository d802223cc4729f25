#pragma once
// How long each step of an instance took, in runs: the source of the gaps between a request's tokens.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "runtime/sched/slowest_gaps.hpp"

namespace mooncaf::sim {

/// Steps first, first + 1, … of an instance; step first + i takes `seconds` + i·`growth`.
struct step_run {
  std::int64_t first = 0;
  double seconds = 0;
  double growth = 0;
};

/// Steps of a run that are over `seconds` after it began.
inline std::int64_t steps_over(const step_run& run, double seconds) noexcept {
  if (run.seconds <= 0) return 0;
  const double first = run.seconds - run.growth / 2;
  double n = seconds / run.seconds;
  if (run.growth > 0) n = (std::sqrt(first * first + 2 * run.growth * seconds) - first) / run.growth;
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(n + 1e-9)), 0);
}

/// Gaps between tokens: how long, how many.
using token_gaps = std::vector<std::pair<double, std::int64_t>>;

/// The figure that stands for the TBT of a request.
enum class tbt_metric : std::uint8_t {
  slowest_tenth,  ///< mean of its slowest tenth of gaps (F25, section 5.2); at least ten gaps, if it has as
                  ///< many, so that one slow hand-over does not decide over an answer of a few words
  p90,            ///< nine tenths of its gaps are at most this (arXiv 2407.00079, section 8)
};

/// Runs of steps with the same batch. While no request joins or leaves, an instance's steps are one run,
/// however many they are.
class step_history {
 public:
  /// Begins a run at step `first`; the run before ends there. Runs before `oldest`, which no request needs
  /// any more, are forgotten now and then.
  void begin(const step_run& run, std::int64_t oldest) {
    if (!runs_.empty() && runs_.back().first == run.first) {
      runs_.back() = run;
      return;
    }
    runs_.push_back(run);
    auto useless = runs_.begin();
    while (runs_.end() - useless > 1 && (useless + 1)->first <= oldest) ++useless;
    runs_.erase(runs_.begin(), useless);
  }

  /// TBT of a request that took part in steps [from, to) and waited `wait` seconds between its first token
  /// and its first step.
  /// @param before  gaps of the same request elsewhere, which count as well.
  /// @param fine    where the TBT is plainly no longer than that, a bound of it that is not either will do.
  double tbt(std::int64_t from, std::int64_t to, double wait, tbt_metric metric,
             std::span<const token_gaps::value_type> before = {}, double fine = 0) {
    auto gaps = to - from;
    scratch_.clear();
    if (gaps > 0) collect_gaps(from, to, wait);
    for (const auto& g : before) {
      gaps += g.second;
      scratch_.push_back(g);
    }
    if (gaps <= 0) return 0;
    const auto tenth = metric == tbt_metric::p90 ? gaps / 10 + 1 : slow_gaps_of(gaps);
    if (fine > 0) {
      const double most = at_most(tenth, fine);
      if (most <= fine) return most;
    }
    auto left = tenth;
    double sum = 0, slowest_left = 0;
    for (const auto& [seconds, count] : slowest(tenth)) {
      const auto n = std::min(left, count);
      slowest_left = seconds;
      sum += slowest_left * static_cast<double>(n);
      left -= n;
      if (left == 0) break;
    }
    return metric == tbt_metric::p90 ? slowest_left : sum / static_cast<double>(tenth - left);
  }

  /// The gaps of a request that took part in steps [from, to), as above.
  token_gaps gaps(std::int64_t from, std::int64_t to, double wait) {
    scratch_.clear();
    if (to > from) collect_gaps(from, to, wait);
    return scratch_;
  }

  std::size_t size() const noexcept { return runs_.size(); }

 private:
  /// Of the scratch, a bound of the mean of the slowest `tenth` gaps, and of the longest of the others: gaps
  /// above `fine` count as they are, the rest as the longest below it. Nothing needs to be put in order.
  double at_most(std::int64_t tenth, double fine) const {
    double longer = 0, longest_fine = 0;
    std::int64_t long_ones = 0;
    for (const auto& [seconds, count] : scratch_) {
      if (seconds > fine) longer += seconds * static_cast<double>(count), long_ones += count;
      else longest_fine = std::max(longest_fine, seconds);
    }
    if (long_ones >= tenth) return std::numeric_limits<double>::infinity();
    return (longer + longest_fine * static_cast<double>(tenth - long_ones)) / static_cast<double>(tenth);
  }
  std::size_t first_run(std::int64_t step) const {
    const auto behind = std::ranges::upper_bound(runs_, step, {}, &step_run::first);
    return behind == runs_.begin() ? 0 : static_cast<std::size_t>(behind - runs_.begin()) - 1;
  }
  /// Of the scratch: at least so many gaps, the slowest first. Only possible ones are put in order.
  std::span<const token_gaps::value_type> slowest(std::int64_t wanted) {
    constexpr std::ptrdiff_t few = 16;
    auto begin = scratch_.begin(), end = scratch_.end();
    while (end - begin > few) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, std::greater{});
      std::int64_t gaps = 0;
      for (auto i = begin; i < middle; ++i) gaps += i->second;
      if (gaps >= wanted) {
        end = middle;
      } else {
        wanted -= gaps;
        begin = middle;
      }
    }
    std::sort(scratch_.begin(), end, std::greater{});
    return {scratch_.begin(), end};
  }
  /// The gaps of a request, into the scratch.
  void collect_gaps(std::int64_t from, std::int64_t to, double wait) {
    auto i = first_run(from);
    scratch_.emplace_back(
        wait + runs_[i].seconds + static_cast<double>(from - runs_[i].first) * runs_[i].growth, 1);
    for (; i < runs_.size() && runs_[i].first < to; ++i) collect(i, from + 1, to);
  }
  /// The part of run `i` that lies in [from, to): its middle stands for all of its steps, which differ by
  /// less than a batch times the cost of a context token each.
  void collect(std::size_t i, std::int64_t from, std::int64_t to) {
    const auto& run = runs_[i];
    const auto begin = std::max(from, run.first);
    const auto end = i + 1 < runs_.size() ? std::min(to, runs_[i + 1].first) : to;
    if (end <= begin) return;
    const double middle = static_cast<double>(begin + end - 1) / 2 - static_cast<double>(run.first);
    scratch_.emplace_back(run.seconds + middle * run.growth, end - begin);
  }

  std::vector<step_run> runs_;
  token_gaps scratch_;
};

}  // namespace mooncaf::sim
