#pragma once
// Numbers on an engine's published news, so that lost ones and a new beginning are noticed.

#include <cstdint>
#include <optional>

namespace mooncaf {

/// The meaning of a message's number.
enum class news_verdict : std::uint8_t {
  next,   ///< in order, or the first of all
  known,  ///< it was replayed before
  gap,    ///< some before it were lost
  anew,   ///< the engine counts from its beginning again
};

/// An engine numbers its messages from 0. Whoever joins later begins with any number.
class news_order {
 public:
  news_verdict arrived(std::uint64_t number) noexcept {
    if (!expected_) return take(number, number == 0 ? news_verdict::next : news_verdict::gap);
    if (number == *expected_) return take(number, news_verdict::next);
    if (number > *expected_) return take(number, news_verdict::gap);
    if (number >= known_from_) return news_verdict::known;
    known_from_ = UINT64_MAX;
    return take(number, news_verdict::anew);
  }
  /// The message in hand, the last that arrived, was replayed, and those behind it up to `last`: they come once more.
  void replayed(std::uint64_t last) noexcept {
    if (!expected_ || last < *expected_) return;
    known_from_ = *expected_;
    expected_ = last + 1;
  }
  /// The number that a replay should begin with.
  std::uint64_t expected() const noexcept { return expected_.value_or(0); }

 private:
  news_verdict take(std::uint64_t number, news_verdict verdict) noexcept {
    expected_ = number + 1;
    return verdict;
  }

  std::optional<std::uint64_t> expected_;
  std::uint64_t known_from_ = UINT64_MAX;  ///< of those below `expected_` that were replayed
};

}  // namespace mooncaf
