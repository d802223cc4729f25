#pragma once
// The events of SGLang's `POST /generate`.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>

#include "runtime/base/result.hpp"
#include "runtime/engines/completion_piece.hpp"

namespace mooncaf {

/// One answer's events, each with all tokens so far or, with `--incremental-streaming-output`, with the new ones.
class generate_events {
 public:
  /// @error `ec::corrupt`, `ec::unavailable` as of `completion_reader::take`
  result<void> take(const nlohmann::json& event, completion_piece& into);

 private:
  std::size_t heard_ = 0;  ///< tokens
};

}  // namespace mooncaf
