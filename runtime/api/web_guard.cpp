#include "runtime/api/web_guard.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace mooncaf {

namespace {

std::string lower(std::string_view text) {
  std::string out{text};
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    auto word = list.substr(0, comma);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ') || word.ends_with('/')) word.remove_suffix(1);
    if (!word.empty()) out.push_back(lower(word));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

/// "name" of "name:port", "::1" of "[::1]:port".
std::string name_of(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
  return lower(host.substr(0, host.find(':')));
}

bool is_address(const std::string& name) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, name.c_str(), &ignored) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &ignored) == 1;
}

bool is_localhost(const std::string& name) { return name == "localhost" || name.ends_with(".localhost"); }

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

web_guard::web_guard(std::string_view origins, std::string_view hosts, std::vector<std::string> own_names)
    : origins_(split(origins)), hosts_(split(hosts)), own_names_(std::move(own_names)) {
  for (auto& name : own_names_) name = lower(name);
}

bool web_guard::host_allowed(std::string_view host) const {
  if (host.empty() || contains(hosts_, "*")) return true;
  const auto name = name_of(host);
  if (is_address(name) || contains(hosts_, name)) return true;
  return contains(hosts_, "local") && (is_localhost(name) || contains(own_names_, name));
}

bool web_guard::origin_allowed(std::string_view origin) const {
  const auto asked = lower(origin);
  if (contains(origins_, "*") || contains(origins_, asked)) return true;
  if (!contains(origins_, "local")) return false;
  const auto mark = asked.find("://");
  if (mark == std::string::npos || !asked.starts_with("http")) return false;
  const auto name = name_of(std::string_view{asked}.substr(mark + 3));
  return is_localhost(name) || name == "::1" || (name.starts_with("127.") && is_address(name));
}

bool web_guard::may_ask(std::string_view origin, std::string_view host) const {
  if (origin.empty() || origin_allowed(origin)) return true;
  const auto mark = origin.find("://");
  return mark != std::string_view::npos && !host.empty() && lower(origin.substr(mark + 3)) == lower(host);
}

}  // namespace mooncaf
