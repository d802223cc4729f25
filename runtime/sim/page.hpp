#pragma once
// Puts a report's data into its page.

#include <string>
#include <string_view>

namespace mooncaf::sim {

/// Text as it may stand in HTML.
std::string html_text(std::string_view text);

/// @param plots  the script that draws them: `pages::run_plots` and its like; empty: none. @param title  text.
/// @param table  HTML. @param data  JSON.
std::string report_page(std::string_view plots, std::string_view title, const std::string& table,
                        const std::string& data);

}  // namespace mooncaf::sim
