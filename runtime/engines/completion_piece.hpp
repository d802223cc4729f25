#pragma once
// What has come of an engine's answer, whichever engine it is.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/finish_reason.hpp"
#include "runtime/model/sampling_params.hpp"

namespace mooncaf {

/// A part of an engine's stream, read.
struct completion_piece {
  std::vector<sampled_token> tokens;
  finish_reason finish = finish_reason::none;  ///< as the engine sees it, after these tokens
  std::optional<std::uint32_t> cached_tokens;  ///< of the prompt, that came out of its cache
  bool over = false;                           ///< nothing follows
};

}  // namespace mooncaf
