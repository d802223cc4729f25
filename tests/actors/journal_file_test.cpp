// The file of a journal: older ones are kept, and its limit leaves room for the frame that says so.

#include "actors/process/journal_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "runtime/sched/journal/reader.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a journal never overwrites the ones before it, up to nine, and the latest of those is FILE.1") {
  const test::temp_dir dir;
  const auto path = dir / "decisions";
  for (int run = 0; run < 12; ++run) {
    const auto out = open_journal(path, 1 << 20);
    REQUIRE_MESSAGE(out, to_string(out.error()));
    CHECK((*out)("run " + std::to_string(run), false) == journal::written::whole);
  }
  CHECK(text_of(path) == "run 11");
  for (int age = 1; age <= 9; ++age)
    CHECK(text_of(path + "." + std::to_string(age)) == "run " + std::to_string(11 - age));
  CHECK(!std::filesystem::exists(path + ".10"));
  struct stat state {};
  REQUIRE(stat(path.c_str(), &state) == 0);
  CHECK((state.st_mode & 0777) == 0600);
}

TEST_CASE("a journal that is being written is not put aside") {
  const test::temp_dir dir;
  const auto path = dir / "decisions";
  {
    const auto out = open_journal(path, 1 << 20);
    REQUIRE(out);
    const auto other = open_journal(path, 1 << 20);
    REQUIRE(!other);
    CHECK(other.error().detail.find("is written by another process; give each") != std::string::npos);
    CHECK((*out)("whole", false) == journal::written::whole);
  }
  CHECK(open_journal(path, 1 << 20));
  CHECK(text_of(path + ".1") == "whole");
}

TEST_CASE("of processes that start at once with one journal, one has it, and no file is lost") {
  const test::temp_dir dir;
  const auto path = dir / "decisions";
  for (int round = 0; round < 100; ++round) {
    std::vector<std::optional<result<journal::sink>>> opened(4);
    {
      std::barrier all{4};
      std::vector<std::jthread> processes;
      for (auto& out : opened) {
        processes.emplace_back([&] {
          all.arrive_and_wait();
          out = open_journal(path, 1 << 20);
        });
      }
    }
    REQUIRE(std::ranges::count_if(opened, [](const auto& out) { return out->has_value(); }) == 1);
    for (auto& out : opened) {
      if (*out) CHECK((**out)(std::to_string(round), false) == journal::written::whole);
    }
    REQUIRE(text_of(path) == std::to_string(round));
  }
  CHECK(text_of(path + ".1") == "98");
  CHECK(std::distance(std::filesystem::directory_iterator{dir.path()},
                      std::filesystem::directory_iterator{}) == 10);
}

TEST_CASE("a journal that reaches its limit stays within it and says in its last frame why it ends") {
  const test::temp_dir dir;
  const auto path = dir / "decisions";
  constexpr std::uint64_t limit = 4096;
  auto out = open_journal(path, limit);
  REQUIRE(out);
  {
    journal::encoder to{{}, {}, std::move(*out)};
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      journal::heartbeat beat{node_id{i}, time_point{}};
      to.record(beat);
      to.flush();
    }
    CHECK(!to.open());
  }
  const auto bytes = text_of(path);
  CHECK(bytes.size() <= limit);
  CHECK(bytes.size() > limit / 2);
  journal::reader from{bytes, "j"};
  REQUIRE(from.begin());
  std::uint64_t beats = 0;
  while (*from.next([&](auto&, const auto&...) { ++beats; })) {
  }
  CHECK(beats > 10);
  CHECK(!from.missing());
  CHECK(from.end() == journal::ending::full);
}
