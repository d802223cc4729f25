#pragma once
// How long requests decode: learnt from ended ones, and foreseen for the others.

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/sched/answer_class.hpp"
#include "runtime/sched/sparse_buckets.hpp"
#include "runtime/sched/speed_class.hpp"

namespace mooncaf {

/// Distribution of observed decode times and answer lengths by class: older observations fade. All that a
/// scheduler can know of an answer before it is there.
/// @thread  Owned by the conductor; not synchronised.
class decode_times {
 public:
  static constexpr std::size_t classes = answer_class::count;

  /// A request of this class decoded for so long and ended. @param tokens  of its answer; 0: not known.
  void observe(std::size_t c, duration took, std::uint32_t tokens = 0) noexcept;
  /// Of requests that have decoded for `elapsed`, the share that will still do so `later`. Until enough has
  /// been seen of a class it is taken for the mean of all; until enough has been seen of any, all are taken
  /// to last `otherwise`.
  double still_there(std::size_t c, duration elapsed, duration later, duration otherwise) const noexcept;
  /// Mean decode time in seconds, by the same rule.
  double mean_seconds(std::size_t c, duration otherwise) const noexcept;
  /// Mean length of all answers; a guess until enough have been seen.
  double mean_tokens() const noexcept { return any_.answers < enough ? 256 : any_.tokens / any_.answers; }
  /// Tokens that five of six answers of the class do not exceed: the mean and one standard deviation. Until
  /// enough has been seen, `otherwise`.
  double likely_tokens(std::size_t c, double otherwise) const noexcept;

 private:
  static constexpr std::size_t buckets = 64;  // of a fifth of an octave, from 50 ms: up to six minutes
  static constexpr double enough = 16;

  static constexpr std::size_t points = 512;  // of a curve, each a quarter second later
  static constexpr std::int64_t point_ns = 250'000'000;
  static constexpr std::uint32_t redraw_every = 32;  // observations

  static std::size_t bucket_of(double seconds) noexcept;
  static const std::array<double, buckets + 1>& edges() noexcept;

  struct history {
    std::array<double, buckets> seen{};
    std::array<double, points>
        beyond{};  ///< share that lasts longer, by time: drawn from `seen` now and then
    double total = 0;
    double seconds = 0;                                  ///< sum, fading like `total`
    double answers = 0, tokens = 0, tokens_squared = 0;  ///< sums
    std::uint32_t undrawn = 0;
  };
  void observe(history& of, duration took, std::uint32_t tokens) noexcept;
  void draw(history& of) noexcept;
  const history* known(std::size_t c) const noexcept;
  std::array<history, classes> of_;
  history any_;
};

/// The decode load at a later moment: every request that is charged counts with the chance that it will be
/// decoding then. Requests are kept by the time at which their prefill ended (or will), so the answer costs
/// the same with ten requests of a quarter second and with a thousand.
///
///   prefill ends   ··|··1·|·2··|··1·|····|·3··|···
///   still there      × .1   × .3  × .5        × 1     ──► expected requests and context at T
///
/// Until as many have ended as are under way, the ones that ended were short: no request is expected to
/// end. Better than one t_d for all: answers differ by a factor of a hundred, and one that has lasted long
/// lasts longer. Memory follows the requests that are charged, not the time that passes between them.
/// @thread  Owned by the conductor; not synchronised.
class decode_survival {
 public:
  /// @param span  taken as every request's decode time until enough have ended.
  explicit decode_survival(duration span) : span_(span) {}

  /// A request as predictions count it.
  struct decoding {
    std::uint64_t context_tokens = 0;
    std::uint64_t memory_tokens = 0;  ///< that its decode instance keeps for it
    std::size_t answer = 0;           ///< `answer_class`
    instance_slot slot = 0;           ///< where it decodes
  };
  struct load {
    double requests = 0;
    double context_tokens = 0;
    double memory_tokens = 0;
    double memory_variance = 0;
  };

  void add(time_point prefill_end, const decoding& d);
  /// Undoes an `add` with the same arguments.
  void remove(time_point prefill_end, const decoding& d);
  /// A request ended by itself after decoding from `began` to `now`. @param tokens  of its answer; 0:
  /// unknown.
  void observe(time_point began, std::size_t answer, time_point now, std::uint32_t tokens = 0) noexcept;
  /// … of the whole pool. @cost  one multiplication per class and quarter second in which a prefill ended or
  /// is to end.
  load at(time_point when, time_point now) const { return sum(all_, when, now); }
  /// … of one instance.
  load at(instance_slot slot, time_point when, time_point now) const {
    return slot < by_slot_.size() ? sum(by_slot_[slot], when, now) : load{};
  }
  double mean_seconds(std::size_t answer) const noexcept { return times_.mean_seconds(answer, span_); }
  double mean_tokens() const noexcept { return times_.mean_tokens(); }
  /// Room that an answer of this class is likely to need, at most `max_tokens`; that of an ordinary answer
  /// until enough has been seen.
  std::uint64_t likely_tokens(std::size_t answer, std::uint32_t max_tokens) const noexcept;
  /// Quarter seconds and classes that hold something.
  std::size_t buckets() const noexcept { return all_.size(); }

 private:
  struct bucket {
    std::uint64_t requests = 0, context = 0, memory = 0;
  };
  using key = std::pair<std::int64_t, std::size_t>;  // quarter second, class
  using crowd = sparse_buckets<key, bucket>;
  static constexpr std::int64_t width = 250'000'000;  // ns
  static std::int64_t number_of(time_point t) noexcept { return t.time_since_epoch().count() / width; }
  static void add(crowd& to, const key& k, const decoding& d);
  static void remove(crowd& from, const key& k, const decoding& d);
  load sum(const crowd& of, time_point when, time_point now) const;

  duration span_;
  decode_times times_;
  crowd all_;
  std::vector<crowd> by_slot_;
  std::uint64_t under_way_ = 0, ended_ = 0;
};

}  // namespace mooncaf
