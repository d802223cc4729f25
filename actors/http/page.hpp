#pragma once
// The live page at `/`: one file, no external asset, polls `/cluster` and `/metrics`.

#include <string_view>

namespace mooncaf {

std::string_view live_page() noexcept;
/// Its icon, an SVG.
std::string_view page_icon() noexcept;

}  // namespace mooncaf
