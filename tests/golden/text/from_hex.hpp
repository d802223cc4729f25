#pragma once
// Bytes that a JSON file writes as hexadecimal digits.

#include <string>

namespace mooncaf::test {

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace mooncaf::test
