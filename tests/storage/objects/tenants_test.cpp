// Tenants: names, quotas, and what one can reach of another's.

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "runtime/base/hash.hpp"
#include "storage/objects/client/endpoint_client.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/directory/directory_server.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "tests/storage/objects/store_cluster.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using mooncaf::test::key_a;
using mooncaf::test::key_b;
using mooncaf::test::noise;
using mooncaf::test::put;
using mooncaf::test::secret;
using namespace std::chrono_literals;
using mooncaf::test::soon;

namespace {

directory_address address(std::uint16_t port, const key_ring& key) {
  directory_address a;
  a.at = one_seat("127.0.0.1", port);
  a.secret = key;
  a.own_host = "host";
  return a;
}

/// A directory with two tenants, and segments that outlive it.
struct store_of_two {
  explicit store_of_two(std::uint64_t quota = 8 * MiB, int segments = 2, key_ring known = secret)
      : keys(std::move(known)) {
    start(quota, 0);
    for (int i = 0; i < segments; ++i) {
      segment_mount_options segment;
      segment.directory = address(port, keys);
      segment.name = "s" + std::to_string(i);
      segment.bytes = 32 * MiB;
      auto l = segment_mount::start(std::move(segment));
      REQUIRE(l);
      holders.push_back(std::move(*l));
    }
  }
  void start(std::uint64_t quota, std::uint16_t at) {
    directory_server_options o;
    o.secret = keys;
    o.port = at;
    o.tenants = {{"a", key_a, {quota, 1000}}, {"b", key_b, {quota, 1000}}};
    o.recovery = at == 0 ? 0ms : 500ms;
    if (at != 0) o.table.lease = 10ms;  // what an earlier directory granted is over soon
    auto d = directory_server::start(std::move(o));
    REQUIRE_MESSAGE(d, (d ? "" : d.error().detail));
    directory = std::move(*d);
    port = directory->port();
  }
  std::unique_ptr<store_client> client(const key_ring& key) const {
    auto c = store_client::connect({address(port, key), 1 * MiB});
    REQUIRE_MESSAGE(c, (c ? "" : c.error().detail));
    return std::move(*c);
  }
  const key_ring keys;
  std::uint16_t port = 0;
  std::unique_ptr<directory_server> directory;
  std::vector<std::unique_ptr<segment_mount>> holders;
};

std::vector<std::byte> get(store_client& c, std::string_view key) {
  const auto found = c.find({&key, 1}).at(0);
  std::vector<std::byte> bytes(found.size);
  const std::span<std::byte> whole{bytes};
  if (c.read(found, {&whole, 1}) != store_code::ok) bytes.clear();
  return bytes;
}

store_code remove(store_client& c, std::string_view key) { return c.remove({&key, 1}, true).at(0); }

std::uint64_t used(const tenant_view& t) { return t.counts.total_bytes - t.counts.free_bytes; }

}  // namespace

TEST_CASE("a name says whose it is, whatever bytes the key has, and two tenants' names are never one") {
  std::mt19937_64 random{1};
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (int i = 0; i < 20'000; ++i) {
    const std::string tenant = std::array{"", "a", "b", "ab"}[random() % 4];
    std::string key;
    for (auto n = random() % 6; n > 0; --n) key += "\0ab"[random() % 3];
    if (key.empty()) continue;
    const key_scope scope{tenant, false};
    std::string memory;
    const std::string inside{scope.inside(key, memory)};
    const auto [at, fresh] = all.try_emplace(inside, tenant, key);
    REQUIRE(at->second == std::pair{tenant, key});
    CHECK(scope.outside(inside) == key);
    for (const std::string other : {"", "a", "b", "ab"})
      if (other != tenant) CHECK_FALSE(key_scope{other, false}.outside(inside));
  }
}

TEST_CASE("quotas hold whatever tenants do, their own objects make way, and the books agree") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    object_table_options options;
    options.lease = std::chrono::seconds(10);
    options.lease = 2s;
    options.tenants = {{"a", {40'000, 30}}, {"b", {90'000, 1000}}};
    object_table table{options};
    for (int i = 0; i < 3; ++i) table.mount("s" + std::to_string(i), "h" + std::to_string(i), 64 * 1024);
    time_point now{1h};
    std::vector<std::pair<object_table::session_id, std::uint64_t>> open;
    for (int step = 0; step < 2000; ++step) {
      const std::string tenant = std::array{"", "a", "b", "c"}[random() % 4];
      const key_scope scope{tenant, false};
      std::string memory;
      const auto name = "k" + std::to_string(random() % 40);
      const auto key = scope.inside(name, memory);
      const auto before = table.counts_of(table.owner("b")).evictions;
      switch (random() % 8) {
        case 0:
          table.remove(key, random() % 2 == 0, now);
          break;
        case 1:
          table.find(key, now);
          break;
        case 2:
          now += std::chrono::milliseconds(random() % 1500);
          table.tick(now);
          break;
        case 3:
          if (random() % 50 == 0) table.end_session(1 + random() % 3, now);
          break;
        case 4:
          if (!open.empty()) {
            const auto [writer, ticket] = open[random() % open.size()];
            table.revoke(writer, ticket, now);
          }
          break;
        default: {
          put_policy policy;
          policy.replicas = static_cast<std::uint32_t>(1 + random() % 3);
          policy.replace = random() % 3 == 0;
          policy.hard_pin = random() % 20 == 0;
          const auto writer = 1 + random() % 3;
          const auto made = table.reserve(writer, key, 1 + random() % 9000, policy, "h0", now);
          if (made.code == store_code::ok && random() % 8 != 0) table.publish(writer, made.ticket, 1, now);
          else if (made.code == store_code::ok) open.emplace_back(writer, made.ticket);
          // b's objects make way where the memory is full, not for a's quota.
          if (tenant == "a" && made.code == store_code::quota_exceeded)
            CHECK(table.counts_of(table.owner("b")).evictions == before);
        }
      }
      CHECK(used(table.tenant(table.owner("a"))) <= 40'000);
      CHECK(used(table.tenant(table.owner("b"))) <= 90'000);
      const auto a = table.counts_of(table.owner("a"));
      CHECK(a.objects + a.reserved <= 30);
      if (step % 50 == 0) REQUIRE(table.consistent());
    }
  }
}

TEST_CASE("tenants see, list, count and remove their own objects, and nobody's keys meet") {
  const store_of_two world;
  const auto a = world.client(key_a), b = world.client(key_b), nobody = world.client(secret);
  CHECK(a->tenant().value() == "a");
  const auto of_a = noise(300'000, 1), of_b = noise(200'000, 2), of_nobody = noise(100'000, 3);
  CHECK(put(*a, "same", of_a) == store_code::ok);
  CHECK(put(*b, "same", of_b) == store_code::ok);
  CHECK(put(*nobody, "same", of_nobody) == store_code::ok);
  CHECK(put(*b, "b's alone", of_b) == store_code::ok);
  CHECK(get(*a, "same") == of_a);
  CHECK(get(*b, "same") == of_b);
  CHECK(get(*nobody, "same") == of_nobody);
  CHECK(get(*a, "b's alone").empty());
  const std::string_view inside{"\0b\0same", 7};
  CHECK(get(*nobody, inside).empty());
  CHECK(a->list({}, 100).objects.size() == 1);
  CHECK(b->list("same|alone", 100).objects.size() == 2);
  CHECK(b->list({}, 100, "s0").objects.size() + b->list({}, 100, "s1").objects.size() == 2);
  CHECK(a->counts().value().objects == 1);
  CHECK(a->counts().value().total_bytes == 8 * MiB);
  CHECK(nobody->counts().value().objects == 4);
  std::uint64_t taken = 0;
  const auto segments = a->segments();
  REQUIRE(segments);
  for (const auto& s : *segments) {
    taken += s.view.bytes - s.view.free_bytes;
    CHECK(s.address.unix_name.empty());
    CHECK(s.address.announcement.empty());
  }
  CHECK(taken == offset_allocator::rounded(of_a.size()));
  const auto told = nobody->tenants();
  REQUIRE(told);
  CHECK(told->size() == 2);
  CHECK(a->tenants().value().size() == 1);
  CHECK(remove(*a, "b's alone") == store_code::not_found);
  CHECK(a->remove_all({}, true) == 1);
  CHECK(get(*b, "same") == of_b);
  CHECK(nobody->remove_all("same", true) == 1);
  CHECK(b->remove_all("same", true) == 1);
  CHECK(get(*b, "b's alone") == of_b);
  CHECK(a->drain("s0", true) == store_code::not_supported);
  REQUIRE(put(*a, "stays", of_a) == store_code::ok);
  put_policy many;
  many.replicas = 2;
  const std::string_view stays = "stays";
  CHECK(a->move({&stays, 1}, many).at(0) == store_code::not_supported);
  CHECK(a->create_task({{}, task_kind::copy, false, "stays", {}, {"s0", "s1"}}).first ==
        store_code::not_supported);
  segment_mount_options segment;
  segment.directory = address(world.port, key_a);
  segment.name = "of a";
  segment.bytes = 1 * MiB;
  const auto refused = segment_mount::start(std::move(segment));
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::unauthenticated);
  const auto stranger =
      store_client::connect({address(world.port, "another key, of nobody that is here"), 1 * MiB});
  REQUIRE_FALSE(stranger);
  CHECK(stranger.error() == ec::unauthenticated);
}

TEST_CASE(
    "another secret of the cluster shuts out no client, tenants' among them, and the old one opens nothing") {
  const test::temp_dir folder;
  const auto rotate = [&](const std::string& text) {
    std::ofstream(folder / "draft") << text;
    std::filesystem::permissions(folder / "draft", std::filesystem::perms{0600});
    std::filesystem::rename(folder / "draft", folder / "secret");
  };
  const auto ring = [&] {
    return key_ring{secret_file::open(folder / "secret").value(), std::string{store_key_purpose}};
  };
  const std::string old = "the old secret of all\n", fresh = "the new secret of all\n";
  rotate(old);
  const key_ring stale{ring().own()};
  const store_of_two world{8 * MiB, 2, ring()};
  const auto a = world.client(key_a), whole = world.client(ring());
  const auto bytes = noise(100'000, 7);
  for (const auto& text : {old, old + fresh, fresh + old, fresh}) {
    CAPTURE(text);
    rotate(text);
    const auto late = world.client(key_a), late_whole = world.client(ring());
    // The directory sees the change at its next tick, and a tenant's client that was told to connect again does.
    for (auto* const c : {a.get(), whole.get(), late.get(), late_whole.get()}) {
      CHECK(soon([&] {
        const auto code = put(*c, "object", bytes);  // the one before may have been taken, and its get not
        return (code == store_code::ok || code == store_code::already_exists) && get(*c, "object") == bytes;
      }));
      CHECK(remove(*c, "object") == store_code::ok);
    }
  }
  // At a segment that the tenant's old client has not been to it needs the key of now.
  segment_mount_options segment;
  segment.directory = address(world.port, ring());
  segment.name = "late";
  segment.bytes = 32 * MiB;
  const auto mounted = segment_mount::start(std::move(segment));
  REQUIRE(mounted);
  put_policy there;
  there.preferred = {"late"};
  CHECK(soon([&] { return put(*a, "there", bytes, there) == store_code::ok && get(*a, "there") == bytes; }));
  CHECK(a->list({}, 10, "late").objects.size() == 1);

  const auto refused = store_client::connect({address(world.port, stale), 1 * MiB});
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::unauthenticated);
}

TEST_CASE("parts of a tenant's objects are written and read in any order, and replicas count") {
  const store_of_two world;
  const auto a = world.client(key_a);
  const auto bytes = noise(500'000, 7);
  const std::span<const std::byte> all{bytes};
  put_policy twice;
  twice.replicas = 2;
  const object_outline outline{"layers", bytes.size(), {}};
  const auto begun = a->begin({&outline, 1}, twice).at(0);
  REQUIRE(begun.code == store_code::ok);
  for (const std::size_t at : {300'000ul, 0ul, 100'000ul, 200'000ul, 400'000ul}) {
    const auto piece = all.subspan(at, 100'000);
    CHECK(a->write_part(*begun.object, at, {&piece, 1}) == store_code::ok);
  }
  CHECK(a->finish({&begun.object, 1}).at(0) == store_code::ok);
  CHECK(get(*a, "layers") == bytes);
  CHECK(used(a->tenants().value().at(0)) == 2 * offset_allocator::rounded(bytes.size()));
  const std::string_view key = "layers";
  auto found = a->find({&key, 1});
  std::vector<std::byte> part(70'000);
  const part_to_read wanted{0, 250'000, part};
  CHECK(a->read_parts({&key, 1}, found, {&wanted, 1}).at(0) == store_code::ok);
  CHECK(std::equal(part.begin(), part.end(), bytes.begin() + 250'000));
}

TEST_CASE("any part of a tenant's object of any size is what was put, whatever was read of it before") {
  const store_of_two world;
  const auto a = world.client(key_a);
  std::mt19937_64 random{11};
  for (const std::size_t size : {1ul, 65'535ul, 65'536ul, 65'537ul, 131'072ul, 400'001ul}) {
    CAPTURE(size);
    const auto bytes = noise(size, static_cast<unsigned>(size));
    const auto name = std::to_string(size);
    const std::string_view key = name;
    REQUIRE(put(*a, key, bytes) == store_code::ok);
    if (random() % 2) CHECK(get(*a, key) == bytes);
    auto found = a->find({&key, 1});
    std::vector<std::byte> to(size);
    for (int i = 0; i < 40; ++i) {
      const auto begin = random() % size, n = 1 + random() % (size - begin);
      const part_to_read wanted{0, begin, std::span{to}.first(n)};
      REQUIRE(a->read_parts({&key, 1}, found, {&wanted, 1}).at(0) == store_code::ok);
      CHECK(std::memcmp(to.data(), bytes.data() + begin, n) == 0);
    }
    CHECK(get(*a, key) == bytes);
  }
}

TEST_CASE("a tenant is not handed bytes that were altered behind the endpoint, whole or in parts") {
  const store_of_two world{8 * MiB, 1};
  const auto a = world.client(key_a), owner = world.client(secret);
  const auto bytes = noise(500'000, 9);
  REQUIRE(put(*a, "k", bytes) == store_code::ok);
  const std::string_view key = "k";
  const auto place = a->look({&key, 1}).at(0).places.at(0);
  const auto segments = owner->segments();
  REQUIRE(segments);
  const auto memory = mapped_segment::map(segments->at(0).address.unix_name, secret, clock_type::now() + 5s);
  REQUIRE(memory);
  const auto read_part = [&] {
    auto found = a->find({&key, 1});
    std::vector<std::byte> some(1000);
    const part_to_read part{0, 500, some};
    const auto code = a->read_parts({&key, 1}, found, {&part, 1}).at(0);
    CHECK((code != store_code::ok || std::equal(some.begin(), some.end(), bytes.begin() + 500)));
    return code;
  };
  const auto read_all = [&] {
    std::vector<std::byte> whole(bytes.size());
    const std::span<std::byte> into{whole};
    const auto code = a->read(a->find({&key, 1}).at(0), {&into, 1});
    CHECK((code != store_code::ok || whole == bytes));
    return code;
  };
  const auto object = (*memory)->bytes().subspan(place.offset, place.bytes);
  auto &far = object.back(), &near = object[499];
  far ^= std::byte{1};  // nobody has looked yet: of an object that is not what was published nothing is read
  CHECK(read_all() == store_code::checksum_mismatch);
  CHECK(read_part() == store_code::checksum_mismatch);
  far ^= std::byte{1};
  for (int times = 0; times < 2; ++times) {
    CHECK(read_all() == store_code::ok);
    CHECK(read_part() == store_code::ok);
    far ^= std::byte{1};
    CHECK(read_all() == store_code::checksum_mismatch);
    CHECK(read_part() == store_code::ok);  // it is what it was
    near ^= std::byte{1};
    CHECK(read_part() == store_code::checksum_mismatch);
    far ^= std::byte{1};
    near ^= std::byte{1};
  }
}

TEST_CASE("who guesses places, keys and secrets reads nobody else's bytes") {
  const store_of_two world;
  const auto a = world.client(key_a), b = world.client(key_b), nobody = world.client(secret);
  const auto of_b = noise(100'000, 2);
  REQUIRE(put(*b, "theirs", of_b) == store_code::ok);
  REQUIRE(put(*nobody, "ours", of_b) == store_code::ok);
  const auto segments = nobody->segments();
  REQUIRE(segments);
  std::vector<std::byte> stolen(of_b.size());
  const std::span<std::byte> into{stolen};
  const auto at = [&](std::uint32_t id) {
    for (const auto& s : *segments)
      if (s.view.id == id) return s.address;
    return store_wire::segment_address{};
  };
  const auto link = a->links();
  REQUIRE(link);
  auto& first = *(*link)->all.front();
  const endpoint_pass pass{{first.incarnation(), "a"}, first.welcome().endpoint_key};
  for (const auto& [who, key] : {std::pair{b.get(), "theirs"}, std::pair{nobody.get(), "ours"}}) {
    const std::string_view name = key;
    const auto place = who->look({&name, 1}).at(0).places.at(0);
    const auto where = at(place.segment);
    endpoint_client endpoint{where.endpoint_host, where.endpoint_port};
    // The right pass, a place of somebody else; another tenant's name; another's greeting with one's own key.
    CHECK_FALSE(endpoint.read(pass, place.offset, {&into, 1}));
    CHECK_FALSE(endpoint.read({{pass.who.incarnation, "b"}, pass.key}, place.offset, {&into, 1}));
    CHECK_FALSE(endpoint.read({{pass.who.incarnation + 1, "a"}, pass.key}, place.offset, {&into, 1}));
    const std::span<const std::byte> lies{stolen};
    CHECK_FALSE(endpoint.write(pass, place.offset, {&lies, 1}));
    // What a tenant knows opens neither the memory nor the data plane.
    for (const auto& known : {key_a, pass.key}) {
      CHECK_FALSE(mapped_segment::map(where.unix_name, known, clock_type::now() + 2s));
      const auto mover = remote_mover::start(known, 1 * MiB);
      const auto peer = decode_announcement(where.announcement);
      REQUIRE(mover);
      REQUIRE(peer);
      static_cast<void>((*mover)->add_peer(*peer));
      CHECK_FALSE((*mover)->read({peer->address.node, region_id{where.region}, place.offset}, {&into, 1}));
    }
  }
  CHECK(get(*b, "theirs") == of_b);

  // Memory that was another's: what its writer does not write is zero.
  CHECK(remove(*b, "theirs") == store_code::ok);
  const auto answer = first.ask_and_wait(store_wire::op::reserve, [&](byte_writer& out) {
    store_wire::put_policy_to(out, {});
    out.put(std::uint32_t{100});  // all of the memory that may have been b's, as far as the quota goes
    for (int i = 0; i < 100; ++i) {
      out.put_text("n" + std::to_string(i));
      out.put(std::uint64_t{70'000});
      store_wire::put_ties(out, {});
    }
  });
  REQUIRE(answer);
  byte_reader in{*answer};
  in.get<std::uint32_t>();
  for (int i = 0; i < 100; ++i) {
    REQUIRE(as_store_code(in.get<std::int32_t>()) == store_code::ok);
    in.get<std::uint64_t>();
    const auto place = store_wire::get_places(in).at(0);
    endpoint_client endpoint{at(place.segment).endpoint_host, at(place.segment).endpoint_port};
    const std::span<const std::byte> little{of_b.data(), 1};
    REQUIRE(endpoint.write(pass, place.offset + 5, {&little, 1}));
    const auto own = into.first(70'000);
    REQUIRE(endpoint.read(pass, place.offset, {&own, 1}));
    CHECK(own[5] == of_b[0]);
    own[5] = std::byte{0};
    CHECK(std::all_of(own.begin(), own.end(), [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

TEST_CASE("several clients of several tenants at once: each sees its own, and no quota is passed") {
  constexpr std::uint64_t quota = 2 * MiB;
  store_of_two world{quota};
  std::vector<std::thread> threads;
  std::array<std::vector<std::string>, 4> problems;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto c = world.client(i % 2 == 0 ? key_a : key_b);
      std::mt19937_64 random{i};
      std::map<std::string, std::vector<std::byte>> mine;  // keys that no other thread writes
      put_policy policy;
      for (int step = 0; step < 60; ++step) {
        const auto key = "thread " + std::to_string(i / 2) + " key " + std::to_string(random() % 8);
        auto& value = mine[key];
        switch (random() % 4) {
          case 0:
            remove(*c, key);
            value.clear();
            break;
          case 1:
          case 2: {
            const auto bytes = noise(1 + random() % 300'000, static_cast<unsigned>(random()));
            policy.replicas = static_cast<std::uint32_t>(1 + random() % 2);
            policy.replace = true;
            const auto code = put(*c, key, bytes, policy);
            if (code == store_code::ok) value = bytes;
            else if (code != store_code::quota_exceeded && code != store_code::no_space)
              problems[i].push_back(key + ": " + std::string{to_string(code)});
            break;
          }
          default:
            if (const auto seen = get(*c, key); !seen.empty() && seen != value)
              problems[i].push_back(key + " is not what was put");
        }
        for (const auto& t : c->tenants().value_or(std::vector<tenant_view>{}))
          if (used(t) > quota) problems[i].push_back("over quota");
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& p : problems) CHECK_MESSAGE(p.empty(), (p.empty() ? "" : p.front()));
}

TEST_CASE("a directory that is started again knows what each tenant has, and holds it to the new quota") {
  store_of_two world{8 * MiB};
  const auto a = world.client(key_a), b = world.client(key_b);
  std::map<std::string, std::vector<std::byte>> of_a;
  for (unsigned i = 0; i < 10; ++i) {
    const auto key = "k" + std::to_string(i);
    REQUIRE(put(*a, key, of_a[key] = noise(200'000, i)) == store_code::ok);
    REQUIRE(put(*b, key, noise(100'000, 100 + i)) == store_code::ok);
  }
  const auto before = used(a->tenants().value().at(0));
  const auto again = [&](std::uint64_t quota) {
    world.directory.reset();
    world.start(quota, world.port);
    for (auto* const c : {a.get(), b.get()})
      REQUIRE(soon([&] {
        const auto now = c->counts();
        return now && now->objects > 0;
      }));
  };
  again(8 * MiB);
  // Each of the two holders announces its own half when it has found the new directory.
  CHECK(soon([&] { return used(a->tenants().value().at(0)) == before; }));
  for (const auto& [key, bytes] : of_a) CHECK(get(*a, key) == bytes);
  CHECK(get(*b, "k3") == noise(100'000, 103));
  CHECK(a->list({}, 100).objects.size() == 10);
  CHECK(put(*a, "too large", noise(9 * MiB, 1)) == store_code::quota_exceeded);
  again(1 * MiB);
  CHECK(soon([&] { return used(a->tenants().value().at(0)) <= 1 * MiB; }));
}
