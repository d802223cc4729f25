#pragma once
// Reads an engine's answer to a prompt: server-sent events, each a JSON object with some tokens' ids.

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/engines/completion_piece.hpp"
#include "runtime/engines/engine_make.hpp"
#include "runtime/engines/generate_events.hpp"

namespace mooncaf {

/// One answer's stream, in pieces of any size. @thread  one at a time.
class completion_reader {
 public:
  explicit completion_reader(engine_make make = engine_make::vllm) : make_(make) {}

  /// @error `ec::corrupt` for bytes that are no such stream, `ec::unavailable` with the engine's words if it gives up in the middle.
  /// The stream is of no use afterwards.
  result<completion_piece> take(std::string_view bytes);

 private:
  result<void> event(std::string_view data, completion_piece& into);

  engine_make make_;
  generate_events events_;  ///< of SGLang
  std::string line_;        ///< begun, not ended
};

/// The reason in an answer that is no stream: the message of its JSON, or its first bytes.
std::string refusal_in(std::string_view body);

}  // namespace mooncaf
