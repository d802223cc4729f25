// Where objects go: near their writer, their replicas far from each other, less where much is read and
// written.

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "runtime/base/host_place.hpp"
#include "storage/objects/table/object_table.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

struct placement_world {
  object_table table{object_table_options{}};
  time_point now{1h};
  std::map<std::uint32_t, std::string> host;

  std::uint32_t mount(const std::string& where, std::uint64_t bytes = 64 * MiB) {
    const auto id = table.mount("on " + where + " " + std::to_string(host.size()), where, bytes);
    host[id] = std::string{host_name(where)};
    return id;
  }
  /// @returns the hosts of its replicas, in their order.
  std::vector<std::string> put(std::string_view key, std::uint32_t replicas, std::string_view writer,
                               std::uint64_t size = 64 * KiB) {
    put_policy policy;
    policy.replicas = replicas;
    const auto r = table.reserve(1, key, size, policy, writer, now);
    REQUIRE(r.code == store_code::ok);
    REQUIRE(table.publish(1, r.ticket, 42, now) == store_code::ok);
    std::vector<std::string> on;
    for (const auto& place : r.places) on.push_back(host[place.segment]);
    return on;
  }
};

}  // namespace

TEST_CASE("how close two hosts are is what their locations have in common, from the widest part on") {
  CHECK(closeness("row1/rack1/a", "row1/rack1/b") == 2);
  CHECK(closeness("row1/rack1/a", "row1/rack12/b") == 1);
  CHECK(closeness("row1/rack1/a", "row2/rack1/b") == 0);
  CHECK(closeness("row1/a", "row1/rack1/b") == 1);
  CHECK(closeness("a", "b") == 0);
  CHECK(closeness("row1/rack1/a", "a") == on_one_host);  // one of them does not say where it stands
  for (const auto* good : {"", "rack7", "dc-1/row.2/rack_7"}) CHECK(is_location(good));
  for (const auto* bad : {"/", "rack7/", "/rack7", "a//b", "a b", "rack:7"}) CHECK_FALSE(is_location(bad));
  CHECK_FALSE(is_location(std::string(65, 'a')));
}

TEST_CASE("replicas lie as far from each other as there is to go") {
  placement_world w;
  for (const auto* where : {"row1/rack1/a", "row1/rack1/b", "row1/rack2/c", "row2/rack3/d"}) w.mount(where);
  for (int i = 0; i < 50; ++i)
    CHECK(w.put("k" + std::to_string(i), 4, "row1/rack1/a") == std::vector<std::string>{"a", "d", "c", "b"});
}

TEST_CASE("where nobody says where he stands replicas lie on other hosts, and then on other segments") {
  placement_world w;
  for (const auto* where : {"a", "a", "b"}) w.mount(where);
  std::set<std::vector<std::string>> seen;
  for (int i = 0; i < 50; ++i) seen.insert(w.put("k" + std::to_string(i), 3, {}));
  CHECK(seen == std::set<std::vector<std::string>>{{"a", "b", "a"}, {"b", "a", "a"}});
}

TEST_CASE("an object lies on its writer's host, or else as near to it as there is room") {
  placement_world w;
  const auto near = w.mount("row1/rack1/a", 1 * MiB);
  for (const auto* where : {"row1/rack1/b", "row1/rack2/c", "row2/rack3/d"}) w.mount(where, 2 * MiB);
  // It need not say where it stands: one who mounts on its host did.
  std::vector<std::string> filled;
  for (int i = 0; i < 7; ++i) filled.push_back(w.put("k" + std::to_string(i), 1, "a", 1000 * KiB)[0]);
  CHECK(filled[0] == "a");
  CHECK(filled[1] == "b");
  CHECK(filled[2] == "b");
  CHECK(filled[3] == "c");
  CHECK(filled[4] == "c");
  CHECK(filled[5] == "d");
  CHECK(filled[6] == "d");
  w.table.unmount(near, w.now);
  for (int i = 0; i < 7; ++i) w.table.remove("k" + std::to_string(i), true, w.now);
  w.now += 1h;
  w.table.tick(w.now);
  CHECK(w.put("neighbour's", 1, "row2/rack3/z")[0] == "d");  // one that mounts nothing, and says where it is
  CHECK(w.table.consistent());
}

TEST_CASE("of two segments the one that is read and written less gets more, as long as that is so") {
  placement_world w;
  const auto busy = w.mount("a", 256 * MiB);
  w.mount("b", 256 * MiB);
  const auto there = w.table.reserve(1, "read much", 1 * MiB, {}, "a", w.now);
  REQUIRE(there.places.at(0).segment == busy);
  REQUIRE(w.table.publish(1, there.ticket, 42, w.now) == store_code::ok);
  REQUIRE(w.put("not read", 1, "b", 1 * MiB)[0] == "b");
  int puts = 0;
  const auto share = [&] {
    int on_a = 0;
    for (int i = 0; i < 200; ++i) on_a += w.put("k" + std::to_string(puts++), 1, {}, 4 * KiB)[0] == "a";
    return on_a;
  };
  const int idle = share();
  CHECK(idle > 60);
  CHECK(idle < 140);
  for (int i = 0; i < 10'000; ++i) {  // 1 GB/s
    w.table.find("read much", w.now);
    w.now += 1ms;
  }
  // Of two draws one is a twice in four times: then there is no choice.
  const int loaded = share();
  CHECK(loaded > 20);
  CHECK(loaded < 80);
  w.now += 5min;
  CHECK(share() > 120);  // it is the emptier one now
}
