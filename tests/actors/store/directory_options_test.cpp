#include "actors/store/directory_options.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

TEST_CASE(
    "what the conductor is given for its directory reaches it, as what `mooncaf store directory` is given") {
  const test::temp_dir folder;
  const auto file = folder / "tenants.toml";
  std::ofstream(file) << "[red]\ntoken = \"0123456789abcdef0123456789abcdef0123456789ab\"\n";
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
  const std::map<std::string, std::string> given{
      {"lease", "3s"},          {"recovery", "2s"},   {"eviction", "cost_aware"}, {"high-watermark", "0.8"},
      {"low-watermark", "0.6"}, {"hot-reads", "7.5"}, {"hot-replicas", "3"},      {"tenants-file", file},
      {"state", "/somewhere"},  {"shards", "3"},      {"protocol", "20"}};
  std::vector<std::string> line{"--role", "conductor"};
  for (const auto& [name, value] : given) line.insert(line.end(), {"--store-" + name, value});
  const auto parsed = parse_options(line, {}, "none");
  REQUIRE_MESSAGE(parsed.has_value(), (parsed ? "" : to_string(parsed.error())));
  auto chosen = default_options();
  std::size_t taken = 0;
  for (const auto& a : store::directory_arguments(chosen)) {
    CAPTURE(a.name);
    REQUIRE(given.count(a.name) == 1);
    CHECK_FALSE(a.set(given.at(a.name)));
    ++taken;
  }
  CHECK(taken == given.size());
  for (const store_options& s : {parsed->values.store, chosen.store}) {
    CHECK(s.state_folder == "/somewhere");
    CHECK(s.shards == 3);
    const auto o = store::directory_settings(s);
    REQUIRE(o);
    CHECK(o->table.lease == 3s);
    CHECK(o->recovery == 2s);
    CHECK(o->newest == 20);
    CHECK(o->table.eviction == eviction_policy::cost_aware);
    CHECK(o->table.high_watermark == 0.8);
    CHECK(o->table.low_watermark == 0.6);
    CHECK(o->table.hot_reads_per_s == 7.5);
    CHECK(o->table.hot_replicas == 3);
    REQUIRE(o->tenants.size() == 1);
    CHECK(o->tenants[0].name == "red");
  }
}

TEST_CASE("a directory that is given nothing is the one that the library makes by itself") {
  const auto o = store::directory_settings(default_options().store);
  REQUIRE(o);
  const directory_server_options usual;
  CHECK(o->table.lease == usual.table.lease);
  CHECK(o->recovery == usual.recovery);
  CHECK(o->newest == usual.newest);
  CHECK(o->table.eviction == usual.table.eviction);
  CHECK(o->table.high_watermark == usual.table.high_watermark);
  CHECK(o->table.low_watermark == usual.table.low_watermark);
  CHECK(o->table.hot_reads_per_s == usual.table.hot_reads_per_s);
  CHECK(o->table.hot_replicas == usual.table.hot_replicas);
  CHECK(o->tenants.empty());
}
