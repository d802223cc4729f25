// A directory in several shards, with holders and clients, over real sockets and real memory, in one process.

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "storage/objects/client/store_client.hpp"
#include "storage/objects/directory/directory_shards.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "tests/storage/objects/secrets.hpp"

using namespace mooncaf;
using mooncaf::test::secret;
using namespace std::chrono_literals;

namespace {

struct sharded_cluster {
  std::unique_ptr<directory_shards> directory;
  std::vector<std::unique_ptr<segment_mount>> holders;
  std::uint16_t port = 0;

  explicit sharded_cluster(std::uint32_t shards, int segments = 2, std::vector<store_tenant> tenants = {},
                           duration lease = 10s) {
    start(shards, std::move(tenants), lease);
    for (int i = 0; i < segments; ++i) {
      segment_mount_options segment;
      segment.directory = address();
      segment.name = "s" + std::to_string(i);
      segment.bytes = 12 * MiB;
      auto l = segment_mount::start(std::move(segment));
      REQUIRE_MESSAGE(l, (l ? "" : l.error().detail));
      holders.push_back(std::move(*l));
    }
  }
  void start(std::uint32_t shards, std::vector<store_tenant> tenants = {}, duration lease = 10s) {
    directory_server_options o;
    o.secret = secret;
    o.port = port;
    o.tenants = std::move(tenants);
    o.recovery = port == 0 ? 0ms : 500ms;
    o.table.lease = port != 0 ? 10ms : lease;
    auto d = directory_shards::start(o, shards);
    REQUIRE_MESSAGE(d, (d ? "" : d.error().detail));
    directory = std::move(*d);
    port = directory->port();
  }
  directory_address address(const std::string& key = secret) const {
    directory_address a;
    a.at = one_seat("127.0.0.1", port);
    a.secret = key;
    a.own_host = "host";
    return a;
  }
  std::unique_ptr<store_client> client(const std::string& key = secret) const {
    auto c = store_client::connect({address(key), 1 * MiB});
    REQUIRE_MESSAGE(c, (c ? "" : c.error().detail));
    return std::move(*c);
  }
};

std::vector<std::string> names(std::size_t n) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back("key-" + std::to_string(100 + i));  // all of one size
  return all;
}
std::vector<std::string_view> views(const std::vector<std::string>& all) { return {all.begin(), all.end()}; }

/// Each holds its own key.
std::vector<store_code> put_all(store_client& c, const std::vector<std::string>& keys) {
  std::vector<outgoing_object> items;
  for (const auto& key : keys) items.push_back({key, {std::as_bytes(std::span{key})}});
  return c.put(items, {});
}

bool holds_its_key(store_client& c, const std::string& key) {
  const std::string_view name = key;
  std::string got;
  const auto codes = c.get({&name, 1}, [&](std::size_t, std::uint64_t size) {
    got.resize(size);
    return std::vector<std::span<std::byte>>{std::as_writable_bytes(std::span{got})};
  });
  return codes.front() == store_code::ok && got == key;
}

bool all_are(const std::vector<store_code>& codes, store_code what) {
  return std::all_of(codes.begin(), codes.end(), [&](auto c) { return c == what; });
}

/// Which segments of the shards the objects lie in.
std::set<std::uint32_t> segments_of(store_client& c, const std::vector<std::string>& keys) {
  std::set<std::uint32_t> all;
  for (const auto& v : c.look(views(keys)))
    for (const auto& p : v.places) all.insert(p.segment);
  return all;
}

}  // namespace

TEST_CASE("a key's shard is the same for ever, and keys are spread evenly") {
  CHECK(shard_of("", 1) == 0);
  CHECK(shard_of("key", 3) == 2);
  CHECK(shard_of("key", 16) == 11);
  std::map<std::uint32_t, int> counts;
  for (int i = 0; i < 8000; ++i) ++counts[shard_of("object " + std::to_string(i), 8)];
  CHECK(counts.size() == 8);
  for (const auto& [shard, n] : counts) CHECK((n > 900 && n < 1100));
}

TEST_CASE("a batch over all shards is answered in its order") {
  sharded_cluster store{3};
  const auto c = store.client();
  const auto keys = names(200);
  CHECK(all_are(put_all(*c, keys), store_code::ok));
  CHECK(all_are(put_all(*c, keys), store_code::already_exists));
  CHECK(segments_of(*c, keys).size() == 6);  // of two holders, in three shards
  auto asked = keys;
  for (std::size_t i = 0; i < asked.size(); i += 2) asked[i] += " is not there";
  const auto there = c->exists(views(asked));
  for (std::size_t i = 0; i < asked.size(); ++i) CHECK(there[i] == static_cast<std::int32_t>(i % 2));
  for (const auto& key : keys) CHECK(holds_its_key(*c, key));
  const auto removed = c->remove(views(asked), true);
  for (std::size_t i = 0; i < asked.size(); ++i)
    CHECK(removed[i] == (i % 2 == 1 ? store_code::ok : store_code::not_found));
  CHECK(c->list("", 1000).objects.size() == 100);
  CHECK(c->list("", 7).objects.size() == 7);
  CHECK(c->list("(", 7).code == store_code::invalid_parameters);
  CHECK(c->remove_all("key-.*0$", true) == 20);
  CHECK(c->remove_all("", true) == 80);
  CHECK(c->counts()->objects == 0);
}

TEST_CASE("what is told of the whole store is that of all shards") {
  sharded_cluster store{3};
  const auto c = store.client();
  const auto keys = names(60);
  CHECK(all_are(put_all(*c, keys), store_code::ok));
  const auto counts = c->counts();
  REQUIRE(counts);
  CHECK(counts->objects == 60);
  CHECK(counts->total_bytes == 24 * MiB);
  const auto mounted = c->mounted();
  REQUIRE(mounted);
  REQUIRE(mounted->size() == 2);
  CHECK(mounted->at(0).view.bytes == 12 * MiB);
  CHECK(mounted->at(0).view.free_bytes + mounted->at(1).view.free_bytes == counts->free_bytes);
  CHECK(c->segments()->size() == 6);
  for (int i = 0; i < 20; ++i) CHECK(holds_its_key(*c, keys[7]));
  const auto hottest = c->hottest();
  REQUIRE(hottest);
  REQUIRE_FALSE(hottest->empty());
  CHECK(hottest->front().object.key == keys[7]);
  CHECK(std::accumulate(mounted->begin(), mounted->end(), 0, [&](int n, const auto& s) {
          return n + static_cast<int>(c->list("", 1000, s.view.name).objects.size());
        }) == 60);
}

TEST_CASE("a group of objects of all shards leaves together when room is wanted") {
  for (const std::uint32_t shards : {1u, 3u}) {
    CAPTURE(shards);
    sharded_cluster store{shards, 1, {}, 1ms};
    const auto c = store.client();
    const std::vector<std::byte> some(1000), large(1 * MiB);
    const auto put = [&](const std::string& key, const std::vector<std::byte>& bytes,
                         const std::string& group, const std::string& parent) {
      const outgoing_object one{key, {std::span{bytes}}, {group, parent, 0}};
      return c->put({&one, 1}, {}).front();
    };
    const auto keys = names(30);
    for (const auto& key : keys) REQUIRE(put(key, some, "group", keys.front()) == store_code::ok);
    // Until one of them makes way: then none is there, whichever is asked for first.
    const auto left = [&] {
      int n = 0;
      for (const auto& key : keys) n += c->look(views({key})).front().code == store_code::ok;
      return n;
    };
    const auto until = clock_type::now() + 60s;
    int i = 0;
    while (left() == 30 && clock_type::now() < until)
      static_cast<void>(put("large " + std::to_string(i++), large, {}, {}));
    CHECK(left() == 0);
    CHECK(c->counts()->objects > 0);
  }
}

TEST_CASE("a parent stays as long as its child, in whatever shard they lie") {
  sharded_cluster store{2, 1, {}, 1ms};
  const auto c = store.client();
  const std::vector<std::byte> some(1000), large(512 * KiB);
  const auto put = [&](const std::string& key, const std::vector<std::byte>& bytes,
                       const std::string& parent) {
    const outgoing_object one{key, {std::span{bytes}}, {{}, parent, 0}};
    return c->put({&one, 1}, {}).front();
  };
  std::string parent = "parent", child = "child";
  while (shard_of(parent, 2) != 0) parent += "'";
  while (shard_of(child, 2) != 1) child += "'";
  REQUIRE(put(parent, some, {}) == store_code::ok);
  REQUIRE(put(child, some, parent) == store_code::ok);
  int i = 0;
  const auto fill = [&](int n) {
    for (const auto end = i + n; i < end; ++i)
      REQUIRE(put("large " + std::to_string(i), large, {}) == store_code::ok);
  };
  const auto is_there = [&](const std::string& key) {
    return c->look(views({key})).front().code == store_code::ok;
  };
  while (is_there(child)) {
    fill(1);
    CHECK((is_there(parent) || !is_there(child)));
  }
  for (int n = 0; is_there(parent) && n < 100; ++n) fill(1);
  CHECK_FALSE(is_there(parent));
}

TEST_CASE("a segment is drained in all shards, and tasks are known by their ids") {
  sharded_cluster store{3};
  const auto c = store.client();
  const auto keys = names(30);
  CHECK(all_are(put_all(*c, keys), store_code::ok));
  CHECK(c->drain("nobody", true) == store_code::segment_not_found);
  REQUIRE(c->drain("s0", true) == store_code::ok);
  const auto segments = c->segments();
  REQUIRE(segments);
  for (const auto& s : *segments) CHECK(s.view.draining == (s.view.name == "s0"));
  put_policy elsewhere;
  elsewhere.leaving = "s0";
  CHECK(all_are(c->move(views(keys), elsewhere), store_code::ok));
  CHECK(c->list("", 1000, "s0").objects.empty());
  REQUIRE(c->drain("s0", false) == store_code::ok);
  for (const auto& key : keys) {
    const auto [code, id] = c->create_task({{}, task_kind::copy, false, key, {}, {"s0"}});
    REQUIRE(code == store_code::ok);
    CHECK(c->query_task(id).first == store_code::ok);
  }
  CHECK(c->query_task({1, 2}).first == store_code::task_not_found);
}

TEST_CASE("puts of one size take room along in each shard") {
  sharded_cluster store{2, 1};
  const auto c = store.client();
  for (const auto& key : names(40)) CHECK(all_are(put_all(*c, {key}), store_code::ok));
  const auto figures = c->figures();
  REQUIRE(figures);
  const auto& asked_once = figures->times[static_cast<std::size_t>(store_wire::op::put_next)].counts;
  CHECK(std::accumulate(asked_once.begin(), asked_once.end(), std::uint64_t{0}) > 10);
  CHECK(c->counts()->objects == 40);
}

TEST_CASE("the next directory of as many shards knows what there was; one of another number begins empty") {
  sharded_cluster store{3};
  auto c = store.client();
  const auto keys = names(60);
  CHECK(all_are(put_all(*c, keys), store_code::ok));
  store.directory.reset();
  store.start(3);
  const auto again = [&] {  // the first question finds the connections broken
    for (const auto until = clock_type::now() + 60s; clock_type::now() < until; std::this_thread::yield())
      if (const auto counts = c->counts(); counts && counts->total_bytes == 24 * MiB) return true;
    return false;
  };
  REQUIRE(again());
  for (const auto& key : keys) CHECK(holds_its_key(*c, key));
  for (const std::uint32_t other : {1u, 2u}) {
    CAPTURE(other);
    store.directory.reset();
    store.start(other);
    REQUIRE(again());
    CHECK(c->counts()->objects == 0);
    CHECK(all_are(put_all(*c, keys), store_code::ok));
    for (const auto& key : keys) CHECK(holds_its_key(*c, key));
  }
}

TEST_CASE("a quota is one over all shards, whatever keys a tenant has") {
  const std::string key = "key of the tenant a, 32 bytes...";
  sharded_cluster store{3, 2, {{"a", key, {1 * MiB + 1, 100}}}, 1ms};
  const auto c = store.client(key);
  const auto tenants = c->tenants();
  REQUIRE(tenants);
  REQUIRE(tenants->size() == 1);
  CHECK(tenants->front().limit.bytes == 1 * MiB + 1);
  CHECK(tenants->front().limit.objects == 100);
  std::vector<std::string> of_one, of_others;
  for (int i = 0; of_one.size() < 150 || of_others.size() < 150; ++i) {
    auto k = "k" + std::to_string(i);
    (shard_of(all_of("a") + k, 3) == 0 ? of_one : of_others).push_back(std::move(k));
  }
  for (std::size_t i = 0; i < 100; ++i) REQUIRE(all_are(put_all(*c, {of_one[i]}), store_code::ok));
  CHECK(c->counts()->objects == 100);  // all of them in one shard
  CHECK(c->counts()->evictions == 0);
  for (std::size_t i = 0; i < 150; ++i) {
    REQUIRE(all_are(put_all(*c, {of_others[i]}), store_code::ok));  // others make way
    REQUIRE(c->counts()->objects <= 100);
  }
  CHECK(c->counts()->objects > 80);
  CHECK(holds_its_key(*c, of_others[149]));
  CHECK(store.client()->list("", 1000).objects.empty());
}

TEST_CASE("writers in all shards at once never have more than a quota, and are not refused within it") {
  const std::string key = "key of the tenant a, 32 bytes...";
  sharded_cluster store{3, 2, {{"a", key, {1 * MiB, 50}}}, 1ms};
  const auto observer = store.client();
  std::vector<std::thread> writers;
  std::atomic<int> refused{0}, working{3};
  for (int w = 0; w < 3; ++w)
    writers.emplace_back([&, w] {
      const auto c = store.client(key);
      std::vector<std::byte> bytes(30'000);
      for (int i = 0; i < 150; ++i) {
        const auto name = std::to_string(w) + "/" + std::to_string(i);
        const auto group = "group " + std::to_string(i % 4);
        const outgoing_object one{name, {std::span{std::as_const(bytes)}}, {group, "0/0", 0}};
        refused += c->put({&one, 1}, {}).front() != store_code::ok;
      }
      --working;
    });
  while (working > 0) {
    const auto all = observer->tenants();
    REQUIRE(all);
    CHECK(all->front().counts.total_bytes - all->front().counts.free_bytes <= 1 * MiB);
    std::this_thread::yield();
  }
  for (auto& w : writers) w.join();
  CHECK(refused == 0);
  CHECK(observer->counts()->reserved == 0);
}
