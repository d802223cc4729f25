#pragma once
// How a stream of KV ends, and when its owner is told.

#include <cstdint>
#include <functional>
#include <utility>

namespace mooncaf {

/// Says first how many transfers there are, once all of them are known, then, once none is under way, whether
/// all were delivered. @thread  not synchronised
class stream_end {
 public:
  explicit stream_end(std::function<void(bool delivered)> on_end) : on_end_(std::move(on_end)) {}

  void submitted() noexcept { ++transfers_; }
  /// @param fenced  it cannot be written over there any more.
  void completed(bool delivered, bool fenced) noexcept {
    failed_ = failed_ || !delivered;
    fenced_ = fenced_ && fenced;
  }
  /// No more pieces will come.
  void finish(std::function<void(std::uint32_t transfers)> on_count) {
    finished_ = true;
    on_count_ = std::move(on_count);
  }
  void stop() noexcept { stopped_ = true; }

  /// Nothing is sent any more.
  bool over() const noexcept { return stopped_ || failed_ || ended_; }
  bool ended() const noexcept { return ended_; }
  bool fenced() const noexcept { return fenced_; }

  /// @param aimed  the decode side's slots are known. @param idle  no transfer is under way.
  /// @returns the next call to make, without a lock; ask again after it. Empty: none.
  std::function<void()> next(bool aimed, bool idle) {
    if (finished_ && aimed && on_count_ && !stopped_ && !failed_) {
      // Told before the last landing is confirmed here: the decode side counts for itself.
      return [tell = std::exchange(on_count_, nullptr), count = transfers_] { tell(count); };
    }
    const bool nothing_to_come = failed_ || stopped_ || (finished_ && aimed);
    if (ended_ || !nothing_to_come || !idle) return {};
    ended_ = true;
    on_count_ = nullptr;
    return [tell = std::exchange(on_end_, nullptr), delivered = !failed_ && !stopped_] {
      if (tell) tell(delivered);
    };
  }

 private:
  std::function<void(bool)> on_end_;
  std::function<void(std::uint32_t)> on_count_;
  std::uint32_t transfers_ = 0;  ///< each makes one landing
  bool finished_ = false;
  bool failed_ = false;
  bool stopped_ = false;
  bool ended_ = false;
  bool fenced_ = true;
};

}  // namespace mooncaf
