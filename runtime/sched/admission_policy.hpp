#pragma once
// The rules by which a request may be refused. `admission.hpp` keeps to them.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

/// When a request is refused instead of placed. Load of an instance = predicted TTFT (TBT) over the SLO.
/// A request that finds its instance empty is never refused: it is as fast there as it gets, and its time
/// puts a wrong estimate right.
enum class admission_policy : std::uint8_t {
  none,           ///< never
  baseline,       ///< prefill load now; decode load is checked by the decode worker after prefill
  early,          ///< both loads now, before prefill; a placed request counts as decoding at once
  early_running,  ///< … only running batches count: early rejection as published, a prefill too late
  predictive,     ///< prefill load now, decode load as it will be when this prefill ends
  per_request,    ///< … from how long answers to prompts of each length have taken, request by request
  priced,         ///< … and the fuller the queues, the cheaper a request must be to get in (`price_book`)
  queue,     ///< what there is no room for waits, and is refused when it can only be late (`admission_queue`)
  adaptive,  ///< whichever of the others did best on the last minutes, played again (`rule_choice`)
};

constexpr auto words_of(admission_policy) noexcept {
  using enum admission_policy;
  return words<admission_policy, 9>{{{none, "none"},
                                     {baseline, "baseline"},
                                     {early, "early"},
                                     {early_running, "early_running"},
                                     {predictive, "predictive"},
                                     {per_request, "per_request"},
                                     {priced, "priced"},
                                     {queue, "queue"},
                                     {adaptive, "adaptive"}}};
}

}  // namespace mooncaf
