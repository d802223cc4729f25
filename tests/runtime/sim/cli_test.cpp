#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "runtime/launch/launch_plan.hpp"
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
  explicit scratch_file(const std::string& text, const std::string& ending = ".jsonl") {
    static int number = 0;
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string{folder ? folder : "/tmp"} + "/mooncaf_cli_test_" + std::to_string(::getpid()) + "_" +
            std::to_string(++number) + ending;
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

TEST_CASE(
    "the server's configuration is simulated: its instances, policies and sizes; the command line wins") {
  const scratch_file trace{small_trace()};
  const std::string text =
      "[prefill]\ninstances = 3\nchunk_tokens = 4096\n[decode]\ninstances = 2\n[cache]\ndram = \"100GiB\"\n"
      "[scheduler]\npolicy = \"random\"\nttft_slo = \"7s\"\n";
  const scratch_file server{text, ".toml"},
      modelled{text + "[model]\ndevice = \"model:h800x8-llama70b\"\n", ".toml"};
  const auto done = program({"simulate", "--decode", "5", trace.path(), "--config", server.path(), "--json"});
  REQUIRE_MESSAGE(done.status == 0, done.err);
  for (const char* said :
       {"\"prefill\":3", "\"decode\":5", "\"policy\":\"random\"", "\"slo_ttft_s\":7",
        "\"prefill_chunk_tokens\":4096", "\"node_dram_tokens\":327680", "\"admission\":\"queue\""}) {
    CHECK_MESSAGE(done.out.find(said) != std::string::npos, said, " in ", done.out.substr(0, 1500));
  }
  const scratch_file linked{
      text + "[model]\ndevice = \"linked\"\nlink_bandwidth = \"2GiB\"\ndevice_kv = \"80GiB\"\n", ".toml"};
  const auto device = program({"simulate", trace.path(), "--config", linked.path(), "--json"});
  CHECK(device.out.find("\"node_device_link_gb_per_s\":2.147") != std::string::npos);
  CHECK(device.out.find("\"decode_device_kv_tokens\":262144") != std::string::npos);
  // Of a modelled device the profile has the sizes, as in the server.
  const auto like = program({"simulate", trace.path(), "--config", modelled.path(), "--json"});
  CHECK(like.out.find("\"profile\":\"8 x H800, LLaMA3-70B\"") != std::string::npos);
  CHECK(like.out.find("\"prefill_chunk_tokens\":16384") != std::string::npos);
  CHECK(like.out.find("\"decode\":2,") != std::string::npos);
  const scratch_file wrong{"[scheduler]\npolicy = \"best\"\n", ".toml"};
  const auto refused = program({"simulate", trace.path(), "--config=" + wrong.path()});
  CHECK(refused.status == 2);
  CHECK(refused.err.find(wrong.path() + ":2") != std::string::npos);
  CHECK(program({"simulate", trace.path(), "--config", "/nowhere.toml"}).err.find("cannot read") !=
        std::string::npos);
}

TEST_CASE("what is not given is as in the server, but for the number of instances") {
  const scratch_file trace{small_trace()};
  auto server = default_options();
  server.model.device = "model:a800x8-llama70b";  // the sizes are the profile's
  const scratch_file printed{to_toml(server), ".toml"};
  const auto given = program(
      {"simulate", trace.path(), "--config", printed.path(), "--prefill", "8", "--decode", "8", "--json"});
  const auto usual = program({"simulate", trace.path(), "--json"});
  REQUIRE_MESSAGE(given.status == 0, given.err);
  const auto options_of = [](const answer& a) { return a.out.substr(0, a.out.find(",\"seed\":")); };
  CHECK(options_of(given) == options_of(usual));
}

TEST_CASE("prefill and decode machines of a plan serve one model, each with the devices that fit it") {
  const scratch_file trace{small_trace()};
  const auto mixed = program({"plan", trace.path(), "--profile", "h100x4-llama3-70b,a100-llama3-8b"});
  CHECK(mixed.status == 2);
  CHECK(mixed.err.find("h100x4-llama3-70b and a100-llama3-8b serve different models") != std::string::npos);
  const scratch_file prices{"[node_hour]\nh100 = 2\na100 = 1\n", ".toml"};
  const auto found = program({"plan", trace.path(), "--profile", "h100x*-llama3-70b,a100x*-llama3-70b",
                              "--goal", "cost", "--prices", prices.path(), "--load", "2", "--seeds", "1",
                              "--mode", "disaggregated", "--json"});
  CHECK_MESSAGE(found.status == 0, found.err);
  CHECK(found.out.find("llama3-70b") != std::string::npos);
  const auto none = program({"plan", trace.path(), "--profile", "l40sx*-deepseek-v3"});
  CHECK(none.err.find("8 x 48 GB of memory") != std::string::npos);
}

TEST_CASE("a simulated run is replayed and explained like a server's, by its journals") {
  const scratch_file trace{small_trace()}, conductor{""};
  const auto run = program({"simulate", trace.path(), "--prefill", "2", "--decode", "1", "--speed", "8",
                            "--journal", conductor.path()});
  REQUIRE_MESSAGE(run.status == 0, run.err);
  const auto of_workers = conductor.path() + ".workers";
  const auto again = program({"replay", of_workers, conductor.path(), "--explain", "#150"});
  std::remove(of_workers.c_str());
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(again.out.starts_with("request "));
  CHECK(again.out.find("prefill instance ") != std::string::npos);
  CHECK(again.out.find(conductor.path() + ": ") != std::string::npos);
  CHECK(again.out.find("\n" + of_workers + " ") != std::string::npos);
  CHECK(again.out.find("; without a load ") != std::string::npos);
  const auto alone = program({"replay", conductor.path(), "--explain", "#201"});
  CHECK(alone.status == 1);
  CHECK(alone.err == "mooncaf replay: --explain #201: no such request; --list names them\n");
  CHECK(program({"replay"}).status == 2);
  const auto nowhere = program({"simulate", trace.path(), "--journal", "/nowhere/at/all"});
  CHECK(nowhere.status == 1);
  CHECK(nowhere.err == "mooncaf simulate: --journal: cannot write /nowhere/at/all\n");
}

TEST_CASE("two journals of one trace are compared: alike, or from which request on they are not") {
  const scratch_file trace{small_trace()};
  const scratch_file one{""}, same{""}, other{""};
  for (const auto& [file, policy] :
       {std::pair{&one, "kvcache_centric"}, {&same, "kvcache_centric"}, {&other, "random"}}) {
    const auto run = program({"simulate", trace.path(), "--prefill", "3", "--decode", "2", "--speed", "8",
                              "--policy", policy, "--journal", file->path()});
    REQUIRE_MESSAGE(run.status == 0, run.err);
    std::remove((file->path() + ".workers").c_str());
  }
  const auto alike = program({"replay", one.path(), "--against", same.path()});
  CHECK_MESSAGE(alike.status == 0, alike.err);
  CHECK(alike.out.find("200 requests are in both, 200 decided alike\n") != std::string::npos);
  const auto differs = program({"replay", one.path(), "--against", other.path()});
  CHECK(differs.status == 1);
  CHECK(differs.out.find(" to another prefill instance\n") != std::string::npos);
  const auto at = differs.out.find("the first that differs:\n  A: #");
  REQUIRE(at != std::string::npos);
  CHECK(differs.out.find("\n  B: #", at) != std::string::npos);
  CHECK(program({"replay", one.path(), "--against", trace.path()}).status == 1);
  CHECK(program({"replay", one.path(), other.path(), "--against", same.path()}).status == 2);
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
  // What was simulated stands in the heading, once.
  const std::string heading = "kvcache_centric, admission queue";
  CHECK(page.str().find(heading) == page.str().rfind(heading));
  // Nothing is asked of the caches while the last answers are decoded: no share, not a share of 0.
  const auto hits = page.str().find("\"hit_share\":[") + 13;
  CHECK(page.str().substr(hits, page.str().find(']', hits) - hits).ends_with("null"));
}

TEST_CASE("a report of more instances than fit has them all, several to a row, and says so") {
  const scratch_file trace{small_trace()};
  const auto page_path = trace.path() + ".html";
  const auto done =
      program({"simulate", trace.path(), "--prefill", "150", "--decode", "90", "--report", page_path});
  CHECK_MESSAGE(done.status == 0, done.err);
  std::stringstream page;
  page << std::ifstream{page_path}.rdbuf();
  std::remove(page_path.c_str());
  CHECK(page.str().find("\"busy_note\":\"a row is the mean of up to 3 instances\"") != std::string::npos);
  CHECK(page.str().find("\"prefill 147–149\",\"decode 0–2\"") != std::string::npos);
  CHECK(page.str().find("\"decode 87–89\"]") != std::string::npos);
}

TEST_CASE("runs are compared: what differed, what came of it, which was best") {
  const scratch_file trace{small_trace()};
  const auto run_of = [&](const std::string& decode) {
    return program({"simulate", trace.path(), "--prefill", "2", "--decode", decode, "--json"}).out;
  };
  const scratch_file one{run_of("1"), "_one.json"}, two{run_of("3"), "_two.json"};
  const auto page_path = trace.path() + ".html";
  const auto done = program({"simulate", "--compare", one.path(), two.path(), "--report", page_path});
  REQUIRE_MESSAGE(done.status == 0, done.err);
  const auto line = [&](const std::string& what) {
    const auto at = done.out.find("\n" + what + " ");
    REQUIRE_MESSAGE(at != std::string::npos, what, " in ", done.out);
    return done.out.substr(at + 1, done.out.find('\n', at + 1) - at - 1);
  };
  CHECK(line("decode").find(" 1 ") < line("decode").find(" 3 "));
  CHECK(line("machines").find("3 *") < line("machines").rfind("5 "));
  CHECK(done.out.find("\nprefill  ") == std::string::npos);  // the same in both
  std::stringstream page;
  page << std::ifstream{page_path}.rdbuf();
  std::remove(page_path.c_str());
  CHECK(page.str().find("<td class=\"best\">3</td>") != std::string::npos);
  CHECK(page.str().find("@DATA@") == std::string::npos);
}

TEST_CASE("what is no run cannot be compared, and the error names the file") {
  const scratch_file trace{small_trace()};
  const scratch_file good{program({"simulate", trace.path(), "--json"}).out, "_good.json"};
  const auto said = [&](const std::string& text) {
    const scratch_file bad{text, "_bad.json"};
    const auto done = program({"simulate", "--compare", good.path(), bad.path()});
    CHECK(done.status == 1);
    return done.err.substr(done.err.find("_bad: ") + 6);
  };
  CHECK(said("hello") == "this is no JSON object\n");
  CHECK(said("{}") == "this is no run: mooncaf simulate --json writes one\n");
  CHECK(said(R"({"options":{}})").starts_with("ttft_cdf is missing"));
  auto torn = program({"simulate", trace.path(), "--json"}).out;
  torn.replace(torn.find("\"hit_share\":["), 13, "\"hit_share\":[7,");
  CHECK(said(torn).starts_with("history.hit_share is missing, or of another length"));
  CHECK(program({"simulate", "--compare", good.path()}).status == 2);
}

TEST_CASE("a plan's files are the server's own configuration of what was planned") {
  const scratch_file trace{small_trace()};
  const auto folder = trace.path() + "-cluster";
  const auto ask = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"plan",   trace.path(),    "--nodes",   "4",     "--seeds", "1",
                                  "--mode", "disaggregated", "--slo-tbt", "150ms", "--out",   folder};
    args.insert(args.end(), more.begin(), more.end());
    return program(args);
  };
  const auto done = ask({"--policy", "cache_aware", "--admission", "early", "--ssd-tokens", "1000000"});
  CHECK_MESSAGE(done.out.ends_with("started by mooncaf up " + folder + "/cluster.toml\n"), done.err);
  const auto plan = [&] {
    std::stringstream text;
    text << std::ifstream{folder + "/cluster.toml"}.rdbuf();
    const auto spec = launch::read_cluster(text.str(), "cluster.toml");
    REQUIRE_MESSAGE(spec, spec.error().detail);
    const auto planned = launch::plan_launch(*spec, "c", folder);
    REQUIRE_MESSAGE(planned, planned.error().detail);
    return *planned;
  };
  const auto options = [&](const std::string& node) {
    for (const auto& host : plan().hosts)
      for (const auto& n : host.nodes)
        if (n.name == node) return parse_options({}, n.text, node)->values;
    FAIL("no node " << node);
    return mooncaf::options{};
  };
  const auto front = options("front-conductor");
  CHECK(front.scheduler.policy == placement_policy::cache_aware);
  CHECK(front.scheduler.admission == admission_policy::early);
  CHECK(front.scheduler.tbt_slo == std::chrono::milliseconds(150));
  CHECK((front.cluster.conductor && !front.cluster.prefill));
  const auto prefill = options("machine-0-prefill-0");
  CHECK((prefill.cluster.prefill && !prefill.cluster.decode && !prefill.cluster.conductor));
  CHECK(prefill.prefill.instances == 1);
  CHECK(prefill.prefill.chunk_tokens == 16'384);
  CHECK(prefill.cache.dram_bytes / 327'680 == doctest::Approx(3'000'000).epsilon(0.001));
  CHECK(prefill.cache.ssd_bytes / 327'680 == doctest::Approx(1'000'000).epsilon(0.001));
  CHECK(prefill.cache.ssd_path == folder + "/ssd/machine-0-prefill-0");
  const auto hosts = plan().hosts;
  CHECK(hosts.size() == 5);  // four machines, and the front
  CHECK(options(hosts.back().nodes.at(0).name).decode.max_batch == 256);
  CHECK(front.model.device == "model:machine.toml");  // a rehearsal, until the file is edited
  std::filesystem::remove_all(folder);

  // A group is one process with the memory of its machines.
  const auto groups = ask({"--pipeline", "2"});
  CHECK_MESSAGE(groups.status == 0, groups.err);
  const auto group = options("machine-0-prefill-0");
  CHECK(group.model.pipeline == 2);
  CHECK(group.cache.dram_bytes / 327'680 == doctest::Approx(6'000'000).epsilon(0.001));
  std::filesystem::remove_all(folder);

  // Coupled machines are nodes that do both, and the front that tells them apart.
  const auto coupled = program({"plan", trace.path(), "--nodes", "3", "--seeds", "1", "--mode", "coupled",
                                "--coupled-chunk", "512", "--out", folder});
  CHECK_MESSAGE(coupled.out.ends_with("started by mooncaf up " + folder + "/cluster.toml\n"), coupled.err);
  CHECK(options("front-conductor").cluster.mode == serving_mode::coupled);
  const auto node = options("machine-2-coupled-0");
  CHECK(node.cluster.mode == serving_mode::coupled);
  CHECK((node.cluster.prefill && node.cluster.decode && node.cluster.cache && !node.cluster.conductor));
  CHECK(node.prefill.chunk_tokens == 512);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a plan chooses policy, admission, memory, disk and network of those that it is given") {
  const scratch_file trace{small_trace()};
  const scratch_file prices{
      "currency = \"EUR\"\ncache_gb_hour = 0.02\nssd_gb_hour = 0.001\nnic_gbit_hour = 0.01\n"
      "[node_hour]\na800x8-llama70b = 14\n",
      ".toml"};
  const auto page = trace.path() + ".html";
  const auto done = program({"plan", trace.path(), "--goal", "cost", "--load", "2", "--prices", prices.path(),
                             "--seeds", "1", "--policy", "cache_aware,load_balancing", "--report", page});
  REQUIRE_MESSAGE(done.status == 0, done.err);
  // Of memory and network, which cost, less does.
  CHECK(done.out.find("each of them         246 GB of memory for KV") != std::string::npos);
  CHECK(done.out.find(" 200 Gbit/s\n") != std::string::npos);
  CHECK(done.out.find("what other loads need, EUR an hour and per million tokens") != std::string::npos);
  CHECK(done.out.find("kvcache_centric, ") == std::string::npos);
  std::stringstream text;
  text << std::ifstream{page}.rdbuf();
  std::remove(page.c_str());
  CHECK(text.str().find("<td>Costs</td><td>") != std::string::npos);
  CHECK(text.str().find("\"cliff\":[{\"load\":") != std::string::npos);
  const auto said = [&](const std::string& option, const std::string& value) {
    const auto bad = program({"plan", trace.path(), option, value});
    CHECK(bad.status == 2);
    return bad.err;
  };
  CHECK(said("--policy", "random,best").find("'best' is none of random,load_balancing") != std::string::npos);
  CHECK(said("--admission", "").find("'' is none of none,baseline") != std::string::npos);
  CHECK(said("--nic", "0").find("a network has 0.001") != std::string::npos);
  CHECK(said("--ssd", "much").find("'much' is no number") != std::string::npos);
  CHECK(program({"plan", trace.path(), "--report", "/nowhere/p.html", "--nodes", "2", "--seeds", "1"})
            .err.find("cannot write /nowhere/p.html") != std::string::npos);
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
  CHECK(reason(good + R"({"timestamp": 6, "input_length": 600, "output_length": 2, "hash_ids": [1]})"
                      "\n") ==
        "2: hash_ids has 1 entries for 600 tokens, but the lines before have blocks of 300 to 599 tokens\n");
  CHECK(reason(R"({"timestamp": 5, "input_length": 1600, "output_length": 2, "hash_ids": [1, 2, 7, 2]})")
            .find("1: hash_ids: 2 stands twice") == 0);
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
  CHECK(said({"simulate", "one.jsonl", "two.jsonl"}).find("'two.jsonl' is one more") != std::string::npos);
  CHECK(said({"trace", "bake"}).find("usage: mooncaf trace") == 0);
  CHECK(said({"calibrate"}).find("--model is missing") != std::string::npos);
  CHECK(program({"simulate", "--trace", "/nowhere.jsonl"}).err.find("cannot open /nowhere.jsonl") !=
        std::string::npos);
  CHECK(program({"simulate", "--help"}).out.find("--admission") != std::string::npos);
}

TEST_CASE("a plan says what to buy, what it carries and costs, and how far it is from the cliff") {
  const scratch_file trace{small_trace()};
  const auto done = program(
      {"plan", trace.path(), "--nodes", "3", "--slo-ttft", "30s", "--slo-tbt", "100ms", "--seeds", "2"});
  CHECK_MESSAGE(done.status == 0, done.err);
  CHECK(done.out.find("recommended          ") == 0);
  CHECK(done.out.find(" = 3 machines") != std::string::npos);
  CHECK(done.out.find("steps 20 % slower") != std::string::npos);
  CHECK(done.out.find("an hour") == std::string::npos);
  const scratch_file prices{"currency = \"EUR\"\n[node_hour]\na800x8-llama70b = 14\nh800x8-llama70b = 22\n",
                            ".toml"};
  const auto priced =
      program({"plan", trace.path(), "--goal", "cost", "--load", "2", "--prices", prices.path(), "--profile",
               "a800x8-llama70b,h800x8-llama70b", "--seeds", "2", "--json"});
  CHECK_MESSAGE(priced.status == 0, priced.err);
  for (const char* member :
       {R"("goal":"cost")", R"("currency":"EUR")", R"("planned_load":2)", R"("risks":[{"what":)",
        R"("machines":[{"name":"a800x8-llama70b","node_hour":14})"}) {
    CHECK_MESSAGE(priced.out.find(member) != std::string::npos, member);
  }
  CHECK(program({"plan", trace.path(), "--goal", "cost"}).err.find("--goal cost needs --prices") !=
        std::string::npos);
  const auto missing =
      program({"plan", trace.path(), "--prices", prices.path(), "--profile", "h200-llama8b"});
  CHECK(missing.status == 2);
  CHECK(missing.err.find("no price for 'h200-llama8b'") != std::string::npos);
  const auto small = program({"plan", trace.path(), "--goal", "nodes", "--nodes", "2", "--load", "500"});
  CHECK(small.status == 1);
  CHECK(small.out.find("No cluster of at most 2 machines carries") == 0);
  // The most that two machines carry is an answer, though it is less than was to be carried.
  CHECK(program({"plan", trace.path(), "--goal", "goodput", "--nodes", "2", "--load", "500"}).status == 0);
}

namespace {

/// The number behind a key of JSON text; it is there.
double number_at(const std::string& json, const std::string& key) {
  const auto at = json.find("\"" + key + "\":");
  REQUIRE_MESSAGE(at != std::string::npos, key, " is missing in ", json.substr(0, 200));
  return std::stod(json.substr(at + key.size() + 3));
}

/// A profile with blocks of 64 tokens, as `calibrate` writes them, and fast enough for the small trace.
std::string profile_of_64() {
  return "name = \"small\"\n[model]\nlayers = 30\nkv_bytes_per_token = 23040\nblock_tokens = 64\n"
         "[prefill]\nconstant_ms = 1\ntoken_us = 20\npair_ns = 0.1\ncached_token_us = 0\nchunk_tokens = "
         "2048\n"
         "[decode]\nconstant_ms = 2\nsequence_us = 50\ncontext_token_ns = 5\nmax_batch = 64\n"
         "device_kv_tokens = 1000000\n"
         "[node]\nnic_gbit_per_s = 80\nnetwork_latency_us = 10\nssd_gb_per_s = 1\ndram_tokens = 4000000\n"
         "ssd_tokens = 0\n";
}

}  // namespace

TEST_CASE("a trace in blocks of another size than the profile's is cut anew, and finds as many of them") {
  const scratch_file trace{small_trace()};
  const scratch_file profile{profile_of_64(), ".toml"};
  const auto fine = program({"simulate", trace.path(), "--profile", profile.path(), "--json"});
  REQUIRE_MESSAGE(fine.status == 0, fine.err);
  CHECK(number_at(fine.out, "arrived") == 200);
  auto coarse_text = profile_of_64();
  coarse_text.replace(coarse_text.find("block_tokens = 64"), 17, "block_tokens = 512");
  const scratch_file coarse_profile{coarse_text, ".toml"};
  const auto coarse = program({"simulate", trace.path(), "--profile", coarse_profile.path(), "--json"});
  CHECK(number_at(fine.out, "computed_tokens") ==
        doctest::Approx(number_at(coarse.out, "computed_tokens")).epsilon(0.02));
  const auto stats = program({"trace", "stats", trace.path()});
  CHECK(stats.out.find(" of 512 tokens, ") != std::string::npos);
  const scratch_file of_64{program({"trace", "generate", "--requests", "200", "--block-tokens", "64"}).out};
  CHECK(program({"trace", "stats", of_64.path()}).out.find(" of 64 tokens, ") != std::string::npos);
}

TEST_CASE("JSON tells every option that changes a run, and what happened over time") {
  const scratch_file trace{small_trace()};
  const auto done = program({"simulate", trace.path(), "--json", "--threshold", "inf", "--tbt", "p90",
                             "--nic-gbit", "100", "--eviction", "lfu", "--decode-span", "7s"});
  REQUIRE_MESSAGE(done.status == 0, done.err);
  for (const char* member :
       {R"("threshold":null)", R"("tbt":"p90")", R"("eviction":"lfu")", R"("decode_span_s":7)",
        R"("node_nic_gbit_per_s":100)", R"("node_dram_tokens":3000000)", R"("history":{"at_s":[)",
        R"("leaf_first":true)", R"("write_policy":"write_back")", R"("assumed":[])"}) {
    CHECK_MESSAGE(done.out.find(member) != std::string::npos, member);
  }
  CHECK(number_at(done.out, "decode_memory") > 0);
}

TEST_CASE("a device's own memory is told in the table and in JSON, where there is one") {
  const scratch_file trace{small_trace()};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"simulate", trace.path()};
    args.insert(args.end(), more.begin(), more.end());
    return program(args);
  };
  const auto json = with({"--device-link-gb", "25", "--device-kv-tokens", "200000", "--json"});
  REQUIRE_MESSAGE(json.status == 0, json.err);
  CHECK(json.out.find("\"node_device_link_gb_per_s\":25") != std::string::npos);
  for (const char* count : {"hit_tokens", "loaded_tokens", "loaded_bytes", "stored_bytes"})
    CHECK(number_at(json.out, count) > 0);
  CHECK(with({"--device-link-gb", "25"}).out.find("device memory        held ") != std::string::npos);
  CHECK(with({}).out.find("device memory") == std::string::npos);
  CHECK(
      with({"--device-link-gb", "25", "--device-kv-tokens", "100"}).err.find("a device with a link holds") !=
      std::string::npos);
}

TEST_CASE("what a profile leaves out is said with the value that is taken") {
  const scratch_file trace{small_trace()};
  auto text = profile_of_64();
  text.erase(text.find("[decode]"), text.find("[node]") - text.find("[decode]"));
  const scratch_file profile{text, ".toml"};
  const auto table = program({"simulate", trace.path(), "--profile", profile.path()});
  REQUIRE_MESSAGE(table.status == 0, table.err);
  CHECK(table.out.find("not in the profile   decode.constant_ms = 1 is assumed") != std::string::npos);
  CHECK(table.out.find("prefill.token_us") == std::string::npos);
  const auto json = program({"simulate", trace.path(), "--profile", profile.path(), "--json"});
  CHECK(json.out.find(R"("assumed":["decode.constant_ms = 1","decode.sequence_us = 1000")") !=
        std::string::npos);
}

TEST_CASE("a trace's statistics and hit ratios are JSON where that is asked for") {
  const scratch_file trace{small_trace()};
  const auto stats = program({"trace", "stats", trace.path(), "--json"});
  CHECK(number_at(stats.out, "requests") == 200);
  CHECK(number_at(stats.out, "block_tokens") == 512);
  CHECK(number_at(stats.out, "p50") > 0);
  const auto hits = program({"trace", "hitrate", trace.path(), "--json", "--capacity", "50"});
  CHECK(hits.out.find(R"([{"capacity_blocks":50,"lru":{"blocks":)") == 0);
}

TEST_CASE("decode may run on other machines than prefill, if they hold the same KV") {
  const scratch_file trace{small_trace()};
  const auto mixed = program({"simulate", trace.path(), "--profile", "h800x8-llama70b", "--decode-profile",
                              "a800x8-llama70b", "--json"});
  REQUIRE_MESSAGE(mixed.status == 0, mixed.err);
  CHECK(mixed.out.find(R"("decode_hardware":{"name":"8 x A800, LLaMA3-70B")") != std::string::npos);
  const auto same = program({"simulate", trace.path(), "--profile", "h800x8-llama70b", "--json"});
  CHECK(number_at(mixed.out.substr(mixed.out.find("\"tbt_s\"")), "mean") >
        number_at(same.out.substr(same.out.find("\"tbt_s\"")), "mean"));
  const auto other = program({"simulate", trace.path(), "--decode-profile", "h200-llama8b"});
  CHECK(other.status == 2);
  CHECK(other.err.find("prefill cannot hand over to decode") != std::string::npos);
}

TEST_CASE("machines die and come back as a file says, in the table, in JSON and on the page") {
  const scratch_file trace{small_trace()};
  const scratch_file tale{"10s 5s fail decode 1\n20s 10s fail prefill all unseen 2s\n", ".txt"};
  const std::vector<std::string> call{"simulate", trace.path(), "--disturb", tale.path()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), call.begin(), call.end());
    return program(more);
  };
  const auto table = with({});
  REQUIRE_MESSAGE(table.status == 0, table.err);
  CHECK(table.out.find("died                 decode 1 from 10.0 to 15.0 s") != std::string::npos);
  CHECK(table.out.find("died with machines   ") != std::string::npos);
  const auto json = with({"--json"});
  CHECK(json.out.find(R"({"role":"decode","why":"failed","instance":1,"from_s":10,"until_s":15})") !=
        std::string::npos);
  CHECK(number_at(json.out, "attempts_lost") > 0);
  const scratch_file page{"", ".html"};
  REQUIRE(with({"--report", page.path()}).status == 0);
  std::stringstream text;
  text << std::ifstream{page.path()}.rdbuf();
  CHECK(text.str().find(R"("deaths":[[10,"decode 1"],[20,"prefill 0"])") != std::string::npos);
  const auto plan = program({"plan", trace.path(), "--disturb", tale.path()});
  CHECK(plan.status == 2);
  CHECK(plan.err.find("--mode disaggregated or --mode coupled") != std::string::npos);
}

TEST_CASE("a cluster that scales or switches roles is called by options, which say what is wrong with them") {
  const scratch_file trace{small_trace()};
  const scratch_file prices{"currency = \"EUR\"\n[node_hour]\na800x8-llama70b = 36\n", ".toml"};
  const auto scaled = program({"simulate", trace.path(), "--prefill", "2", "--decode", "1", "--scale-prefill",
                               "1-4", "--start-up", "5s", "--prices", prices.path()});
  REQUIRE_MESSAGE(scaled.status == 0, scaled.err);
  CHECK(scaled.out.find("machines             ") != std::string::npos);
  CHECK(scaled.out.find(" EUR: ") != std::string::npos);
  const auto fixed = program(
      {"simulate", trace.path(), "--prefill", "2", "--decode", "1", "--prices", prices.path(), "--json"});
  CHECK(number_at(fixed.out, "cost") ==
        doctest::Approx(3 * 36 * number_at(fixed.out, "span_s") / 3600).epsilon(1e-4));
  const auto said = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", trace.path()});
    const auto done = program(more);
    CHECK(done.status == 2);
    return done.err;
  };
  CHECK(said({"--scale-decode", "4-2"}).find("two numbers with a dash") != std::string::npos);
  CHECK(said({"--scale-decode", "1-4"}).find("begins with 8 decode, which is not within 1 to 4") !=
        std::string::npos);
  CHECK(said({"--switch-roles", "--pipeline", "2"}).find("single machines of one kind") != std::string::npos);
  CHECK(said({"--prices", prices.path(), "--profile", "h200-llama8b"}).find("no price for 'h200-llama8b'") !=
        std::string::npos);
  CHECK(program({"plan", trace.path(), "--scale-prefill", "1-4"}).status == 2);
}
