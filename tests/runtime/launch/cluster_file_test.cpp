#include "runtime/launch/cluster_file.hpp"

#include <doctest/doctest.h>

#include "runtime/launch/launch_plan.hpp"

using namespace mooncaf;
using namespace mooncaf::launch;

namespace {

const std::string three_hosts = R"([launch]
name = "chat"
port = 7500
[model]
path = "dummy:tiny"
[cache]
dram = "1GiB"
[scheduler]
ttft_slo = "3s"
[alpha]
address = "10.0.0.1"
conductor = 1
gateway = 1
[beta]
address = "10.0.0.2"
ssh = "operator@beta"
prefill = 2  # one for each card
device = "cuda:0,cuda:1"
ssd_path = "/nvme"
cache_dram = "2GiB"
[gamma]
address = "localhost"
decode = 1
)";

launch_plan plan_of(const std::string& text) {
  const auto spec = read_cluster(text, "c.toml");
  REQUIRE_MESSAGE(spec.has_value(), spec.error().detail);
  const auto plan = plan_launch(*spec, "other", "/home/op");
  REQUIRE_MESSAGE(plan.has_value(), plan.error().detail);
  return *plan;
}

/// The refusal of the file with `from` in place of `to`.
std::string refused(const std::string& from, const std::string& to) {
  auto text = three_hosts;
  text.replace(text.find(from), from.size(), to);
  const auto spec = read_cluster(text, "c.toml");
  if (spec) return "accepted";
  return spec.error().detail;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE(
    "each process gets its host's options over those of all, a device of its own and a folder of its own") {
  const auto plan = plan_of(three_hosts);
  CHECK(plan.name == "chat");
  REQUIRE(plan.hosts.size() == 3);
  const auto& front = plan.hosts[0].nodes.at(0);
  CHECK(front.name == "alpha-conductor");
  CHECK(has(front.text, "role = \"conductor\""));
  CHECK(has(front.text, "listen = \"10.0.0.1:7500\""));
  CHECK(has(front.text, "ttft_slo = \"3s\""));
  CHECK(plan.hosts[0].gateways == std::vector<std::string>{"http://10.0.0.1:8000"});
  const auto& gateway = plan.hosts[0].nodes.at(1);
  CHECK((gateway.overlaps && !front.overlaps));
  CHECK(has(gateway.text, "http_handover = \"alpha-gateway.socket\""));
  const auto& beta = plan.hosts[1];
  REQUIRE(beta.nodes.size() == 2);
  CHECK(beta.entry.ssh == "operator@beta");
  CHECK(has(beta.nodes[0].text, "device = \"cuda:0\""));
  CHECK(has(beta.nodes[1].text, "device = \"cuda:1\""));
  CHECK(has(beta.nodes[1].text, "ssd_path = \"/nvme/beta-prefill-1\""));
  CHECK(has(beta.nodes[1].text, "join = \"10.0.0.1:7500\""));
  CHECK(beta.nodes[0].memory_bytes == 2 * GiB);
  CHECK_FALSE(beta.entry.local);
  CHECK(plan.hosts[2].entry.local);
  CHECK(plan.hosts[2].nodes.at(0).memory_bytes == 1 * GiB);
}

TEST_CASE("with several conductors every process knows all of them, in the file's order") {
  auto text = three_hosts;
  text.insert(text.find("decode = 1"), "conductor = 1\n");
  const auto plan = plan_of(text);
  for (const auto& host : plan.hosts) {
    for (const auto& node : host.nodes) CHECK(has(node.text, "join = \"10.0.0.1:7500,localhost:7500\""));
  }
  CHECK(has(plan.hosts[2].nodes.at(0).text, "listen = \"localhost:7500\""));
}

TEST_CASE("of a host's processes the conductor alone carries the store's directory") {
  auto text = three_hosts;
  text.insert(text.find("decode = 1"), "conductor = 1\nstore_listen = \"10.0.0.3:7460\"\n");
  const auto plan = plan_of(text);
  const auto& gamma = plan.hosts[2].nodes;
  REQUIRE(gamma.size() == 2);
  CHECK(has(gamma[0].text, "[store]\nlisten = \"10.0.0.3:7460\""));
  CHECK_FALSE(has(gamma[1].text, "10.0.0.3:7460"));
}

TEST_CASE(
    "the stages of a group go to the hosts that the leader's section names, each at a port of its own") {
  auto text = three_hosts;
  text.replace(text.find("device = \"cuda:0,cuda:1\"\n"), 24, "prefill_ranks = \"gamma,alpha\"\n");
  text.insert(text.find("decode = 1"), "decode_ranks = \"gamma\"\n");
  const auto plan = plan_of(text);
  const auto& leader = plan.hosts[1].nodes.at(1);
  CHECK(leader.name == "beta-prefill-1");
  CHECK(has(leader.text, "ranks = \"localhost:7502,10.0.0.1:7502\""));
  CHECK_FALSE(has(leader.text, "stage"));
  const auto& gamma = plan.hosts[2].nodes;
  REQUIRE(gamma.size() == 4);
  CHECK(gamma[0].name == "beta-prefill-0-rank-1");  // before workers, which look for it
  CHECK(gamma[1].name == "beta-prefill-1-rank-1");
  CHECK(has(gamma[1].text, "listen = \"localhost:7502\""));
  CHECK(has(gamma[1].text, "pipeline = 3"));
  CHECK(has(gamma[1].text, "stage = 1"));
  CHECK_FALSE(has(gamma[1].text, "join"));
  CHECK(gamma[1].ports.front() == "localhost:7502");
  CHECK(gamma[1].memory_bytes == 1 * GiB);  // device-kv: KV of its layers
  CHECK(gamma[2].name == "gamma-decode-0-rank-1");
  CHECK(gamma[3].name == "gamma-decode-0");
  CHECK(has(gamma[3].text, "ranks = \"localhost:7503\""));
  const auto& alpha = plan.hosts[0].nodes;
  REQUIRE(alpha.size() == 4);
  CHECK(alpha[2].name == "beta-prefill-1-rank-2");
  CHECK(has(alpha[2].text, "stage = 2"));
}

TEST_CASE("with tensor the hosts are ranks of a stage, and the leader is the first of the last one") {
  auto text = three_hosts;
  text.replace(text.find("device = \"cuda:0,cuda:1\"\n"), 24, "prefill_ranks = \"gamma,alpha,gamma\"\n");
  text.insert(text.find("path = \"dummy"), "tensor = 2\n");
  const auto plan = plan_of(text);
  const auto& leader = plan.hosts[1].nodes.at(0);
  CHECK(has(leader.text, "ranks = \"localhost:7501,10.0.0.1:7501,localhost:7502\""));
  CHECK(has(leader.text, "tensor = 2"));
  CHECK_FALSE(has(leader.text, "tensor_rank"));
  const auto& gamma = plan.hosts[2].nodes;
  CHECK(gamma[0].name == "beta-prefill-0-rank-1");
  CHECK(has(gamma[0].text, "pipeline = 2\nstage = 1\ntensor = 2\ntensor_rank = 1"));
  CHECK(gamma[1].name == "beta-prefill-0-rank-3");
  CHECK(has(gamma[1].text, "pipeline = 2\nstage = 2\ntensor = 2\ntensor_rank = 2"));
  CHECK(has(plan.hosts[0].nodes.at(2).text, "pipeline = 2\nstage = 1\ntensor = 2\ntensor_rank = 2"));

  text.replace(text.find("gamma,alpha,gamma"), 17, "gamma,alpha");
  const auto odd = plan_launch(*read_cluster(text, "c.toml"), "other", "/home/op");
  REQUIRE(!odd);
  CHECK(odd.error().detail ==
        "[beta] prefill_ranks names 2 hosts, which with its own are no stages of 2 ranks (tensor)");
}

TEST_CASE("ranks for which there are no ports are refused") {
  auto text = three_hosts;
  text.replace(text.find("port = 7500"), 11, "port = 65534");
  text.insert(text.find("decode = 1"), "decode_ranks = \"alpha,gamma,gamma\"\n");
  const auto spec = read_cluster(text, "c.toml");
  REQUIRE(spec);
  const auto plan = plan_launch(*spec, "other", "/home/op");
  REQUIRE(!plan);
  CHECK(plan.error().detail == "launch.port 65534 leaves no ports behind it for the ranks at localhost");
}

TEST_CASE("each engine of a host gets a worker, and no other process hears of engines") {
  const std::string file = R"([model]
path = "/models/m"
[cluster]
mode = "engines"
[engine]
key_file = "keys"
[alpha]
address = "10.0.0.1"
conductor = 1
gateway = 1
engine = 2
engine_at = "127.0.0.1:8001,127.0.0.1:8002"
engine_events = "tcp://127.0.0.1:5557,tcp://127.0.0.1:5558"
)";
  const auto plan = plan_of(file);
  REQUIRE(plan.hosts.size() == 1);
  const auto& nodes = plan.hosts[0].nodes;
  REQUIRE(nodes.size() == 4);
  CHECK(nodes[0].name == "alpha-conductor");
  for (std::size_t i = 1; i <= 2; ++i) {
    const auto number = std::to_string(i);
    CHECK(nodes[i].name == "alpha-engine-" + std::to_string(i - 1));
    CHECK(has(nodes[i].text, "at = \"127.0.0.1:800" + number + "\""));
    CHECK(has(nodes[i].text, "events = \"tcp://127.0.0.1:555" + std::to_string(6 + i) + "\""));
    CHECK(has(nodes[i].text, "key_file = \"engine-key-file\""));
    CHECK(nodes[i].memory_bytes == 0);
  }
  CHECK_FALSE(has(nodes[0].text, "[engine]"));
  CHECK_FALSE(has(nodes[3].text, "[engine]"));
  CHECK(plan.hosts[0].files.at("engine-key-file") == "/home/op/keys");
  auto more = file;
  more.replace(more.find("engine = 2"), 10, "engine = 3");
  const auto spec = read_cluster(more, "c.toml");
  REQUIRE(spec);
  CHECK(plan_launch(*spec, "c", "/").error().detail ==
        "[alpha] engine = 3 is more than engine_at names: 127.0.0.1:8001,127.0.0.1:8002");
}

TEST_CASE("what is wrong in the file is refused with line, key and range") {
  CHECK(refused("prefill = 2", "prefill = 2\nprefill_ranks = \"delta\"") ==
        "c.toml: [beta] prefill_ranks names delta, and no host is called so");
  CHECK(refused("prefill = 2", "prefill = 2\nprefill_ranks = \"alpha,\"")
            .starts_with("c.toml:18: beta.prefill_ranks must be names of hosts"));
  CHECK(has(refused("prefill = 2", "prefill = 2\nranks = \"10.0.0.1:7\""), "given by `mooncaf up`"));
  CHECK(refused("prefill = 2", "prefill = 65") ==
        "c.toml:17: beta.prefill 65 is out of range; allowed: 0 to 64");
  CHECK(refused("cache_dram = \"2GiB\"", "cache_drum = \"2GiB\"") ==
        "c.toml:20: beta.cache_drum is unknown; did you mean cache_dram?");
  CHECK(refused("dram = \"1GiB\"", "dram = \"1\"").starts_with("c.toml:7: cache.dram \"1\" is not a size"));
  CHECK(
      refused("cuda:0,cuda:1", "cuda:0,cuda1").starts_with("c.toml:18: beta.device \"cuda1\" is no device"));
  CHECK(refused("ssd_path = \"/nvme\"", "ssd_path = \"nvme\"")
            .starts_with("c.toml:19: beta.ssd_path must begin with /"));
  CHECK(refused("port = 7500", "port = 0") == "c.toml:3: launch.port 0 is out of range; allowed: 1 to 65535");
  CHECK(refused("conductor = 1\n", "") == "c.toml: conductor = 1 is needed on one host at least");
  CHECK(refused("gateway = 1\n", "") == "c.toml: gateway = 1 is needed on one host at least");
  CHECK(
      refused("address = \"10.0.0.2\"\n", "address = \"10.0.0.1\"\nconductor = 1\n") ==
      "c.toml: [beta] and [alpha] have a conductor each at 10.0.0.1: conductors need addresses of their own");
  CHECK(refused("address = \"10.0.0.2\"\n", "") == "c.toml: [beta] has no address");
  CHECK(has(refused("ssh = \"operator@beta\"", "ssh = \"-oProxyCommand=x\""), "does not begin with -"));
  CHECK(has(refused("[model]\n", "[metrics]\nlog_level = \"warn\"\n[model]\n"),
            "hides that a process is ready"));
  CHECK(has(refused("ttft_slo = \"3s\"\n", "ttft_slo = \"3s\"\n[cluster]\nrole = \"all\"\n"),
            "given by `mooncaf up`"));
}

TEST_CASE("scaling changes one line of the file and keeps the comments") {
  const auto more = scaled(three_hosts, "c.toml", "prefill", 2, "");
  REQUIRE(more.has_value());
  CHECK(has(*more, "prefill = 4  # one for each card\n"));
  CHECK(more->size() == three_hosts.size());
  const auto fresh = scaled(three_hosts, "c.toml", "decode", 1, "beta");
  REQUIRE(fresh.has_value());
  CHECK(read_cluster(*fresh, "c.toml")->hosts[1].count("decode") == 1);
  CHECK(scaled(three_hosts, "c.toml", "prefill", -3, "").error().detail ==
        "prefill of beta would be -1; allowed: 0 to 64");
  CHECK_FALSE(scaled(three_hosts, "c.toml", "conductor", 1, "").has_value());
  CHECK_FALSE(scaled(three_hosts, "c.toml", "cache", 1, "").has_value());
  CHECK_FALSE(scaled(three_hosts, "c.toml", "decode", 1, "delta").has_value());
}

TEST_CASE("a count without a sign is that of all hosts together") {
  const auto total = [](const std::string& text, std::string_view part) {
    std::uint32_t sum = 0;
    const auto spec = read_cluster(text, "c.toml");
    REQUIRE(spec.has_value());
    for (const auto& h : spec->hosts) sum += h.count(part);
    return sum;
  };
  const auto there = total(std::string{three_hosts}, "prefill");
  for (const std::uint32_t count : {there, 7u, 1u}) {
    const auto after = scaled_to(three_hosts, "c.toml", "prefill", count, "");
    REQUIRE(after.has_value());
    CHECK(total(*after, "prefill") == count);
  }
  CHECK(*scaled_to(three_hosts, "c.toml", "prefill", there, "") == three_hosts);
  CHECK_FALSE(scaled_to(three_hosts, "c.toml", "conductor", 1, "").has_value());
  CHECK_FALSE(scaled_to(three_hosts, "c.toml", "prefill", 65 * 3, "").has_value());
}

TEST_CASE("keys and certificates go to the host as files, and the configuration names the copies") {
  const auto plan = plan_of(three_hosts +
                            "[gateway]\ntls_certificate_file = \"tls/cert.pem\"\ntls_key_file = "
                            "\"/etc/key.pem\"\n");
  const auto& files = plan.hosts[0].files;
  CHECK(files.at("tls-certificate-file") == "/home/op/tls/cert.pem");
  CHECK(files.at("tls-key-file") == "/etc/key.pem");
  CHECK(plan.hosts[0].gateways == std::vector<std::string>{"https://10.0.0.1:8000"});
  CHECK(has(plan.hosts[0].nodes[0].text, "tls_key_file = \"tls-key-file\""));
}

TEST_CASE("a host is refused for each thing that it lacks, but not for what its own processes hold") {
  const auto plan = plan_of(three_hosts);
  host_facts facts{"1", {}, {}, 64 * GiB, {{"/nvme/beta-prefill-0", 1024 * GiB}, {"/nvme/beta-prefill-1", 1}},
                   true};
  const auto lacks = judge_host(plan.hosts[1], facts, "1");
  REQUIRE(lacks.size() == 1);
  CHECK(lacks[0].starts_with("/nvme/beta-prefill-1 has 1B free, and beta-prefill-1 may need "));
  host_facts front{"1", {}, {"10.0.0.1:7500"}, 64 * GiB, {}, true};
  CHECK(judge_host(plan.hosts[0], front, "1") ==
        std::vector<std::string>{
            "10.0.0.1:7500 is taken by another process; alpha-conductor wants to listen there"});
  front.nodes["alpha-conductor"] = "";
  CHECK(judge_host(plan.hosts[0], front, "1").empty());
  CHECK(judge_host(plan.hosts[0], front, "2").size() == 1);
  CHECK(judge_host(plan.hosts[2], {"1", {}, {}, 1 * MiB, {}, true}, "1")
            .at(0)
            .starts_with("has 1MiB of memory"));
}
