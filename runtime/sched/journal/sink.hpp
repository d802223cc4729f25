#pragma once
// Where the bytes of a journal go.

#include <cstdint>
#include <functional>
#include <string_view>

namespace mooncaf::journal {

/// The outcome of writing a piece of the file.
enum class written : std::uint8_t { whole, no_room, failed };
/// Takes a finished piece of the file. @param last  it closes the journal, and there is room kept for it.
using sink = std::function<written(std::string_view bytes, bool last)>;

}  // namespace mooncaf::journal
