#include "actors/store/tenants_file.hpp"

#include <algorithm>
#include <optional>

#include "config/toml.hpp"
#include "config/value.hpp"
#include "storage/objects/wire/tenant_token.hpp"
#include "transport/net/kept_file.hpp"

namespace mooncaf::store {

namespace {

/// @returns what is wrong with the value, or nothing.
std::optional<std::string> set(store_tenant& t, const config::toml_entry& e) {
  if (e.key == "token") {
    const auto key = tenant_key(e.type == config::toml_type::string ? e.value : std::string{});
    if (!key) return "is none: " + key.error().detail;
    t.key = *key;
  } else if (e.key == "quota" || e.key == "ssd_quota") {
    const auto size = config::parse_size(e.value);
    if (!size || *size == 0) return "must be a size, such as 10GiB";
    (e.key == "quota" ? t.limit.bytes : t.limit.disk_bytes) = *size;
  } else if (e.key == "objects") {
    const auto number = config::parse_integer(e.value);
    if (!number || *number == 0) return "must be a whole number from 1";
    t.limit.objects = *number;
  } else {
    return "is unknown; known are token, quota, ssd_quota, objects";
  }
  return std::nullopt;
}

}  // namespace

result<std::vector<store_tenant>> parse_tenants(std::string_view text, const std::string& name) {
  const auto entries = config::parse_toml(text, name);
  if (!entries) return fail(entries.error());
  std::vector<store_tenant> all;
  const auto complain = [&](const config::toml_entry& e, const std::string& what) {
    return fail(ec::invalid_argument,
                name + ":" + std::to_string(e.line) + ": " + e.section + "." + e.key + " " + what);
  };
  for (const auto& e : *entries) {
    if (!is_tenant_name(e.section))
      return complain(e, "stands under no tenant: a [name] of at most 64 letters, digits, - and _");
    if (all.empty() || all.back().name != e.section) all.push_back({e.section, {}, {}});
    if (const auto wrong = set(all.back(), e)) return complain(e, *wrong);
    const auto same = [&](const store_tenant& t) { return &t != &all.back() && t.key == all.back().key; };
    if (e.key == "token" && std::any_of(all.begin(), all.end(), same))
      return complain(e, "is another tenant's, too");
  }
  for (const auto& t : all)
    if (t.key.empty()) return fail(ec::invalid_argument, name + ": tenant " + t.name + " has no token");
  if (all.empty()) return fail(ec::invalid_argument, name + ": has no tenant");
  return all;
}

result<std::vector<store_tenant>> load_tenants(const std::string& path) {
  if (path.empty()) return std::vector<store_tenant>{};
  const auto text = read_kept_file(path, 16 * MiB, "tenants file");
  if (!text) return fail(text.error());
  return parse_tenants(*text, path);
}

}  // namespace mooncaf::store
