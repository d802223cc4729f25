#pragma once
// What each number format of KV costs on a text of the user's own, by which one is chosen.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/model.hpp"
#include "runtime/sim/cli/invocation.hpp"

namespace mooncaf::sim {

struct format_loss {
  kv_dtype format;
  double nats;  ///< a token of the text: the mean of -log p
};

/// Of every format, f32 first, which the others are judged by.
/// @error as `text_loss` has
result<std::vector<format_loss>> format_losses(const std::shared_ptr<const model>& net, device& hardware,
                                               std::span<const std::int32_t> text, std::uint32_t chunk_tokens,
                                               const console& io);

/// A line for people: each format's nats, and what it costs beside f32.
std::string to_text(std::span<const format_loss> losses);

/// Nothing if `chosen` costs at most `nats` a token more than f32.
/// @error `ec::invalid_argument` that says what it costs, and which formats cost less than allowed
result<void> within(std::span<const format_loss> losses, kv_dtype chosen, double nats);

}  // namespace mooncaf::sim
