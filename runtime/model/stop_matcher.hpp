#pragma once
// Finds stop strings in text that arrives in pieces, and holds back only text that may still become one.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mooncaf {

/// The result does not depend on how the text was cut into pieces: the stop string that is complete first
/// ends the text, just before itself or with itself; of several that are complete at the same byte, the one
/// that began first. Text goes out in whole UTF-8 characters, so a piece may end inside a character.
class stop_matcher {
 public:
  /// @param stops  stop strings; empty ones are ignored. Copied.
  /// @param keeps  the stop string that ends the text is its last part.
  explicit stop_matcher(std::span<const std::string> stops = {}, bool keeps = false);

  /// Takes the next piece and returns the text that can be sent to the client now; empty once `stopped()`.
  /// @param may_stop  false while the request is below its `min_tokens`: the piece is no part of any stop
  /// string.
  std::string feed(std::string_view piece, bool may_stop = true);
  /// The held-back rest, when the request ended for another reason.
  std::string finish();

  bool stopped() const noexcept { return stopped_; }
  /// The stop string that ended the text; empty if none did.
  const std::string& matched() const noexcept { return matched_; }

 private:
  std::size_t held_bytes(std::string_view text) const noexcept;

  std::vector<std::string> stops_;
  std::string held_, matched_;
  bool keeps_ = false;
  bool stopped_ = false;
};

}  // namespace mooncaf
