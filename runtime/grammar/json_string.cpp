#include "runtime/grammar/json_string.hpp"

#include <algorithm>

#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/regex.hpp"

namespace mooncaf {

namespace {

struct known_format {
  std::string_view name, pattern;
};

/// Narrower than the standards where they need more than a regular expression, so that every checker agrees:
/// no 29th of February, no leap second, lower-case names.
constexpr known_format formats[] = {
    {"date",
     R"(^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))$)"},
    {"time",
     R"(^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])$)"},
    {"date-time",
     R"(^[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])$)"},
    {"duration",
     R"(^P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}D|T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))$)"},
    {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
    {"ipv4",
     R"(^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$)"},
    {"ipv6", R"(^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$)"},
    {"hostname", R"(^[a-z]([a-z0-9]{0,20}[a-z0-9])?(\.[a-z]([a-z0-9]{0,20}[a-z0-9])?){0,5}$)"},
    {"email",
     R"(^[A-Za-z0-9_+\-]{1,32}(\.[A-Za-z0-9_+\-]{1,32}){0,3}@[a-z]([a-z0-9]{0,20}[a-z0-9])?(\.[a-z]([a-z0-9]{0,20}[a-z0-9])?){1,4}$)"},
    {"uri",
     R"(^(https?|ftp)://[a-z]([a-z0-9]{0,20}[a-z0-9])?(\.[a-z]([a-z0-9]{0,20}[a-z0-9])?){0,5}(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~\-]{0,64}){0,16}(\?[A-Za-z0-9._~=&\-]{0,256})?(#[A-Za-z0-9._~\-]{0,64})?$)"},
};

}  // namespace

std::string json_char_rule() {
  return R"([^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2})))";
}

std::string json_text_literal(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view hex = "0123456789abcdef";
    if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (c == '\n') {
      json += "\\n";
    } else if (c == '\t') {
      json += "\\t";
    } else if (byte < 0x20) {
      json += std::string{"\\u00"} + hex[byte >> 4] + hex[byte & 15];
    } else {
      json += c;
    }
  }
  return gbnf_literal(json + "\"");
}

result<std::string> json_pattern(std::string_view pattern) {
  auto inner = regex_expression(pattern, false, regex_place::json_string);
  if (!inner) return inner;
  return "\"\\\"\" " + *inner + " \"\\\"\"";
}

result<std::string_view> json_format_pattern(std::string_view format) {
  const auto known = std::ranges::find(formats, format, &known_format::name);
  if (known != std::end(formats)) return known->pattern;
  std::string names;
  for (const auto& f : formats) names += (names.empty() ? "" : ", ") + std::string{f.name};
  return fail(ec::invalid_argument,
              "'" + std::string{format.substr(0, 100)} + "' is not known; known are " + names);
}

result<std::string> json_format(std::string_view format) {
  const auto pattern = json_format_pattern(format);
  if (!pattern) return fail(pattern.error());
  return json_pattern(*pattern);
}

}  // namespace mooncaf
