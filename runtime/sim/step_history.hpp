#pragma once
// How long each step of an instance took, in runs: the source of the gaps between a request's tokens.

#include <algorithm>
#include <cmath>
#include <cstdint>
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

/// Seconds between tokens as a gateway measures them: whole microseconds. No double's rounding takes one away.
inline double whole_us(double seconds) noexcept { return std::floor(seconds * 1e6 + 1e-3) * 1e-6; }

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
    for (const auto& [seconds, count] : before) {
      gaps += count;
      scratch_.push_back({seconds, 0, count});
    }
    if (gaps <= 0) return 0;
    const auto tenth = metric == tbt_metric::p90 ? gaps / 10 + 1 : slow_gaps_of(gaps);
    if (fine > 0) {
      const double most = at_most(tenth, fine);
      if (most <= fine) return most;
    }
    const auto [sum, last, taken] = take_slowest(tenth);
    return metric == tbt_metric::p90 ? last : sum / static_cast<double>(taken);
  }

  /// The gaps of a request that took part in steps [from, to), as above; of a run all as long as its middle one.
  token_gaps gaps(std::int64_t from, std::int64_t to, double wait) {
    scratch_.clear();
    if (to > from) collect_gaps(from, to, wait);
    token_gaps out;
    for (const auto& g : scratch_)
      out.emplace_back(g.longest - g.shorter * static_cast<double>(g.count - 1) / 2, g.count);
    return out;
  }

  std::size_t size() const noexcept { return runs_.size(); }

 private:
  /// Gaps of one run, from the longest down: each is `shorter` less than the one before it.
  struct falling_gaps {
    double longest = 0;
    double shorter = 0;
    std::int64_t count = 0;
  };
  struct slow_gaps {
    double sum = 0, last = 0;
    std::int64_t count = 0;
  };

  /// Of the scratch, a bound of the mean of the slowest `tenth` gaps, and of the longest of the others: runs
  /// with a gap above `fine` count as that one, the rest as the longest below it. Nothing needs to be put in
  /// order.
  double at_most(std::int64_t tenth, double fine) const {
    double longer = 0, longest_fine = 0;
    std::int64_t long_ones = 0;
    for (const auto& g : scratch_) {
      if (g.longest > fine) longer += g.longest * static_cast<double>(g.count), long_ones += g.count;
      else longest_fine = std::max(longest_fine, g.longest);
    }
    if (long_ones >= tenth) return std::numeric_limits<double>::infinity();
    return (longer + longest_fine * static_cast<double>(tenth - long_ones)) / static_cast<double>(tenth);
  }

  /// The slowest gaps of the scratch, at most so many of them, gap by gap: runs overlap where contexts grow.
  slow_gaps take_slowest(std::int64_t wanted) {
    const auto less = [](const falling_gaps& a, const falling_gaps& b) { return a.longest < b.longest; };
    std::ranges::make_heap(scratch_, less);
    slow_gaps out;
    while (out.count < wanted && !scratch_.empty()) {
      std::ranges::pop_heap(scratch_, less);
      auto run = scratch_.back();
      scratch_.pop_back();
      const double next = scratch_.empty() ? 0 : scratch_.front().longest;
      do {
        out.last = whole_us(run.longest);
        out.sum += out.last;
        ++out.count;
        --run.count;
        run.longest -= run.shorter;
      } while (out.count < wanted && run.count > 0 && run.longest >= next);
      if (run.count == 0) continue;
      scratch_.push_back(run);
      std::ranges::push_heap(scratch_, less);
    }
    return out;
  }
  std::size_t first_run(std::int64_t step) const {
    const auto behind = std::ranges::upper_bound(runs_, step, {}, &step_run::first);
    return behind == runs_.begin() ? 0 : static_cast<std::size_t>(behind - runs_.begin()) - 1;
  }
  /// The gaps of a request, into the scratch.
  void collect_gaps(std::int64_t from, std::int64_t to, double wait) {
    auto i = first_run(from);
    scratch_.push_back({wait + seconds_of(runs_[i], from), 0, 1});
    for (; i < runs_.size() && runs_[i].first < to; ++i) collect(i, from + 1, to);
  }
  /// The part of run `i` that lies in [from, to).
  void collect(std::size_t i, std::int64_t from, std::int64_t to) {
    const auto& run = runs_[i];
    const auto begin = std::max(from, run.first);
    const auto end = i + 1 < runs_.size() ? std::min(to, runs_[i + 1].first) : to;
    if (end > begin) scratch_.push_back({seconds_of(run, end - 1), run.growth, end - begin});
  }
  static double seconds_of(const step_run& run, std::int64_t step) noexcept {
    return run.seconds + static_cast<double>(step - run.first) * run.growth;
  }

  std::vector<step_run> runs_;
  std::vector<falling_gaps> scratch_;
};

}  // namespace mooncaf::sim
