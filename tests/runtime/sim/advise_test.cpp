// `mooncaf advise`: a conductor's journal, and what would have kept more of its requests inside their SLOs.

#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "tests/runtime/sched/world.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// A conductor of one prefill and one decode instance serves `requests` prompts of 2 s each, one every 1.5 s, and stops.
std::string overloaded_journal(int requests) {
  std::string file;
  auto options = small_options();
  options.admission = admission_policy::queue;
  options.ttft_slo = 6s;
  journal::recorder to;
  recorded_core core{to, options};
  recorded_queue queue{to, core, {100, 6s}};
  to.begin(core.options(), queue.options(), [&file](std::string_view bytes, bool) {
    file += bytes;
    return journal::written::whole;
  });
  for (const std::uint64_t n : {1, 2}) REQUIRE(core.add_node(node_id{n}, start));
  REQUIRE(core.add_instance(prefill_instance(1, node_id{1})));
  REQUIRE(core.add_instance(decode_instance(2, node_id{2})));
  core.memory_of(node_id{1}, 4000);
  std::vector<decision> decided;
  auto now = start;
  for (int i = 1; i <= requests; ++i, now += 1500ms) {
    const auto keys = chain(static_cast<std::uint64_t>(i), 20);
    schedule_request r;
    r.id = request_id{static_cast<std::uint64_t>(i)};
    r.keys = keys;
    r.prompt_tokens = 2000;
    r.max_tokens = 100;
    r.arrival = now;
    queue.submit(r, now, decided);
    for (const auto& d : std::exchange(decided, {})) {
      if (!d.outcome) continue;
      core.first_token(d.id, 2000, 0, 2s, now + 2s);
      core.finished(d.id, now + 3s, 50, 12ms);
    }
    queue.advance(now, decided);
    if (i % 10 == 0) to.flush();
  }
  core.remove_node(node_id{1});  // as a cluster that is stopped
  core.remove_node(node_id{2});
  to.close();
  return file;
}

struct said {
  int status = 0;
  std::string out, err;
};

said advise(const std::string& journal) {
  const temp_dir folder;
  const auto path = folder.path() + "/journal";
  std::ofstream{path, std::ios::binary} << journal;
  std::ostringstream out, err;
  const std::vector<std::string> args{"advise", path};
  const int status = sim::run_command(args, {out, err, false});
  return {status, out.str(), err.str()};
}

double points_of(const said& s, const std::string& line) {
  std::smatch m;
  REQUIRE_MESSAGE(std::regex_search(s.out, m, std::regex{line + R"( +([0-9.]+) %  +([-+0-9.]+))"}), s.out);
  return std::stod(m[2]);
}

}  // namespace

TEST_CASE("advice names what is short: here prefill, and neither decode nor another rule") {
  const auto told = advise(overloaded_journal(120));
  INFO(told.out, told.err);
  CHECK(told.status == 0);
  CHECK(told.out.starts_with(
      "120 requests in the last 178 s, 1 prefill and 1 decode instances, admission queue\n"));
  CHECK(points_of(told, "as it is") == 0);
  CHECK(points_of(told, "one more prefill instance") > 10);
  CHECK(std::abs(points_of(told, "one more decode instance")) < 5);
  CHECK(points_of(told, "10 % more requests") < 0);
  CHECK(told.out.find("decodes") == std::string::npos);  // there is no prefill instance to spare
}

TEST_CASE("advice on too little, or on what is no journal, says why there is none") {
  const auto few = advise(overloaded_journal(9));
  CHECK(few.status == 1);
  CHECK(few.err.find("less than 32 requests") != std::string::npos);
  CHECK(advise("hello").status == 1);
  CHECK(advise("").status == 1);
  const auto whole = overloaded_journal(120);
  const auto cut = advise(whole.substr(0, whole.size() * 9 / 10));
  CHECK(cut.status <= 3);
  CHECK(cut.out.find("as it is") != std::string::npos);
}
