#pragma once
// Reads an engine's answer to a completion call: server-sent events, each a JSON object with some tokens' ids.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/finish_reason.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/sampling_params.hpp"

namespace mooncaf {

/// A part of the stream, read.
struct completion_piece {
  std::vector<sampled_token> tokens;
  finish_reason finish = finish_reason::none;  ///< as the engine sees it, after these tokens
  std::optional<std::uint32_t> cached_tokens;  ///< of the prompt, that came out of its cache
  bool over = false;                           ///< nothing follows
};

/// One answer's stream, in pieces of any size. @thread  one at a time.
class completion_reader {
 public:
  /// @error `ec::corrupt` for bytes that are no such stream, `ec::unavailable` with the engine's words if it gives up in the middle.
  /// The stream is of no use afterwards.
  result<completion_piece> take(std::string_view bytes);

 private:
  result<void> event(std::string_view data, completion_piece& into);

  std::string line_;  ///< begun, not ended
};

/// The reason in an answer that is no stream: the message of its JSON, or its first bytes.
std::string refusal_in(std::string_view body);

}  // namespace mooncaf
