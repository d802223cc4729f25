#pragma once
// How long a request waits for a prefix that is being loaded for it.

#include <cstdint>

#include "runtime/base/units.hpp"
#include "runtime/base/words.hpp"

namespace mooncaf {

/// When the loading of a prefix ends before all of it is there. Blocks that came until then are used: leading
/// ones, whole and verified.
enum class prefetch_mode : std::uint8_t {
  best_effort,    ///< as soon as there is nothing else to compute: the device never waits
  wait_complete,  ///< never
  timeout,        ///< after a time that grows with the tokens loaded
};

constexpr auto words_of(prefetch_mode) noexcept {
  using enum prefetch_mode;
  return words<prefetch_mode, 3>{
      {{best_effort, "best_effort"}, {wait_complete, "wait_complete"}, {timeout, "timeout"}}};
}

/// The values that server and simulator take unless others are given.
struct prefetch_options {
  prefetch_mode mode = prefetch_mode::timeout;  ///< bounds the wait for a slow holder
  /// Timeout: whatever the length. A busy peer's mailbox and disk may take as long.
  duration base = std::chrono::milliseconds(100);
  /// Timeout: … for so many tokens. Slower than that, computing them is faster: 1,024 tokens take 0.1 to 0.6
  /// s on the machines measured.
  duration per_1024_tokens = std::chrono::milliseconds(250);
  std::uint32_t threshold_tokens =
      256;  ///< a shorter run is computed: HiCache's, less is not worth a round trip
};

/// @source  HiCache of SGLang: the same three, with timeout = base + per_ki_token · tokens / 1024, and the
/// threshold.
class prefetch_policy {
 public:
  explicit prefetch_policy(prefetch_options options) : options_(options) {}

  std::uint32_t threshold_tokens() const noexcept { return options_.threshold_tokens; }
  /// Whether to begin at all. @param idle  the device has nothing else to do.
  bool begins(bool idle) const noexcept { return options_.mode != prefetch_mode::best_effort || !idle; }
  /// How long it may take for this many tokens; `duration::max()`: for ever.
  duration limit(std::uint32_t tokens) const noexcept {
    if (options_.mode != prefetch_mode::timeout) return duration::max();
    return options_.base + options_.per_1024_tokens * tokens / 1024;
  }
  /// Whether loading that began for `tokens` ends now, `waited` after it began.
  bool ends(std::uint32_t tokens, duration waited, bool idle) const noexcept {
    if (options_.mode == prefetch_mode::best_effort) return idle;
    return waited >= limit(tokens);
  }
  /// Whether to load layer by layer, so that computing overlaps: then nothing is of use before the last
  /// layer is there, so only if it is expected to come in full.
  bool by_layers(std::uint32_t tokens, duration expected) const noexcept {
    return options_.mode != prefetch_mode::best_effort && expected <= limit(tokens);
  }

 private:
  prefetch_options options_;
};

}  // namespace mooncaf
