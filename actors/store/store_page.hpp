#pragma once
// The page of the store at `/store`: one file, no external asset, polls `/store/figures`.

#include <string>
#include <string_view>

#include "storage/objects/store_client.hpp"

namespace mooncaf::store {

std::string_view store_page() noexcept;

/// What the page polls, as JSON: counts, times of the directory's answers, segments.
std::string figures_json(const directory_figures& figures,
                         const std::vector<store_wire::mounted_segment>& segments);

}  // namespace mooncaf::store
