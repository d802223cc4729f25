// The store's protocol over two releases: the bytes of an older version stay as they were, and a directory and its clients
// of neighbouring versions work together.

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "runtime/base/hash.hpp"
#include "storage/objects/directory/directory_core.hpp"
#include "storage/objects/disk/rocksdb_object_disk.hpp"
#include "tests/storage/objects/store_cluster.hpp"
#include "tests/support/golden_text.hpp"
#include "tests/support/half_floats.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using store_wire::newest;
using store_wire::oldest;

namespace {

put_policy a_policy() {
  put_policy p;
  p.replicas = 3;
  p.hard_pin = p.keep = p.lossy = true;
  p.soft_pin_for = 5s;
  p.ttl = 7s;
  p.preferred = {"one", "two"};
  p.leaving = "three";
  return p;
}

segment_record a_record() {
  segment_record r;
  r.ticket = 1;
  r.offset = 2;
  r.size = 3;
  r.published = r.hard_pin = true;
  r.version = 4;
  r.object_size = 5;
  r.at = 6;
  r.copy = 7;
  r.checksum = 8;
  r.soft_pin_for = 9ns;
  r.ttl = 10ns;
  r.parent = 11;
  r.depth = 12;
  r.worth = 13;
  r.key = "key";
  r.group = "group";
  return r;
}

store_wire::segment_address an_address() {
  return {"@name", 3, {std::byte{1}, std::byte{2}}, "10.0.0.1", 7461};
}

store_wire::mounted_segment a_segment() {
  segment_view v;
  v.id = 1;
  v.name = "segment";
  v.host = "row/host";
  v.bytes = 2;
  v.free_bytes = 3;
  v.draining = true;
  v.kind = storage_tier::ssd;
  v.withheld_bytes = 4;
  return {v, an_address(), {21, "1.2.3"}};
}

/// All that crosses as a whole, one line each: its name, how many bytes it has, and their hash.
std::string all_bytes(std::uint32_t version) {
  std::string lines;
  const auto line = [&](const std::string& name, const auto& put) {
    std::vector<std::byte> bytes;
    byte_writer out{bytes};
    put(out);
    lines += name + " " + std::to_string(bytes.size()) + " " + to_string(hash_bytes128(bytes)) + "\n";
  };
  using namespace store_wire;
  const object_view view{store_code::ok, 1, 2, {{3, 4, 5}, {6, 7, 8}}, {9, 10}};
  line("policy", [](byte_writer& out) { put_policy_to(out, a_policy()); });
  line("ties", [](byte_writer& out) { put_ties(out, {"group", "parent", 1.5}); });
  line("places", [&](byte_writer& out) { put_places(out, view.places); });
  line("view", [&](byte_writer& out) { put_view(out, view); });
  line("disk offer", [](byte_writer& out) {
    put_disk(out, disk_offer{"d", 1, 2, 3, 4, {write_policy::write_through, 5, 6}});
  });
  line("mounted disk", [](byte_writer& out) { put_disk(out, mounted_disk{store_code::ok, 1, 2, true}); });
  line("withheld", [](byte_writer& out) { put_withheld(out, {{1, 2, 3, 4, 5ns}, {{6, 7}}}); });
  line("address", [](byte_writer& out) { put_address(out, an_address()); });
  line("welcome", [](byte_writer& out) { put_welcome(out, {"tenant", "key", true, {1, 2}}); });
  line("former life", [](byte_writer& out) { put_former(out, {1, 2, {3}, {4, 5}, true, 6}); });
  line("record", [](byte_writer& out) { put_record(out, a_record()); });
  line("segment", [&](byte_writer& out) { put_segment(out, a_segment(), version); });
  line("order", [](byte_writer& out) {
    put_order(out, {{1, 2}, task_kind::move, true, "key", "source", {"a", "b"}});
  });
  line("task", [](byte_writer& out) {
    put_task(out, {task_kind::move, task_status::failed, 1ns, 2ns, {3, 4}, "message"});
  });
  line("tenant", [](byte_writer& out) { put_tenant(out, {"tenant", {1, 2, 3}, {}}); });
  line("hottest", [](byte_writer& out) { put_hottest(out, {"tenant", {"key", 1, 2, 3.5}}); });
  line("counts", [](byte_writer& out) { put_counts(out, {}); });
  line("times", [](byte_writer& out) { put_times(out, {}); });
  return lines;
}

/// The answer to a hello; nothing if the connection would be closed for it.
std::optional<std::vector<std::byte>> say_hello(directory_core& core, std::uint64_t session,
                                                std::uint32_t version, const std::string& release = {},
                                                int more_bytes = 0) {
  std::vector<std::byte> payload, answer;
  byte_writer out{payload};
  out.put(version);
  out.put_text("host");
  out.put(std::uint8_t{0});
  if (version >= store_wire::tells_releases) out.put_text(release);
  for (int i = 0; i < more_bytes; ++i) out.put(std::uint8_t{7});
  const store_wire::header question{static_cast<std::uint32_t>(payload.size()), 1, store_wire::op::hello};
  if (!core.answer(session, question, payload, time_point{1h}, answer)) return {};
  answer.erase(answer.begin(), answer.begin() + store_wire::header_bytes);
  return answer;
}

/// Whether it is answered.
bool may_ask(directory_core& core, std::uint64_t session) {
  std::vector<std::byte> answer;
  return core.answer(session, {0, 2, store_wire::op::counts}, {}, time_point{1h}, answer);
}

/// What a directory says to a hello: the version to speak, and the newest that it knows.
std::pair<std::uint32_t, std::uint32_t> versions_in(std::span<const std::byte> answer) {
  byte_reader in{answer};
  const auto speaks = in.get<std::uint32_t>();
  in.get<std::uint64_t>();
  store_wire::get_welcome(in);
  const auto knows = in.left() == 0 ? 0 : in.get<std::uint32_t>();
  CHECK(in.ok());
  CHECK(in.left() == 0);
  return {speaks, knows};
}

/// A store whose directory may be replaced by one of another version.
struct mixed_store {
  std::unique_ptr<directory_server> directory;
  std::uint16_t port = 0;
  bool had_one = false;  // a directory
  std::vector<std::unique_ptr<segment_mount>> holders;

  explicit mixed_store(std::uint32_t version) { serve(version); }
  void serve(std::uint32_t version) {
    directory.reset();
    directory_server_options o;
    o.port = port;
    o.secret = secret;
    o.recovery = std::exchange(had_one, true) ? 10s : 0s;  // the first one waits for nobody
    o.newest = version;
    auto made = directory_server::start(std::move(o));
    REQUIRE(made);
    directory = std::move(*made);
    port = directory->port();
  }
  directory_address address(std::uint32_t version) const {
    directory_address a;
    a.at = one_seat("127.0.0.1", port);
    a.secret = secret;
    a.own_host = "host";
    a.newest = version;
    return a;
  }
  void mount(std::uint32_t version, std::shared_ptr<object_disk> disk = nullptr) {
    segment_mount_options segment;
    segment.directory = address(version);
    segment.name = "of " + std::to_string(version);
    segment.bytes = 4 * MiB;
    segment.disk = std::move(disk);
    auto made = segment_mount::start(std::move(segment));
    REQUIRE(made);
    holders.push_back(std::move(*made));
  }
  std::unique_ptr<store_client> client(std::uint32_t version) const {
    auto made = store_client::connect({address(version), 1 * MiB});
    REQUIRE(made);
    return std::move(*made);
  }
};

/// Puts and reads what the others put; two replicas, so that both processes' memory is written.
void use(store_client& writer, store_client& reader, const std::string& key) {
  put_policy twice;
  twice.replicas = 2;
  const std::vector<std::byte> value(10'000, std::byte{42});
  CHECK(put(writer, key, value, twice) == store_code::ok);
  store_code code{};
  CHECK(get(reader, key, code) == value);
  CHECK(code == store_code::ok);
}

constexpr std::size_t versions = newest - oldest + 1;

void check_listed(store_client& c, std::uint32_t asks, std::uint32_t directory) {
  const auto all = c.segments();
  REQUIRE(all);
  REQUIRE(all->size() == versions);
  const bool told = std::min(asks, directory) >= store_wire::tells_releases;
  for (auto version = oldest; version <= newest; ++version) {
    CAPTURE(version);
    const auto s = std::ranges::find(*all, "of " + std::to_string(version),
                                     [](const auto& one) { return one.view.name; });
    REQUIRE(s != all->end());
    const auto speaks = std::min(version, directory);
    CHECK(s->holder.speaks == (told ? speaks : oldest));
    CHECK(s->holder.release.empty() != (told && speaks >= store_wire::tells_releases));
  }
}

}  // namespace

TEST_CASE("what a version says stays as it was; MOONCAF_REWRITE_GOLDEN=1 writes that of a new one") {
  for (auto v = oldest; v <= newest; ++v)
    testing::check_golden("store/wire_" + std::to_string(v) + ".txt", all_bytes(v));
}

TEST_CASE("a segment is read as each version says it") {
  for (auto v = oldest; v <= newest; ++v) {
    std::vector<std::byte> bytes;
    byte_writer out{bytes};
    const auto s = a_segment();
    store_wire::put_segment(out, s, v);
    byte_reader in{bytes};
    const auto back = store_wire::get_segment(in, v);
    CHECK(in.ok());
    CHECK(in.left() == 0);
    CHECK(back.view.name == s.view.name);
    CHECK(back.address == s.address);
    CHECK(back.holder.release == (v >= store_wire::tells_releases ? "1.2.3" : ""));
  }
}

TEST_CASE("a hello asks for a version, and hears which are known") {
  directory_core core{{}};
  const auto session = core.open();
  CHECK(versions_in(*say_hello(core, session, oldest)) == std::pair{oldest, newest});
  CHECK(may_ask(core, session));
  CHECK(versions_in(*say_hello(core, session, newest, "1.2.3")) == std::pair{newest, newest});
  CHECK(may_ask(core, session));
  CHECK_FALSE(say_hello(core, core.open(), newest, std::string(65, 'x')));
  CHECK_FALSE(say_hello(core, core.open(), newest, "1.2.3", 1));
  CHECK_FALSE(say_hello(core, core.open(), oldest, {}, 1));
  // One that is not known here, whatever it adds to its hello: it is told so, and may come down to what is known.
  for (const auto other : {oldest - 1, newest + 1}) {
    const auto stranger = core.open();
    CHECK(versions_in(*say_hello(core, stranger, other, {}, 3)) == std::pair{newest, newest});
    CHECK_FALSE(may_ask(core, stranger));
    CHECK(say_hello(core, stranger, newest, "1.2.3"));
    CHECK(may_ask(core, stranger));
  }
}

TEST_CASE("a directory of the release before answers as it did") {
  directory_core core{{}};
  core.know(oldest);
  const auto session = core.open();
  CHECK(versions_in(*say_hello(core, session, oldest)) == std::pair{oldest, 0u});
  CHECK(versions_in(*say_hello(core, core.open(), newest, "1.2.3")) == std::pair{oldest, 0u});
}

TEST_CASE(
    "directory, holders and clients of neighbouring versions work together, through an upgrade and its way "
    "back") {
  mixed_store world{oldest};
  for (auto v = oldest; v <= newest; ++v) world.mount(v);
  const auto old_client = world.client(oldest), new_client = world.client(newest);
  int round = 0;
  for (const auto directory : {oldest, newest, oldest}) {
    CAPTURE(directory);
    if (round > 0) {
      world.serve(directory);
      REQUIRE(soon([&] { return new_client->segments() && new_client->segments()->size() == versions; }));
    }
    const auto key = "object " + std::to_string(++round);
    use(*old_client, *new_client, key);
    use(*new_client, *old_client, key + " of the other");
    for (int earlier = 1; earlier <= round; ++earlier) {
      store_code code{};
      CHECK(get(*old_client, "object " + std::to_string(earlier), code).size() == 10'000);
      CHECK(code == store_code::ok);
    }
    check_listed(*old_client, oldest, directory);
    check_listed(*new_client, newest, directory);
  }
}

TEST_CASE("how much an SSD may hold is known where both ends can say so; else its bytes count") {
  for (const auto holder : {oldest, newest})
    for (const auto directory : {oldest, newest}) {
      CAPTURE(holder);
      CAPTURE(directory);
      mixed_store world{directory};
      const temp_dir folder;
      auto disk = rocksdb_object_disk::open(
          {folder / "ssd", 64 * MiB, {write_policy::write_through, 1, 1}, false, {}});
      REQUIRE(disk);
      world.mount(holder, std::move(*disk));
      const auto c = world.client(newest);
      std::mt19937_64 random{1};
      CHECK(put(*c, "numbers", bf16_numbers(500'000, random)) == store_code::ok);
      REQUIRE(soon([&] { return c->counts()->disk_objects == 1; }));
      const bool told = std::min(holder, directory) >= store_wire::tells_disk_room;
      const auto room = c->counts()->disk_total_bytes;
      CHECK((told ? room > 80 * MiB : room == 64 * MiB));
    }
}

TEST_CASE("whoever knows no version of the directory's hears which it knows") {
  const mixed_store world{newest};
  auto to = world.address(oldest - 1);
  const auto made = store_client::connect({to, 1 * MiB});
  REQUIRE_FALSE(made);
  CHECK(made.error() == ec::incompatible);
  CHECK(made.error().detail.find("speaks version " + std::to_string(newest)) != std::string::npos);
}
