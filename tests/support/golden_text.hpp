#pragma once
// Text that must stay as it is: what other processes, scrapers and scripts read. The files lie in tests/golden.

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace mooncaf::testing {

/// Compares with a file of tests/golden. With MOONCAF_REWRITE_GOLDEN in the environment the file is written
/// instead; the diff is for a reviewer.
inline void check_golden(const std::string& file, const std::string& text) {
  const auto path = std::string{MOONCAF_GOLDEN_FOLDER} + "/" + file;
  if (std::getenv("MOONCAF_REWRITE_GOLDEN") != nullptr) std::ofstream{path, std::ios::binary} << text;
  std::ifstream in{path, std::ios::binary};
  REQUIRE_MESSAGE(in, path);
  const std::string wanted{std::istreambuf_iterator<char>{in}, {}};
  CHECK_MESSAGE(text == wanted, path);
}

}  // namespace mooncaf::testing
