#pragma once
// The cluster's secret and two tenants' keys, and bytes to keep.

#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace mooncaf::test {

inline const std::string secret = "0123456789abcdef0123456789abcdef";
inline const std::string key_a = "key of the tenant a, 32 bytes...",
                         key_b = "key of the tenant b, 32 bytes...";

inline std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937_64 random{seed};
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace mooncaf::test
