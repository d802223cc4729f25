#pragma once
// How long requests decode, learnt from those that ended, and what follows for those that have not.

#include <array>
#include <cstdint>
#include <deque>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Distribution of decode times by prompt length, from what has been seen: older observations fade. All that
/// a scheduler can know of an answer's length before it is there.
/// @thread  Owned by the conductor; not synchronised.
class decode_times {
 public:
  static constexpr std::size_t classes = 4;

  /// Prompts of similar length have answers of similar length more often than not.
  static std::size_t class_of(std::uint64_t prompt_tokens) noexcept {
    return prompt_tokens < 2048 ? 0 : prompt_tokens < 8192 ? 1 : prompt_tokens < 32768 ? 2 : 3;
  }

  /// A request of this class decoded for so long and ended.
  void observe(std::size_t c, duration took) noexcept;
  /// Of those that have decoded for `elapsed`, the share that will still do so `later`. Until enough has been
  /// seen, all are taken to last `otherwise`.
  double still_there(std::size_t c, duration elapsed, duration later, duration otherwise) const noexcept;

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
    std::uint32_t undrawn = 0;
  };
  void draw(history& of) noexcept;
  std::array<history, classes> of_;
};

/// The decode load at a later moment: every request that is charged counts with the chance that it will be
/// decoding then. Requests are kept in buckets of the time at which their prefill ended (or will), so the
/// answer costs the same with ten requests and with a million.
///
///   prefill ends   ··|··1·|·2··|··1·|····|·3··|···
///   still there      × .1   × .3  × .5        × 1     ──► expected requests and context at T
///
/// Better than one t_d for all: answers differ by a factor of a hundred, and who has lasted long lasts
/// longer.
/// @thread  Owned by the conductor; not synchronised.
class decode_survival {
 public:
  /// @param span  taken as every request's decode time until enough have ended.
  explicit decode_survival(duration span) : span_(span) {}

  struct load {
    double requests = 0;
    double context_tokens = 0;
  };

  void add(time_point prefill_end, std::uint64_t prompt_tokens);
  /// Undoes an `add` with the same arguments.
  void remove(time_point prefill_end, std::uint64_t prompt_tokens);
  /// A request ended by itself after decoding from `began` to `now`.
  void observe(time_point began, std::uint64_t prompt_tokens, time_point now) noexcept;
  /// @cost  one multiplication per quarter second of prefills that ended of late or are to end.
  load at(time_point when, time_point now) const;
  void trim(time_point now);

 private:
  struct bucket {
    std::array<std::uint32_t, decode_times::classes> requests{};
    std::array<std::uint64_t, decode_times::classes> context{};
  };
  static constexpr std::int64_t width = 250'000'000;  // ns
  static constexpr std::int64_t kept = 512;           // buckets behind now; older ones count as the oldest
  static std::int64_t number_of(time_point t) noexcept { return t.time_since_epoch().count() / width; }
  bucket* find(time_point t);

  duration span_;
  decode_times times_;
  std::int64_t first_ = 0;
  std::deque<bucket> buckets_;
};

}  // namespace mooncaf
