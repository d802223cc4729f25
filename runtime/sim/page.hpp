#pragma once
// Puts what a report has to say into its page.

#include <string>
#include <string_view>

namespace mooncaf::sim {

/// Text as it may stand in HTML.
std::string html_text(std::string_view text);

/// @param rest   of the page: `page_of_a_run`, `page_of_many` or `page_of_a_plan`. @param title  text.
/// @param table  HTML. @param data  JSON.
std::string report_page(std::string_view rest, std::string_view title, const std::string& table,
                        const std::string& data);

}  // namespace mooncaf::sim
