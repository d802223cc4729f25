#pragma once
// How much decoding there will be when a prefill ends.

#include <cstdint>

#include "runtime/base/units.hpp"
#include "runtime/sched/sparse_buckets.hpp"

namespace mooncaf {

/// Requests by the time at which their prefill ends, so that the load of the decode pool at a later time is a
/// sum: requests out of prefill by then, less the ones that will have decoded for `span` (t_d) since.
///
///   prefill ends:   ···|··1·|·2··|··1·|····|·3··|···     buckets of span / 32
///                        └──── (T - span, T] ───┘  ──► 7 requests decode at T
///
/// Memory follows the requests, not the time between them.
/// @source  Mooncake (arXiv 2407.00079), section 7.4, early rejection based on prediction.
/// @thread  Owned by the conductor; not synchronised.
class decode_forecast {
 public:
  /// @param span  more than zero.
  explicit decode_forecast(duration span);

  struct load {
    std::uint64_t requests = 0;
    std::uint64_t context_tokens = 0;
    std::uint64_t memory_tokens = 0;  ///< that they are charged for: context and the answer's room
  };

  void add(time_point prefill_end, std::uint64_t context_tokens, std::uint64_t memory_tokens = 0);
  /// Undoes an `add` with the same arguments.
  void remove(time_point prefill_end, std::uint64_t context_tokens, std::uint64_t memory_tokens = 0);
  /// @cost 32 additions.
  load at(time_point when) const;
  /// Forgets buckets that no later `at` can see.
  void trim(time_point now);
  std::size_t buckets() const noexcept { return buckets_.size(); }

 private:
  static constexpr std::int64_t buckets_per_span = 32;
  std::int64_t bucket_of(time_point t) const noexcept { return t.time_since_epoch().count() / width_; }

  std::int64_t width_;
  sparse_buckets<std::int64_t, load> buckets_;
};

}  // namespace mooncaf
