#include "config/options.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>

using namespace mooncaf;
using namespace std::chrono_literals;
using arguments = std::vector<std::string>;

namespace {

options good(const arguments& args, std::string_view file = {}) {
  const auto parsed = parse_options(args, file, "f.toml");
  REQUIRE_MESSAGE(parsed.has_value(), (parsed ? "" : to_string(parsed.error())));
  return parsed->values;
}

}  // namespace

TEST_CASE("the command line sets every kind of option") {
  const options o = good({"--role",
                          "prefill,cache",
                          "--join=10.0.0.1:7400",
                          "--block-tokens",
                          "128",
                          "--cache-dram",
                          "512MiB",
                          "--ttft-slo=250ms",
                          "--kvcache-balancing-threshold",
                          "1.5",
                          "--no-shm",
                          "--tcp=off",
                          "--cache-eviction",
                          "length_aware",
                          "--mode",
                          "coupled",
                          "--http",
                          "[::1]:0",
                          "--name",
                          "a b"});
  CHECK(o.cluster.prefill);
  CHECK(o.cluster.cache);
  CHECK(!o.cluster.conductor);
  CHECK(!o.cluster.gateway);
  CHECK(o.cluster.join == std::vector{host_port{"10.0.0.1", 7400}});
  CHECK(o.model.block_tokens == 128);
  CHECK(o.cache.dram_bytes == 512ull << 20);
  CHECK(o.scheduler.ttft_slo == 250ms);
  CHECK(o.scheduler.balancing_threshold == 1.5);
  CHECK(!o.transport.shm);
  CHECK(!o.transport.tcp);
  CHECK(o.cache.eviction == eviction_policy::length_aware);
  CHECK(o.cluster.mode == serving_mode::coupled);
  CHECK(o.gateway.http == host_port{"::1", 0});
  CHECK(o.cluster.name == "a b");
}

TEST_CASE("the file sets the same options, and the command line wins over it") {
  const std::string_view file =
      "[model]\nblock_tokens = 32\nkv_dtype = \"f32\"\n[prefill]\nmax_queue = 5\n[decode]\nmax_queue = "
      "6\n[gateway]\npage = false\n";
  const options o = good({"--block-tokens=256"}, file);
  CHECK(o.model.block_tokens == 256);
  CHECK(o.model.kv_dtype == kv_dtype::f32);
  CHECK(o.prefill.max_queue == 5);
  CHECK(o.decode.max_queue == 6);
  CHECK(!o.gateway.page);
  CHECK(good({"--threads", "1", "--threads", "2"}).model.threads == 2);
}

TEST_CASE("what the command line must not say is refused with the option, the value and what is allowed") {
  struct row {
    arguments args;
    std::string_view message;
  };
  for (const auto& [args, message] : std::initializer_list<row>{
           {{"--block-tokens", "8"}, "--block-tokens: 8 is out of range; allowed: 16 to 512 tokens"},
           {{"--block-tokens", "513"}, "--block-tokens: 513 is out of range; allowed: 16 to 512 tokens"},
           {{"--block-tokens", "99999999999999999999999"},
            "--block-tokens: 99999999999999999999999 is out of range; allowed: 16 to 512 tokens"},
           {{"--block-tokens", "-64"},
            "--block-tokens: \"-64\" is not a whole number; allowed: 16 to 512 tokens"},
           {{"--block-tokens", "64.5"},
            "--block-tokens: \"64.5\" is not a whole number; allowed: 16 to 512 tokens"},
           {{"--block-tokens"}, "--block-tokens needs a value: --block-tokens N; allowed: 16 to 512 tokens"},
           {{"--block-tokens", "--page"},
            "--block-tokens needs a value: --block-tokens N; allowed: 16 to 512 tokens"},
           {{"--block-token", "64"}, "unknown option --block-token; did you mean --block-tokens?"},
           {{"--help=page"}, "--help takes no value but man and words"},
           {{"--zzzzzzzzzz"}, "unknown option --zzzzzzzzzz; --help lists them"},
           {{"--no-block-tokens"}, "unknown option --no-block-tokens; did you mean --block-tokens?"},
           {{"serve", "twice"}, "unexpected argument \"twice\"; options start with --, see --help"},
           {{"-x"}, "unexpected argument \"-x\"; options start with --, see --help"},
           {{"--cache-eviction", "lr"},
            "--cache-eviction: \"lr\" is not among the choices (did you mean lru?); allowed: one of lru, "
            "lfu, "
            "length_aware"},
           {{"--cache-dram", "512"},
            "--cache-dram: \"512\" is not a size with its unit, such as 512MiB or 2GiB; allowed: 1MiB to "
            "16384GiB"},
           {{"--cache-dram", "1KiB"}, "--cache-dram: 1KiB is out of range; allowed: 1MiB to 16384GiB"},
           {{"--ttft-slo", "30"},
            "--ttft-slo: \"30\" is not a time with its unit, such as 250ms or 30s; allowed: 1ms to 86400s"},
           {{"--ttft-slo", "0s"}, "--ttft-slo: 0s is out of range; allowed: 1ms to 86400s"},
           {{"--kvcache-balancing-threshold", "1"},
            "--kvcache-balancing-threshold: 1 is out of range; allowed: above 1.0, at most 1e+06"},
           {{"--kvcache-balancing-threshold", "nan"},
            "--kvcache-balancing-threshold: \"nan\" is not a number; allowed: above 1.0, at most 1e+06"},
           {{"--page=maybe"}, "--page: \"maybe\" is neither true nor false; allowed: true or false"},
           {{"--role", "prefil"},
            "--role: \"prefil\" is not a role (did you mean prefill?); allowed: all, or a list with commas "
            "of conductor, "
            "prefill, decode, cache, gateway, engine; or rank"},
           {{"--role="},
            "--role: \"\" is not a role; allowed: all, or a list with commas of conductor, prefill, decode, "
            "cache, gateway, engine; or rank"},
           {{"--http", "8000"},
            "--http: \"8000\" is not an endpoint, such as 127.0.0.1:8000 or [::1]:8000; allowed: HOST:PORT, "
            "port 0 to 65535 "
            "(0: the system picks one)"},
           {{"--join", "host:0"},
            "--join: \"host:0\" is not an endpoint, such as 10.0.0.1:7400; allowed: HOST:PORT, or several "
            "with "
            "commas, port 1 to 65535; or empty"},
           {{"--join", "a:1,b:2,a:1"},
            "--join: \"a:1\" is there twice; allowed: HOST:PORT, or several with commas, port 1 to 65535; or "
            "empty"},
           {{"--name", "a\nb"}, "--name: control characters are not allowed"},
           {{"--name", "a\xFF"}, "--name: the text is not UTF-8"},
           {{"--chunk-tokens=512", "--max-batch-tokens=256"},
            "max-batch-tokens: 256 is below chunk-tokens, 512"},
           {{"--api-key=a", "--api-key-file=b"}, "api-key and api-key-file are both given; choose one"},
           {{"--config"}, "--config needs a value: --config FILE"}}) {
    const auto parsed = parse_options(args);
    INFO(args.front());
    REQUIRE(!parsed);
    CHECK(parsed.error() == ec::invalid_argument);
    CHECK(parsed.error().detail == message);
  }
}

TEST_CASE("what the file must not say is refused with its line, the key and what is allowed") {
  struct row {
    std::string_view file, message;
  };
  for (const auto& [file, message] : std::initializer_list<row>{
           {"[model]\n\nblock_tokens = 8\n",
            "f.toml:3: model.block_tokens: 8 is out of range; allowed: 16 to 512 tokens"},
           {"[model]\nblock_tokens = \"64\"",
            "f.toml:2: model.block_tokens must be a number, not a string in quotes; allowed: 16 to 512 "
            "tokens"},
           {"[gateway]\npage = 1",
            "f.toml:2: gateway.page must be true or false, not a number; allowed: true or false"},
           {"[cache]\ndram = 5",
            "f.toml:2: cache.dram must be a string in quotes, not a number; allowed: 1MiB to 16384GiB"},
           {"[model]\nblock-tokens = 64",
            "f.toml:2: unknown key model.block-tokens; did you mean model.block_tokens?"},
           {"[model]\nchunk_tokens = 64",
            "f.toml:2: unknown key model.chunk_tokens; did you mean prefill.chunk_tokens?"},
           {"[sheduler]\npolicy = \"random\"",
            "f.toml:2: unknown key sheduler.policy; did you mean scheduler.policy?"},
           {"threads = 2", "f.toml:1: unknown key threads; did you mean model.threads?"},
           {"[x]\nqqqqqqqqqqqqqqq = 1", "f.toml:2: unknown key x.qqqqqqqqqqqqqqq; --help lists the options"},
           {"[model\n", "f.toml:1: a section is written [name] on a line of its own"}}) {
    const auto parsed = parse_options({}, file, "f.toml");
    INFO(file);
    REQUIRE(!parsed);
    CHECK(parsed.error() == ec::invalid_argument);
    CHECK(parsed.error().detail == message);
  }
}

TEST_CASE("the printed configuration reads back to the same values") {
  const arguments args = {"--print-config",    "--role=decode,gateway", "--join=h:1",
                          "--api-key=a\"b\\c", "--lease-ttl=1500ms",    "--seed=18446744073709551615",
                          "--no-checksums",    "--ssd-path=/tmp/ü x",   "--cache-dram=3MiB"};
  const auto first = parse_options(args);
  REQUIRE(first.has_value());
  REQUIRE(first->action == option_action::print_text);
  const auto second = parse_options({}, first->text, "printed");
  REQUIRE_MESSAGE(second.has_value(), (second ? "" : to_string(second.error())));
  CHECK(to_toml(second->values) == first->text);
  CHECK(second->values.gateway.api_key == "a\"b\\c");
  CHECK(second->values.scheduler.seed == ~std::uint64_t{0});
}

TEST_CASE("help and version are answered whatever else is asked") {
  CHECK(parse_options(arguments{"--help"})->text == help_text());
  CHECK(parse_options(arguments{"simulate", "-h"})->action == option_action::print_text);
  CHECK(parse_options(arguments{"--version", "--block-tokens=1"})->action == option_action::show_version);
}

TEST_CASE("a leading word is the caller's subcommand") {
  CHECK(parse_options(arguments{"bench", "--threads", "3"})->values.model.threads == 3);
  const char* const argv[] = {"mooncaf", "serve", "--threads=4"};
  CHECK(parse_options(3, argv)->values.model.threads == 4);
  CHECK(parse_options(0, nullptr)->action == option_action::run);
}

TEST_CASE("a configuration file that cannot be read is named") {
  const auto missing = parse_options(arguments{"--config", "/nonexistent/mooncaf.toml"});
  REQUIRE(!missing);
  CHECK(missing.error() == ec::io_error);
  CHECK(missing.error().detail == "--config /nonexistent/mooncaf.toml: No such file or directory");
  CHECK(parse_options(arguments{"--config", "/"}).error() == ec::io_error);
  CHECK(parse_options(arguments{"--config", MOONCAF_CONFIG_DIR "/mooncaf.example.toml"}).has_value());
}

TEST_CASE("only the conductor keeps the well-known ports unless others are given") {
  CHECK(good({}).cluster.listen.port == 7400);
  CHECK(good({}).metrics.listen.port == 9400);
  CHECK(good({"--role=prefill"}).cluster.listen.port == 0);
  CHECK(good({"--role=prefill"}).metrics.listen.port == 0);
  CHECK(good({"--role=prefill", "--metrics-listen=127.0.0.1:9"}).metrics.listen.port == 9);
}

TEST_CASE("a larger chunk takes the batch limit with it") {
  CHECK(good({"--chunk-tokens=4096"}).prefill.max_batch_tokens == 4096);
}

TEST_CASE("a modelled device brings its own model, and only its time can be scaled") {
  CHECK(good({"--device", "model:h200-llama8b", "--time-scale=20"}).model.time_scale == 20);
  CHECK(check_serving(good({"--device=model:p.toml", "--time-scale=20"})));
  CHECK(check_serving(good({"--model=m", "--time-scale=20"})).error().detail.starts_with("time-scale: "));
  for (const auto& [given, said] :
       {std::pair{"gpu", "\"gpu\" is no device"}, {"model:", "\"model:\" is no device"}}) {
    const auto refused = parse_options(arguments{std::string{"--device="} + given}, {}, "f.toml");
    REQUIRE(!refused);
    CHECK(refused.error().detail.find(said) != std::string::npos);
    CHECK(refused.error().detail.find("auto, host, linked, cuda, cuda:N or model:PROFILE") !=
          std::string::npos);
  }
}

TEST_CASE("GPUs are named by their number") {
  for (const char* device : {"cuda", "cuda:0", "cuda:7"}) {
    CAPTURE(device);
    CHECK(good({"--device", device}).model.device == device);
    CHECK(check_serving(good({"--model=m", "--device", device, "--device-kv=64MiB"})));
    CHECK_FALSE(check_serving(good({"--model=m", "--device", device, "--link-latency=1ms"})));
  }
  for (const char* device : {"cuda:", "cuda:-1", "cuda:1x", "cuda:70000", "cuda0"}) {
    CAPTURE(device);
    CHECK_FALSE(parse_options(arguments{"--device", device}, {}, "f.toml"));
  }
}

TEST_CASE("engines of another make compute all, or nothing") {
  const auto refusal = [](const arguments& args) {
    const auto ok = check_serving(good(args));
    return ok ? std::string{} : ok.error().detail.substr(0, ok.error().detail.find(':'));
  };
  const auto worker = [&](arguments more) {
    arguments all{"--model=m", "--role=engine", "--join=127.0.0.1:1"};
    all.insert(all.end(), more.begin(), more.end());
    return refusal(all);
  };
  CHECK(good({"--role=all"}).cluster.engine == false);
  CHECK(refusal({"--model=m", "--role=conductor,gateway", "--mode=engines"}) == "");
  CHECK(refusal({"--model=m", "--mode=engines"}) == "mode");
  CHECK(refusal({"--model=m", "--role=conductor,cache", "--mode=engines"}) == "mode");
  CHECK(refusal({"--model=m", "--engine-at=127.0.0.1:1"}) == "engine-at");
  CHECK(refusal({"--role=conductor", "--scale-nodes=1-4", "--mode=engines"}) == "");
  CHECK(worker({"--engine-at=127.0.0.1:1"}) == "role");
  CHECK(worker({"--mode=engines"}) == "engine-at");
  CHECK(worker({"--mode=engines", "--engine-at=127.0.0.1:1"}) == "");
  CHECK(worker({"--mode=engines", "--engine-at=127.0.0.1:1", "--engine-events=127.0.0.1:2"}) ==
        "engine-events");
  CHECK(worker({"--mode=engines", "--engine-at=127.0.0.1:1", "--engine-replay=tcp://127.0.0.1:2"}) ==
        "engine-replay");
  CHECK(worker({"--mode=engines", "--engine-at=127.0.0.1:1", "--engine-events=ipc://f",
                "--engine-replay=tcp://127.0.0.1:2"}) == "");
  CHECK(refusal({"--role=engine", "--mode=engines", "--engine-at=127.0.0.1:1", "--join=127.0.0.1:1"}) ==
        "model");
}

TEST_CASE("only a linked device has a link, and the host has no KV memory of its own") {
  for (const char* given :
       {"--device-kv=64MiB", "--link-bandwidth=1GiB", "--link-latency=1ms", "--copy-engines=1"}) {
    CAPTURE(given);
    CHECK(check_serving(good({"--model=m", "--device=linked", given})));
    const auto refused = check_serving(good({"--model=m", given}));
    REQUIRE(!refused);
    CHECK(refused.error().detail.find("--device linked") != std::string::npos);
  }
}

TEST_CASE("serving needs a model, a conductor, and a secret once others can connect") {
  const auto refusal = [](const arguments& args) {
    const auto ok = check_serving(good(args));
    return ok ? std::string{} : ok.error().detail.substr(0, ok.error().detail.find(':'));
  };
  CHECK(refusal({"--model=m"}) == "");
  CHECK(refusal({}) == "model");
  CHECK(refusal({"--role=conductor"}) == "");
  CHECK(refusal({"--role=conductor", "--elastic-roles"}) == "");
  CHECK(refusal({"--role=conductor", "--elastic-roles", "--mode=coupled"}) == "elastic-roles");
  CHECK(refusal({"--role=conductor", "--scale-prefill=1-4", "--scale-command=x"}) == "");
  CHECK(refusal({"--role=conductor", "--scale-nodes=1-4"}) == "scale-nodes");
  CHECK(refusal({"--role=conductor", "--scale-nodes=1-4", "--elastic-roles"}) == "");
  CHECK(refusal({"--role=conductor", "--scale-nodes=1-4", "--mode=coupled"}) == "");
  CHECK(refusal({"--role=conductor", "--scale-decode=1-4", "--elastic-roles"}) ==
        "scale-prefill and scale-decode");
  CHECK(refusal({"--role=conductor", "--scale-command=x"}) == "scale-command");
  CHECK(refusal({"--role=conductor", "--scale-prefill=1-4", "--scale-command= "}) == "scale-command");
  CHECK(refusal({"--model=m", "--role=prefill"}) == "join");
  CHECK(refusal({"--model=m", "--role=prefill", "--join=127.0.0.1:1"}) == "");
  CHECK(refusal({"--model=m", "--role=prefill", "--join=127.0.0.1:1,127.0.0.1:2"}) == "");
  CHECK(refusal({"--model=m", "--role=prefill", "--join=127.0.0.1:1,10.0.0.1:1"}) == "cluster-secret-file");
  CHECK(refusal({"--model=m", "--join=127.0.0.1:1,127.0.0.1:2"}) == "join");
  CHECK(refusal({"--model=m", "--join=127.0.0.1:1,127.0.0.1:2", "--listen=127.0.0.1:2"}) == "");
  CHECK(refusal({"--model=m", "--role=prefill", "--join=10.0.0.1:1"}) == "cluster-secret-file");
  CHECK(refusal({"--model=m", "--listen=0.0.0.0:7400"}) == "cluster-secret-file");
  CHECK(refusal({"--model=m", "--listen=0.0.0.0:7400", "--cluster-secret-file=s"}) == "");
  CHECK(refusal({"--model=m", "--role=cache", "--join=127.0.0.1:1", "--no-tcp", "--no-shm", "--no-rdma"})
            .starts_with("tcp, shm and rdma"));
}
