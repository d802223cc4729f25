#include "runtime/base/replace_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace mooncaf;

TEST_CASE("a file that two replace at once is whole, and neither fails") {
  const test::temp_dir dir;
  const auto path = dir / "agent.pid";
  std::array<int, 2> failures{};
  const auto write = [&](int who) {
    for (int i = 0; i < 500; ++i)
      if (!replace_file(path, std::string(100, static_cast<char>('a' + who)), 0600)) ++failures[who];
  };
  std::thread other([&] { write(1); });
  write(0);
  other.join();
  CHECK(failures == std::array<int, 2>{});
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  CHECK(text == std::string(100, text.at(0)));
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a file that cannot be replaced stays, and the reason is said") {
  const test::temp_dir dir;
  const auto path = dir / "folder";
  fs::create_directories(path + "/full");
  const auto done = replace_file(path, "text", 0600);
  REQUIRE(!done);
  CHECK(done.error().detail.starts_with("cannot write " + path + ": "));
  CHECK(fs::exists(path + "/full"));
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
  CHECK(!replace_file(dir / "absent/file", "text", 0600));
}

TEST_CASE("a replaced file has the mode that was asked for") {
  const test::temp_dir dir;
  REQUIRE(replace_file(dir / "secret", "text", 0640));
  struct stat now {};
  REQUIRE(::stat((dir / "secret").c_str(), &now) == 0);
  CHECK((now.st_mode & 0777) == 0640);
}
