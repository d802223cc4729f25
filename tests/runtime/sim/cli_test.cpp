#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/sim/cli/commands.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

struct answer {
  int status = 0;
  std::string out, err;
};

answer program(std::vector<std::string> args) {
  std::ostringstream out, err;
  const int status = run_command(args, {out, err, false});
  return {status, out.str(), err.str()};
}

/// A file that is gone afterwards.
class scratch_file {
 public:
  explicit scratch_file(const std::string& text) {
    const char* folder = std::getenv("TMPDIR");
    path_ =
        std::string{folder ? folder : "/tmp"} + "/mooncaf_cli_test_" + std::to_string(::getpid()) + ".jsonl";
    std::ofstream{path_} << text;
  }
  ~scratch_file() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string small_trace() {
  return program({"trace", "generate", "--requests", "200", "--input-mean=4000"}).out;
}

}  // namespace

TEST_CASE("a generated trace can be described, measured and simulated") {
  const scratch_file trace{small_trace()};
  const auto stats = program({"trace", "stats", trace.path()});
  CHECK(stats.status == 0);
  CHECK(stats.out.find("requests             200 in") == 0);
  const auto rates = program({"trace", "hitrate", trace.path(), "--capacity", "50"});
  CHECK(rates.status == 0);
  CHECK(rates.out.find("length_aware") != std::string::npos);
  const auto table = program({"simulate", "--trace", trace.path(), "--prefill", "2", "--decode=2"});
  CHECK_MESSAGE(table.status == 0, table.err);
  CHECK(table.out.find("arrived                               200  100.0 %") != std::string::npos);
  const auto json = program({"simulate", "--trace", trace.path(), "--json", "--admission", "priced"});
  CHECK(json.out.find("\"arrived\":200") != std::string::npos);
  CHECK(json.out.back() == '\n');
}

TEST_CASE("a report is one page that fetches nothing") {
  const scratch_file trace{small_trace()};
  const auto page_path = trace.path() + ".html";
  const auto done = program({"simulate", "--trace", trace.path(), "--report", page_path});
  CHECK_MESSAGE(done.status == 0, done.err);
  std::stringstream page;
  page << std::ifstream{page_path}.rdbuf();
  std::remove(page_path.c_str());
  CHECK(page.str().find("<!doctype html>") == 0);
  CHECK(page.str().find("@DATA@") == std::string::npos);
  for (const char* outside : {"src=", "href=", "import ", "url("})
    CHECK(page.str().find(outside) == std::string::npos);
}

TEST_CASE("a bad trace is refused with its file, line and reason") {
  const auto reason = [](const std::string& text) {
    const scratch_file trace{text};
    const auto done = program({"simulate", "--trace", trace.path()});
    CHECK(done.status == 1);
    CHECK(done.out.empty());
    const auto where = done.err.find(trace.path() + ":");
    REQUIRE(where != std::string::npos);
    return done.err.substr(where + trace.path().size() + 1);
  };
  const std::string good = R"({"timestamp": 5, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]})"
                           "\n";
  CHECK(reason(good + "hello\n") == "2: not a JSON object\n");
  CHECK(reason(good + R"({"timestamp": 6, "input_length": 600, "hash_ids": [1, 2]})") ==
        "2: output_length is missing\n");
  CHECK(reason(R"({"timestamp": -6, "input_length": 1, "output_length": 2, "hash_ids": [1]})")
            .find("1: timestamp: '-6'") == 0);
  CHECK(reason(R"({"timestamp": 6, "input_length": 99999999999, "output_length": 2, "hash_ids": [1]})")
            .find("1: input_length") == 0);
  CHECK(reason(good + R"({"timestamp": 4, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]})")
            .find("2: timestamp 4 is before 5") == 0);
  CHECK(reason(R"({"timestamp": 6, "input_length": 600, "output_length": 2, "hash_ids": [1]})")
            .find("1: hash_ids has 1 entries") == 0);
  CHECK(reason("\x1f\x8b\x08").find("1: compressed with gzip") == 0);
  const scratch_file empty{""};
  const auto done = program({"simulate", "--trace", empty.path()});
  CHECK(done.status == 1);
  CHECK(done.err.find(empty.path() + " holds no request") != std::string::npos);
}

TEST_CASE("a command that is called wrongly says what to change") {
  const auto said = [](std::vector<std::string> args) {
    const auto done = program(std::move(args));
    CHECK(done.status == 2);
    return done.err;
  };
  CHECK(said({"simulate"}).find("--trace is missing") != std::string::npos);
  CHECK(said({"simulate", "--polcy", "random"}).find("did you mean --policy?") != std::string::npos);
  CHECK(said({"simulate", "--policy", "best"}).find("none of random|load_balancing") != std::string::npos);
  CHECK(said({"simulate", "--prefill", "0"}).find("whole number from 1 to 8191") != std::string::npos);
  CHECK(said({"simulate", "--slo-ttft", "30"}).find("a time with its unit") != std::string::npos);
  CHECK(said({"simulate", "--trace", "x", "--profile", "none"}).find("no profile 'none'") !=
        std::string::npos);
  CHECK(said({"plan"}).find("--trace is missing") != std::string::npos);
  CHECK(said({"trace", "bake"}).find("usage: mooncaf trace") == 0);
  CHECK(said({"calibrate"}).find("--model is missing") != std::string::npos);
  CHECK(program({"simulate", "--trace", "/nowhere.jsonl"}).err.find("cannot open /nowhere.jsonl") !=
        std::string::npos);
  CHECK(program({"simulate", "--help"}).out.find("--admission") != std::string::npos);
}

TEST_CASE("a plan names the best share-out and draws the curve around it") {
  const scratch_file trace{small_trace()};
  const auto done =
      program({"plan", "--trace", trace.path(), "--nodes", "3", "--slo-ttft", "30s", "--slo-tbt", "100ms"});
  CHECK(done.status == 0);
  CHECK(done.out.find("best of 3 nodes") == 0);
}
