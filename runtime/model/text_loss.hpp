#pragma once
// How well a model predicts a text, which is what number formats of weights or KV are judged by.

#include <cstdint>
#include <span>

#include "runtime/base/result.hpp"
#include "runtime/model/forward_pass.hpp"

namespace mooncaf {

/// Mean of -log p(token | tokens before it) over all `tokens` but the first, in nats.
/// @param chunk  tokens of one pass, at most what the runner takes
/// @error of the pass; `ec::invalid_argument` for less than two tokens.
result<double> text_loss(forward_pass& runner, std::span<const std::int32_t> tokens, std::uint32_t chunk);

}  // namespace mooncaf
