// Directories at several seats, of which one serves: what holders and clients notice of another taking over.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <numeric>
#include <utility>

#include "runtime/base/wall_clock.hpp"
#include "storage/objects/directory/directory_shards.hpp"
#include "storage/objects/disk/rocksdb_object_disk.hpp"
#include "tests/storage/objects/store_cluster.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

std::uint16_t free_port() {
  // Below those that the kernel gives to others as soon as this one is free again.
  std::random_device random;
  for (;;) {
    const auto port = static_cast<std::uint16_t>(10'000 + random() % 22'000);
    if (listen_tcp(*resolve_tcp("127.0.0.1", port))) return port;
  }
}

std::vector<std::byte> value_of(int n) { return std::vector<std::byte>(70'000, static_cast<std::byte>(n)); }

/// Two hosts that may have the directory, each with a folder of its own.
struct two_seats {
  std::array<std::uint16_t, 2> ports{free_port(), free_port()};
  std::shared_ptr<const directory_seats> seats = std::make_shared<const directory_seats>(
      std::vector<host_port>{{"127.0.0.1", ports[0]}, {"127.0.0.1", ports[1]}});
  temp_dir folder;
  mutable bool had_one = false;  // a directory

  std::unique_ptr<directory_server> serve(std::size_t seat, std::shared_ptr<serving_right> right = nullptr,
                                          std::uint64_t numbers_ahead_us = 0) const {
    directory_server_options o;
    o.port = ports[seat];
    o.secret = secret;
    o.recovery =
        std::exchange(had_one, true) ? 10s : 0s;  // the first one waits for nobody; 10: on a busy machine
    o.state_folder = folder / ("state-" + std::to_string(seat));
    o.right = std::move(right);
    if (numbers_ahead_us != 0) o.numbers_from = wall_clock_us() + numbers_ahead_us;
    auto made = directory_server::start(std::move(o));
    REQUIRE(made);
    return std::move(*made);
  }
  directory_address address(const std::string& host) const {
    directory_address a;
    a.at = seats;
    a.secret = secret;
    a.own_host = host;
    return a;
  }
  std::unique_ptr<store_client> client(const std::string& host) const {
    auto c = store_client::connect({address(host), 1 * MiB});
    REQUIRE(c);
    return std::move(*c);
  }
  std::unique_ptr<segment_mount> mount(int number, std::shared_ptr<object_disk> disk = nullptr) const {
    segment_mount_options segment;
    segment.directory = address("host-" + std::to_string(number));
    segment.name = "s" + std::to_string(number);
    segment.bytes = 4 * MiB;
    segment.disk = std::move(disk);
    auto made = segment_mount::start(std::move(segment));
    REQUIRE(made);
    return std::move(*made);
  }
};

void check_all(store_client& c, int first, int last) {
  for (int n = first; n < last; ++n) {
    CAPTURE(n);
    store_code code{};
    const auto found = get(c, "object " + std::to_string(n), code);
    CHECK(code == store_code::ok);
    CHECK(found == value_of(n));
  }
}

}  // namespace

TEST_CASE("a directory at another seat has all that the last one had, and calls wait for it") {
  const two_seats world;
  auto first = world.serve(0);
  const auto holder = world.mount(0), other = world.mount(1);
  for (const std::string host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const auto c = world.client(host);
    for (int n = 0; n < 20; ++n) CHECK(put(*c, "object " + std::to_string(n), value_of(n)) == store_code::ok);
    const std::string_view gone = "object 19";
    CHECK(c->remove({&gone, 1}, true).at(0) == store_code::ok);
    first.reset();
    // Calls of every kind are under way while nobody serves.
    std::atomic<int> wrong = 0, begun = 0;
    std::vector<std::thread> callers;
    callers.emplace_back([&] {
      ++begun;
      wrong += put(*c, "object 20", value_of(20)) != store_code::ok;
    });
    callers.emplace_back([&] {
      ++begun;
      store_code code{};
      wrong += get(*c, "object 3", code) != value_of(3);
    });
    callers.emplace_back([&] {
      ++begun;
      const std::string_view keys[] = {"object 4", gone};
      wrong += c->exists(keys) != std::vector<std::int32_t>{1, 0};
    });
    callers.emplace_back([&] {
      ++begun;
      const std::string_view key = "object 18";
      wrong += c->remove({&key, 1}, true).at(0) != store_code::ok;
    });
    callers.emplace_back([&] {
      ++begun;
      wrong += c->list("^object 1$", 10).objects.size() != 1;
    });
    REQUIRE(soon([&] { return begun == 5; }));
    auto second = world.serve(1);
    for (auto& t : callers) t.join();
    CHECK(wrong == 0);
    check_all(*c, 0, 18);
    check_all(*c, 20, 21);
    CHECK(c->remove_all("", true) == 19);
    second.reset();
    first = world.serve(0);
  }
}

TEST_CASE("an object that is written part by part goes on at another seat, whenever the first one goes") {
  const two_seats world;
  std::size_t seat = 0;
  auto serving = world.serve(seat);
  const auto holder = world.mount(0), other = world.mount(1);
  std::vector<std::byte> value(30'000);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(i * 7 + i / 999);
  put_policy twice;
  twice.replicas = 2;
  // Before which step the directory goes: begin, each of three parts, finish.
  for (int moment = 0; moment < 5; ++moment)
    for (const bool in_order : {true, false})
      for (const std::string host : {"host-0", "elsewhere"}) {
        CAPTURE(moment);
        CAPTURE(in_order);
        CAPTURE(host);
        const auto c = world.client(host);
        std::thread next;
        const auto before = [&](int step) {
          if (step != moment) return;
          serving.reset();
          next = std::thread{[&] { serving = world.serve(seat = 1 - seat); }};
        };
        const std::string name = "of parts " + std::to_string(moment) + host + (in_order ? "" : "'");
        const object_outline outline{name, value.size(), {"a group", {}, 2.0}};
        before(0);
        const auto begun = c->begin({&outline, 1}, twice);
        REQUIRE(begun.front().code == store_code::ok);
        for (const std::size_t part : in_order ? std::array{0, 1, 2} : std::array{2, 0, 1}) {
          before(static_cast<int>(1 + (in_order ? part : (part + 1) % 3)));
          const auto piece = std::span<const std::byte>{value}.subspan(part * 10'000, 10'000);
          CHECK(c->write_part(*begun.front().object, part * 10'000, {&piece, 1}) == store_code::ok);
        }
        before(4);
        CHECK(c->finish({&begun.front().object, 1}) == std::vector{store_code::ok});
        next.join();
        store_code code{};
        CHECK(get(*c, name, code) == value);
        const std::string_view key = name;
        CHECK(replicas_of(c->find({&key, 1}).front().places, value.size()).size() == 2);
        CHECK(c->finish({&begun.front().object, 1}) == std::vector{store_code::invalid_parameters});
        CHECK(c->remove({&key, 1}, true) == std::vector{store_code::ok});
      }
}

TEST_CASE("a put that was given room on a host that has died is made again until the directory notices") {
  const two_seats world;
  const auto serving = world.serve(0);
  const auto holder = world.mount(0), other = world.mount(1);
  for (const std::string host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    auto dead = directory_link::connect(world.address("host-0"));
    REQUIRE(dead);
    const auto mounted = (*dead)->ask_and_wait(store_wire::op::mount, [](byte_writer& out) {
      out.put_text("a host that has died");
      out.put(std::uint64_t{4 * MiB});
      store_wire::put_address(out, {"@nobody listens here", 3, {std::byte{1}}});
      store_wire::put_former(out, {});
    });
    REQUIRE(mounted);
    const auto c = world.client(host);
    const auto reservations = [&] {
      const auto figures = c->figures();
      REQUIRE(figures);
      const auto& times = figures->times.at(static_cast<std::size_t>(store_wire::op::reserve));
      return std::accumulate(times.counts.begin(), times.counts.end(), std::uint64_t{0});
    };
    const auto before = reservations();
    put_policy everywhere;
    everywhere.replicas = 3;
    std::thread notices{[&] {
      CHECK(soon([&] { return reservations() >= before + 2; }));
      (*dead)->close();
    }};
    const std::string key = "object of " + host;
    CHECK(put(*c, key, value_of(1), everywhere) == store_code::ok);
    notices.join();
    CHECK(reservations() >= before + 2);
    store_code code{};
    CHECK(get(*c, key, code) == value_of(1));
    const std::string_view there = key;
    CHECK(replicas_of(c->find({&there, 1}).front().places, value_of(1).size()).size() == 2);
  }
}

TEST_CASE("a directory whose right has ended answers nothing, though it still runs") {
  const two_seats world;
  const auto right = std::make_shared<serving_right>(time_point::max());
  const auto first = world.serve(0, right);
  const auto holder = world.mount(0);
  const auto c = world.client("host-0");
  CHECK(put(*c, "object 1", value_of(1)) == store_code::ok);
  CHECK(put(*c, "object 2", value_of(2)) == store_code::ok);
  right->extend(clock_type::now());
  const auto second = world.serve(1);
  check_all(*c, 1, 3);
  const std::string_view key = "object 1";
  CHECK(c->remove({&key, 1}, true).at(0) == store_code::ok);
  const auto late = world.client("host-0");  // looks at the first seat first
  CHECK(late->exists({&key, 1}).at(0) == 0);
  check_all(*late, 2, 3);
}

TEST_CASE("a directory that lost its right for a moment does not go on with it, and the next one has all") {
  const two_seats world;
  const auto right = std::make_shared<serving_right>(time_point::max());
  auto first = world.serve(0, right);
  const auto holder = world.mount(0), other = world.mount(1);
  const auto c = world.client("host-0");
  for (int n = 0; n < 10; ++n) CHECK(put(*c, "object " + std::to_string(n), value_of(n)) == store_code::ok);
  right->extend(clock_type::now());
  CHECK_FALSE(right->lasts(clock_type::now()));
  right->extend(time_point::max());
  CHECK_FALSE(right->lasts(time_point{}));
  const std::string_view key = "object 0";
  std::thread again{[&] {
    first.reset();
    first = world.serve(0, std::make_shared<serving_right>(time_point::max()));
  }};
  CHECK(c->exists({&key, 1}).at(0) == 1);
  again.join();
  check_all(*c, 0, 10);
}

TEST_CASE("a directory on a host whose clock is behind takes over all the same") {
  const two_seats world;
  auto first = world.serve(0, nullptr, 3'600'000'000);  // the next one's clock is an hour behind
  const auto holder = world.mount(0);
  const auto c = world.client("host-0");
  CHECK(put(*c, "object 1", value_of(1)) == store_code::ok);
  const auto ahead = (*c->links())->all.front()->incarnation();
  first.reset();
  first = world.serve(1, nullptr, ahead - wall_clock_us() + 1'000'000);
  check_all(*c, 1, 2);
  CHECK(put(*c, "object 2", value_of(2)) == store_code::ok);
  first.reset();
  first = world.serve(0, nullptr, ahead - wall_clock_us() + 2'000'000);
  check_all(*c, 1, 3);
}

TEST_CASE("what lies on SSD alone is served by a directory at another seat") {
  const two_seats world;
  auto first = world.serve(0);
  auto disk = rocksdb_object_disk::open(
      {world.folder / "ssd", 64 * MiB, {write_policy::write_through, 1, 1}, false, {}});
  REQUIRE(disk);
  const std::shared_ptr<object_disk> ssd = std::move(*disk);
  const auto holder = world.mount(0, ssd);
  const auto c = world.client("host-0");
  constexpr int objects = 120;  // twice what memory holds
  const auto on_disk = [&] {
    const auto counts = c->counts();
    REQUIRE(counts);
    return counts->disk_objects;
  };
  for (int n = 0; n < objects; ++n) {
    CHECK(put(*c, "object " + std::to_string(n), value_of(n)) == store_code::ok);
    // What comes faster than it can be written stays in memory, and may have to leave.
    if (n % 10 == 9) REQUIRE(soon([&] { return on_disk() == static_cast<std::uint64_t>(n + 1); }));
  }
  const std::string_view gone = "object 0";
  CHECK(c->remove({&gone, 1}, true).at(0) == store_code::ok);
  for (const std::size_t seat : {1u, 0u, 1u}) {
    CAPTURE(seat);
    first.reset();
    // As a leader does whose notes are not the latest.
    REQUIRE(directory_shards::forget(world.folder / ("state-" + std::to_string(seat))));
    first = world.serve(seat);
    CHECK(c->exists({&gone, 1}).at(0) == 0);
    CHECK(on_disk() == objects - 1);
    check_all(*c, 1, objects);
  }
}
