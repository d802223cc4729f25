#pragma once
// When an answer ends.

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/base/finish_reason.hpp"
#include "runtime/model/sampling_params.hpp"

namespace mooncaf {

/// Whether a request ends with its `output_count`-th token (counted from 1), which is `id`. Stop strings are
/// the business of `stop_matcher`. An end token counts as stop even when it is also the last allowed one;
/// under a grammar it always ends, since it comes only where nothing else may.
inline finish_reason finish_after(const sampling_params& params, std::span<const std::int32_t> eos_ids,
                                  std::uint32_t output_count, std::int32_t id) noexcept {
  const auto among = [id](std::span<const std::int32_t> ids) {
    return std::ranges::find(ids, id) != ids.end();
  };
  if (!params.grammar.empty() && among(eos_ids)) return finish_reason::stop;
  if (output_count >= params.min_tokens) {
    if (!params.ignore_eos && among(eos_ids)) return finish_reason::stop;
    if (among(params.stop_token_ids)) return finish_reason::stop;
  }
  return output_count >= params.max_tokens ? finish_reason::length : finish_reason::none;
}

}  // namespace mooncaf
