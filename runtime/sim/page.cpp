#include "runtime/sim/page.hpp"

#include "runtime/pages/pages.hpp"

namespace mooncaf::sim {

namespace {

void replace(std::string& page, std::string_view mark, const std::string& with) {
  page.replace(page.find(mark), mark.size(), with);
}

/// JSON that may stand in a script: only its texts can have a `<` that would end it.
std::string in_script(std::string text) {
  for (auto at = text.find('<'); at != std::string::npos; at = text.find('<', at))
    text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string report_page(std::string_view plots, std::string_view title, const std::string& table,
                        const std::string& data) {
  std::string page{pages::report};
  // From the last to the first, so that no mark inside of inserted text is taken for one.
  replace(page, R"(<script src="@PLOTS@"></script>)", "<script>\n" + std::string{plots} + "</script>");
  replace(page, R"("@DATA@")", in_script(data));
  replace(page, "@TABLE@", table);
  replace(page, "@TITLE@", html_text(title));
  return page;
}

}  // namespace mooncaf::sim
