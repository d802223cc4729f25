#include "runtime/loading/kept_timings.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

const std::vector<timing_sample> passes{{32, 0, 41'000'000}, {64, 0, 77'000'000}, {64, 2048, 90'000'000}};
const kept_timings::wall_clock::time_point noon{std::chrono::seconds{1'800'000'000}};

std::string only_file(const std::string& folder) {
  REQUIRE(std::distance(fs::directory_iterator(folder), {}) == 1);
  return fs::directory_iterator(folder)->path().string();
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("measured passes are found by the same machine, build, model and role, and by no other") {
  const test::temp_dir dir;
  const kept_timings kept{dir / "timings", "host, build 1, model, prefill"};
  CHECK(kept.find(noon, 24h).empty());
  REQUIRE(kept.keep(passes, noon));
  CHECK(kept.find(noon, 24h) == passes);
  CHECK(kept_timings{dir / "timings", "host, build 1, model, decode"}.find(noon, 24h).empty());
  // Another's file under this one's name, as a collision of names would have it.
  const kept_timings other{dir / "others", "host, build 2, model, prefill"};
  REQUIRE(other.keep(passes, noon));
  fs::copy_file(only_file(dir / "others"), only_file(dir / "timings"), fs::copy_options::overwrite_existing);
  CHECK(kept.find(noon, 24h).empty());
}

TEST_CASE("measured passes that are too old are measured again, as are those of a clock that was set back") {
  const test::temp_dir dir;
  const kept_timings kept{dir / "timings", "of"};
  REQUIRE(kept.keep(passes, noon));
  CHECK(kept.find(noon + 24h, 24h) == passes);
  CHECK(kept.find(noon + 24h + 1s, 24h).empty());
  CHECK(kept.find(noon - 1s, 24h).empty());
  CHECK(kept.find(noon, 0ns).empty());
}

TEST_CASE("a file of measured passes that is damaged anywhere gives none or the ones that were written") {
  const test::temp_dir dir;
  const kept_timings kept{dir / "timings", "of"};
  REQUIRE(kept.keep(passes, noon));
  const auto path = only_file(dir / "timings"), whole = text_of(path);
  for (std::size_t length = 0; length + 1 < whole.size(); ++length) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, length);
    CAPTURE(length);
    CHECK(kept.find(noon, 24h).empty());
  }
  for (const auto& wrong : {"-1", "99999999999999999999999", "x", "0"}) {
    auto text = whole;
    text.replace(text.find("41000000"), 8, wrong);
    std::ofstream(path, std::ios::binary) << text;
    CHECK(kept.find(noon, 24h).empty());
  }
  auto many = whole;
  many.replace(many.find(" 3\n"), 3, " 4000000000\n");
  std::ofstream(path, std::ios::binary) << many;
  CHECK(kept.find(noon, 24h).empty());
}

TEST_CASE("files of measured passes that nothing renewed for a month go; what else lies there stays") {
  const test::temp_dir dir;
  const kept_timings kept{dir.path(), "of"};
  std::ofstream(dir / "old.passes") << "old";
  std::ofstream(dir / "old.txt") << "old";
  for (const auto& name : {"old.passes", "old.txt"})
    fs::last_write_time(dir / name, fs::file_time_type::clock::now() - 24h * 31);
  REQUIRE(kept.keep(passes, noon));
  CHECK(!fs::exists(dir / "old.passes"));
  CHECK(fs::exists(dir / "old.txt"));
}

TEST_CASE("without a folder nothing is kept, and one that cannot be made is an error") {
  const kept_timings none{"", "of"};
  CHECK(none.keep(passes, noon));
  CHECK(none.find(noon, 24h).empty());
  CHECK(kept_timings{"/proc/absent/timings", "of"}.keep(passes, noon).error().code == ec::io_error);
}
