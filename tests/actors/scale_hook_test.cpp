#include "actors/process/scale_hook.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "tests/support/actor_fixture.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// It runs until the test says so, or is over.
const std::string until_go =
    "d=$(dirname \"$0\"); while test -d \"$d\" && ! test -e \"$d/go\"; do sleep 0.01; done";

/// A program that notes its arguments, after which `then` runs.
struct operator_program {
  explicit operator_program(const std::string& then) {
    std::ofstream out{folder / "scale"};
    out << "#!/bin/sh\necho \"$@\" >> " << notes() << "\n" << then << "\n";
    out.close();
    ::chmod((folder / "scale").c_str(), 0700);
  }
  std::string notes() const { return folder / "notes"; }
  std::string command() const { return "  " + (folder / "scale") + " my cluster "; }
  std::string said() const {
    std::ifstream in{notes()};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  bool says(const std::string& expected) const {
    return testing::eventually([&] { return said().size() >= expected.size(); }) && said() == expected;
  }

  test::temp_dir folder;
};

}  // namespace

TEST_CASE("the operator's program gets its words and the counts") {
  const operator_program program{"true"};
  scale_hook hook{program.command()};
  hook.tell("prefill=3 decode=2");
  CHECK(program.says("my cluster prefill=3 decode=2\n"));
}

TEST_CASE("a program that fails is called again, with the latest counts") {
  const operator_program program{"test $(wc -l < \"$(dirname \"$0\")/notes\") -ge 3"};
  scale_hook hook{program.command(), 20ms};
  hook.tell("prefill=3");
  CHECK(program.says("my cluster prefill=3\nmy cluster prefill=3\nmy cluster prefill=3\n"));
  hook.tell("prefill=4");
  CHECK(program.says(
      "my cluster prefill=3\nmy cluster prefill=3\nmy cluster prefill=3\nmy cluster prefill=4\n"));
}

TEST_CASE("what is told while a program runs comes next, the latest alone") {
  const operator_program program{until_go};
  scale_hook hook{program.command()};
  hook.tell("a=1");
  CHECK(program.says("my cluster a=1\n"));
  hook.tell("a=2");
  hook.tell("a=3");
  std::ofstream{program.folder / "go"} << "";
  CHECK(program.says("my cluster a=1\nmy cluster a=3\n"));
}

TEST_CASE("a hook ends at once beside a program that runs, and beside one that is not there") {
  const operator_program program{until_go};
  const auto began = std::chrono::steady_clock::now();
  {
    scale_hook hook{program.command()};
    hook.tell("a=1");
    CHECK(program.says("my cluster a=1\n"));
    scale_hook none{program.folder / "absent"};
    none.tell("a=1");
  }
  CHECK(std::chrono::steady_clock::now() - began < 30s);
  std::ofstream{program.folder / "go"} << "";
}
