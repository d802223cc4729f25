#include "actors/store/object_request.hpp"

#include <algorithm>
#include <charconv>

namespace mooncaf::store {

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto* const end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, value, 16).ptr != end) return std::nullopt;
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

std::optional<std::string> query_text(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (part.size() > name.size() && part.substr(0, name.size()) == name && part[name.size()] == '=')
      return percent_decoded(part.substr(name.size() + 1));
  }
  return std::string{};
}

std::optional<std::uint32_t> query_number(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const auto part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    std::uint32_t value = 0;
    if (part.size() <= name.size() || part.substr(0, name.size()) != name || part[name.size()] != '=')
      continue;
    const auto digits = part.substr(name.size() + 1);
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc{}) return value;
  }
  return std::nullopt;
}

std::optional<byte_range> parse_range(std::string_view header, std::uint64_t size) {
  constexpr std::string_view unit = "bytes=";
  const byte_range all{0, size, false};
  if (header.substr(0, unit.size()) != unit) return all;
  header.remove_prefix(unit.size());
  const auto dash = header.find('-');
  if (dash == std::string_view::npos) return all;
  const auto number = [](std::string_view text) -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    const auto* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (text.empty() || read.ptr != end || read.ec != std::errc{}) return std::nullopt;
    return value;
  };
  const auto from = header.substr(0, dash), to = header.substr(dash + 1);
  const auto first = number(from), last = number(to);
  if ((!from.empty() && !first) || (!to.empty() && !last) || (!first && !last)) return all;
  if (!first) {
    if (*last == 0) return std::nullopt;
    return byte_range{size - std::min(*last, size), size, true};
  }
  if (last && *last < *first) return all;
  if (*first >= size) return std::nullopt;
  return byte_range{*first, last ? std::min(*last, size - 1) + 1 : size, true};
}

}  // namespace mooncaf::store
