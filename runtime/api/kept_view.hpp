#pragma once
// Prefixes that are kept for a tenant, as clients see them.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/request/status.hpp"

namespace mooncaf {

/// The prefix of this name, 32 hexadecimal digits; of an empty one `every_prefix`. @returns nothing for other text.
std::optional<block_key> prefix_named(std::string_view name);

/// A list of prefixes in JSON: name, tokens, seconds left. One that several nodes keep is there once, with the longest time.
/// @param dropped  they are kept no more.
std::string format_kept(std::span<const kept_status> kept, std::uint32_t block_tokens, bool dropped);

}  // namespace mooncaf
