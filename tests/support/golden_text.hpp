#pragma once
// Text that must stay as it is: what other processes, scrapers and scripts read. The files lie in tests/golden.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace mooncaf::testing {

inline std::string golden_bytes(const std::string& file) {
  const auto path = std::string{MOONCAF_GOLDEN_FOLDER} + "/" + file;
  std::ifstream in{path, std::ios::binary};
  REQUIRE_MESSAGE(in, path);
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// Compares with a file of tests/golden. With MOONCAF_REWRITE_GOLDEN in the environment the file is written
/// instead; the diff is for a reviewer.
inline void check_golden(const std::string& file, const std::string& text) {
  const auto path = std::string{MOONCAF_GOLDEN_FOLDER} + "/" + file;
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr) std::ofstream{path, std::ios::binary} << text;
  CHECK_MESSAGE(text == golden_bytes(file), path);
}

}  // namespace mooncaf::testing
