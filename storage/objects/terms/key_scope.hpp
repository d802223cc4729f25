#pragma once
// Which tenant a key belongs to. Tenants name their objects as they like; inside the store a name says which
// tenant it belongs to, so that the names of two tenants are never the same.
//
//   no tenant    the key itself; one that begins with a zero byte: 0 0 key
//   a tenant     0 tenant 0 key

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace mooncaf {

inline constexpr std::size_t tenant_bytes_max = 64;

/// Letters, digits, '-' and '_'.
inline bool is_tenant_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= tenant_bytes_max &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                  c == '_';
         });
}

struct scoped_name {
  std::string_view tenant;  ///< empty: no tenant
  std::string_view key;
};
/// Points into `inside`, a name as the store has it. Never fails: a name that the store does not make belongs
/// to no tenant.
inline scoped_name split_name(std::string_view inside) noexcept {
  if (inside.empty() || inside.front() != '\0') return {{}, inside};
  const auto end = inside.find('\0', 1);
  if (end == std::string_view::npos) return {{}, inside};
  return {inside.substr(1, end - 1), inside.substr(end + 1)};
}

/// Stands for all names of a tenant, and is no object's name.
inline std::string all_of(std::string_view tenant) {
  std::string name(1, '\0');
  return name.append(tenant).append(1, '\0');
}

/// The names that one session can say and hear.
struct key_scope {
  std::string tenant;
  bool everyone = false;  ///< all names, as the store has them: for clients that move or count every tenant's
                          ///< objects

  /// @param memory  may come to hold the result.
  std::string_view inside(std::string_view key, std::string& memory) const {
    if (everyone || (tenant.empty() && (key.empty() || key.front() != '\0'))) return key;
    memory = all_of(tenant);
    memory.append(key);
    return memory;
  }
  /// @returns nothing for a name of another tenant.
  std::optional<std::string_view> outside(std::string_view name) const noexcept {
    if (everyone) return name;
    const auto [whose, key] = split_name(name);
    if (whose != tenant) return std::nullopt;
    return key;
  }
};

}  // namespace mooncaf
