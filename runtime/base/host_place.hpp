#pragma once
// Where a host stands: which hosts one accident takes away together with it, and which are near to it.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace mooncaf {

/// A host's name, perhaps behind its location, from the widest place to the closest: "row2/rack7/HOST". A
/// host without a given place has no location.
inline std::string_view host_name(std::string_view host) { return host.substr(host.rfind('/') + 1); }
inline std::string_view location_of(std::string_view host) {
  const auto end = host.rfind('/');
  return end == std::string_view::npos ? std::string_view{} : host.substr(0, end);
}
/// The host's name behind its location.
inline std::string host_at(std::string_view location, std::string_view name) {
  return location.empty() ? std::string{name} : std::string{location} + "/" + std::string{name};
}
inline bool same_host(std::string_view a, std::string_view b) { return host_name(a) == host_name(b); }

inline constexpr std::size_t on_one_host = std::numeric_limits<std::size_t>::max();

/// How many parts of their locations two hosts have in common, from the widest on; `on_one_host` if it is
/// one. Zero where nothing is known of either.
inline std::size_t closeness(std::string_view a, std::string_view b) {
  if (same_host(a, b)) return on_one_host;
  auto x = location_of(a), y = location_of(b);
  std::size_t common = 0;
  while (!x.empty() && !y.empty()) {
    const auto end_x = std::min(x.find('/'), x.size()), end_y = std::min(y.find('/'), y.size());
    if (x.substr(0, end_x) != y.substr(0, end_y)) break;
    ++common;
    x.remove_prefix(std::min(end_x + 1, x.size()));
    y.remove_prefix(std::min(end_y + 1, y.size()));
  }
  return common;
}

/// Parts of at most 64 letters, digits, '-', '_' and '.', with '/' between them; 256 characters; or nothing.
inline bool is_location(std::string_view text) {
  if (text.size() > 256) return false;
  std::size_t part = 0;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        c == '-' || c == '_' || c == '.';
    if (c == '/' ? part == 0 : !letter || part == 64) return false;
    part = c == '/' ? 0 : part + 1;
  }
  return text.empty() || part > 0;
}

}  // namespace mooncaf
