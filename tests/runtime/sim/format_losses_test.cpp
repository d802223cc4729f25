#include "runtime/sim/cli/format_losses.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/sim/cli/commands.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

namespace {

const std::vector<format_loss> losses{
    {kv_dtype::f32, 2.5}, {kv_dtype::f16, 2.499}, {kv_dtype::int8, 2.504}, {kv_dtype::k8v4, 2.52}};

struct loss_answer {
  int status = 0;
  std::string out, err;
};

loss_answer calibrate(const std::vector<std::string>& more) {
  std::vector<std::string> args{"calibrate", "--model",
                                "dummy:layers=2,dim=64,heads=2,kv_heads=1,ffn=128,vocab=600,ctx=512",
                                "--threads", "1"};
  args.insert(args.end(), more.begin(), more.end());
  std::ostringstream out, err;
  const int status = run_command(args, {out, err, false});
  return {status, out.str(), err.str()};
}

}  // namespace

TEST_CASE("a format is taken as long as it costs no more than is allowed") {
  CHECK(within(losses, kv_dtype::f16, 0));
  CHECK(within(losses, kv_dtype::int8, 0.005));
  CHECK(within(losses, kv_dtype::f32, 0));
  const auto refused = within(losses, kv_dtype::k8v4, 0.01);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::invalid_argument);
  CHECK(refused.error().detail ==
        "kv-dtype: k8v4 costs 0.0200 nats a token of the text, kv-accuracy allows 0.0100; within it: f16, "
        "int8 (nats: "
        "f32 2.5000, f16 2.4990 (-0.0010), int8 2.5040 (+0.0040), k8v4 2.5200 (+0.0200))");
}

TEST_CASE("calibrate says what each format costs on a text, and refuses one before anything is timed") {
  const test::temp_dir folder;
  const auto text = folder / "text";
  std::ofstream{text} << "The quick brown fox jumps over the lazy dog, and the dog does not mind. ";
  const auto said = calibrate({"--text", text});
  CAPTURE(said.err);
  CHECK(said.status == 0);
  CHECK(said.out.find("# Nats a token of the text (") != std::string::npos);
  for (const auto* format : {"f32 ", ", f16 ", ", int8 ", ", k8v4 "})
    CHECK(said.out.find(format) != std::string::npos);

  const auto missing = calibrate({"--text", folder / "nowhere"});
  CHECK(missing.status == 1);
  CHECK(missing.err.find("nowhere") != std::string::npos);
  std::ofstream{folder / "empty"};
  const auto empty = calibrate({"--text", folder / "empty"});
  CHECK(empty.status == 1);
  CHECK(empty.err.find("it takes two") != std::string::npos);
}
