// What clients of the store may rely on: objects whole or in pieces, near and far, and whoever goes.

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <map>

#include "tests/storage/objects/store_cluster.hpp"
#include "transport/net/socket.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE(
    "what a directory and a process of its host say goes through memory of both, as long as both are there") {
  const auto rings = [] {
    std::ifstream maps{"/proc/self/maps"};
    int n = 0;
    for (std::string line; std::getline(maps, line);) n += line.find("mooncaf-ring") != std::string::npos;
    return n;
  };
  const cluster world;
  REQUIRE(soon([&] { return rings() == 2; }));  // the holder's, mapped by either end
  {
    const auto c = world.client();
    CHECK(rings() == 4);
    const auto bytes = noise(100, 1);
    CHECK(put(*c, "key", bytes) == store_code::ok);
  }
  CHECK(soon([&] { return rings() == 2; }));
}

TEST_CASE("an object of any size comes back as it went in, through shared memory and over TCP") {
  const cluster world;
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const auto writer = world.client(host), reader = world.client(host);
    for (const std::size_t n : {1ul, 63ul, 4096ul, 163'840ul, 1ul * MiB, 5ul * MiB + 7}) {
      CAPTURE(n);
      const auto key = std::string{host} + std::to_string(n);
      const auto bytes = noise(n, static_cast<unsigned>(n));
      REQUIRE(put(*writer, key, bytes) == store_code::ok);
      store_code code{};
      CHECK(get(*reader, key, code) == bytes);
      CHECK(code == store_code::ok);
    }
  }
}

TEST_CASE("objects are gathered from many pieces and scattered into others") {
  const cluster world;
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const auto c = world.client(host);
    const auto bytes = noise(3 * MiB, 3);
    const std::span<const std::byte> all{bytes};
    const outgoing_object item{host, {all.first(5), all.subspan(5, 2 * MiB), all.subspan(5 + 2 * MiB)}};
    REQUIRE(c->put({&item, 1}, {}).at(0) == store_code::ok);
    const std::string_view key = host;
    const auto found = c->find({&key, 1}).at(0);
    std::vector<std::byte> back(bytes.size());
    const std::span<std::byte> to{back};
    const std::vector<std::span<std::byte>> parts{to.first(1 * MiB), to.subspan(1 * MiB, 100),
                                                  to.subspan(1 * MiB + 100)};
    CHECK(c->read(found, parts) == store_code::ok);
    CHECK(back == bytes);
  }
}

TEST_CASE("a batch has one code for each object, and what exists is not written again") {
  const cluster world;
  const auto c = world.client();
  const auto a = noise(1000, 1), b = noise(1000, 2);
  REQUIRE(put(*c, "a", a) == store_code::ok);
  const std::vector<outgoing_object> items{{"a", {b}}, {"b", {b}}, {"", {b}}, {"c", {}}};
  const auto codes = c->put(items, {});
  CHECK(codes == std::vector<store_code>{store_code::already_exists, store_code::ok, store_code::invalid_key,
                                         store_code::invalid_parameters});
  store_code code{};
  CHECK(get(*c, "a", code) == a);
  const std::vector<std::string_view> keys{"a", "x", "b"};
  CHECK(c->exists(keys) == std::vector<std::int32_t>{1, 0, 1});
  CHECK(c->remove(keys, false) ==
        std::vector<store_code>{store_code::has_lease, store_code::not_found, store_code::has_lease});
  CHECK(c->remove_all("^a", true) == 1);
  CHECK(c->remove_all("(", true) == static_cast<int>(store_code::invalid_parameters));
  const auto left = c->list("", 10);
  REQUIRE(left.objects.size() == 1);
  CHECK(left.objects[0].key == "b");
  CHECK(c->remove_all("", true) == 1);
}

TEST_CASE("another secret opens neither directory nor segment") {
  const cluster world;
  auto wrong = world.address("host-0");
  wrong.secret = "another secret, also long enough";
  const auto refused = store_client::connect({wrong, 1 * MiB});
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == ec::unauthenticated);
  const auto segments = world.client()->segments();
  REQUIRE(segments);
  CHECK_FALSE(
      mapped_segment::map(segments->at(0).address.unix_name, wrong.secret.own(), clock_type::now() + 5s));
}

TEST_CASE("a holder that leaves takes along what lay there alone") {
  cluster world{2};
  const auto c = world.client("elsewhere");
  put_policy two, first;
  two.replicas = 2;
  first.preferred = {"s0"};
  const auto bytes = noise(10'000, 5);
  REQUIRE(put(*c, "both", bytes, two) == store_code::ok);
  REQUIRE(put(*c, "alone", bytes, first) == store_code::ok);
  world.holders.erase(world.holders.begin());
  REQUIRE(soon([&] { return c->counts()->objects == 1; }));
  store_code code{};
  CHECK(get(*c, "both", code) == bytes);
  get(*c, "alone", code);
  CHECK(code == store_code::not_found);
}

TEST_CASE("a directory that starts anew knows what its holders hold, and reads under way never stop") {
  cluster world{2};
  const auto c = world.client();
  const auto bytes = noise(10'000, 6);
  put_policy two;
  two.replicas = 2;
  REQUIRE(put(*c, "k", bytes, two) == store_code::ok);
  REQUIRE(put(*c, "removed", bytes) == store_code::ok);
  const std::string_view key = "k", removed = "removed";
  const auto held = c->find({&key, 1}).at(0);
  REQUIRE(c->remove({&removed, 1}, false).at(0) == store_code::ok);
  const auto port = world.directory->port();
  world.directory.reset();
  CHECK(c->exists({&key, 1}).at(0) < 0);
  std::vector<std::byte> back(bytes.size());
  const std::span<std::byte> whole{back};
  CHECK(c->read(held, {&whole, 1}) == store_code::ok);
  CHECK(back == bytes);
  directory_server_options o;
  o.secret = secret;
  o.port = port;
  auto again = directory_server::start(std::move(o));
  REQUIRE(again);
  world.directory = std::move(*again);
  REQUIRE(soon([&] { return c->exists({&key, 1}).at(0) == 1; }));
  CHECK(c->look({&key, 1}).at(0).places.size() == 2);
  CHECK(c->exists({&removed, 1}).at(0) == 0);
  store_code code{};
  CHECK(get(*c, "k", code) == bytes);
  CHECK(put(*c, "removed", bytes) == store_code::ok);
  CHECK(c->read(held, {&whole, 1}) == store_code::ok);
}

TEST_CASE("many threads share one connection, each with its own answers") {
  const cluster world;
  const auto c = world.client();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 200; ++i) {
        const auto key = std::to_string(t) + "/" + std::to_string(i);
        const auto bytes = noise(100 + t, i);
        store_code code{};
        if (put(*c, key, bytes) != store_code::ok || get(*c, key, code) != bytes) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("an object is written layer by layer and read so, through shared memory and over TCP") {
  const cluster world;
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const auto writer = world.client(host), reader = world.client(host);
    const auto bytes = noise(3'000'000, 9);
    const std::span<const std::byte> all{bytes};
    for (const bool forwards : {true, false}) {
      const auto key = std::string{host} + (forwards ? " in order" : " backwards");
      const object_outline outline{key, bytes.size()};
      const auto begun = writer->begin({&outline, 1}, {}).at(0);
      REQUIRE(begun.code == store_code::ok);
      for (std::uint64_t i = 0; i < 3; ++i) {
        const auto at = (forwards ? i : 2 - i) * 1'000'000;
        const auto part = all.subspan(at, 1'000'000);
        REQUIRE(writer->write_part(*begun.object, at, {&part, 1}) == store_code::ok);
      }
      CHECK(writer->write_part(*begun.object, 2'999'999, {&all, 1}) == store_code::invalid_parameters);
      const std::string_view k = key;
      CHECK(reader->exists({&k, 1}).at(0) == 0);
      CHECK(writer->finish({&begun.object, 1}).at(0) == store_code::ok);
      store_code code{};
      CHECK(get(*reader, key, code) == bytes);
      CHECK(code == store_code::ok);

      auto found = reader->find({&k, 1});
      std::vector<std::byte> back(50);
      const part_to_read parts[] = {{0, 7, std::span{back}.first(20)},
                                    {0, 2'999'970, std::span{back}.subspan(20, 30)},
                                    {0, 2'999'971, std::span{back}.subspan(20, 30)}};
      const auto codes = reader->read_parts({&k, 1}, found, parts);
      CHECK(codes == std::vector{store_code::ok, store_code::ok, store_code::invalid_parameters});
      CHECK(std::equal(back.begin(), back.begin() + 20, bytes.begin() + 7));
      CHECK(std::equal(back.begin() + 20, back.end(), bytes.end() - 30));
      // Another object under its name, and what is read is not mixed with the old one.
      put_policy over;
      over.replace = true;
      REQUIRE(put(*writer, key, noise(3'000'000, 10), over) == store_code::ok);
      CHECK(reader->read_parts({&k, 1}, found, {parts, 1}).at(0) == store_code::lease_ended);
    }
  }
}

TEST_CASE("an object with a hole is not published, and one that is given up leaves no bytes") {
  const cluster world;
  const auto c = world.client();
  const auto bytes = noise(1000, 1);
  const std::span<const std::byte> some{bytes};
  const object_outline outlines[] = {{"hole", 2000}, {"given up", 1000}};
  const auto begun = c->begin(outlines, {});
  REQUIRE(c->write_part(*begun[0].object, 500, {&some, 1}) == store_code::ok);
  CHECK(c->finish({&begun[0].object, 1}).at(0) == store_code::invalid_parameters);
  c->give_up({&begun[1].object, 1});
  CHECK(c->write_part(*begun[1].object, 0, {&some, 1}) == store_code::invalid_parameters);
  const auto counts = c->counts();
  REQUIRE(counts);
  CHECK(counts->reserved == 0);
  CHECK(counts->free_bytes == counts->total_bytes);
}

TEST_CASE("an object that no segment holds is written and read in stripes, from here and from elsewhere") {
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const cluster world{3, 8 * MiB};
    const auto c = world.client(host);
    const auto bytes = noise(9 * MiB + 77, 8);
    REQUIRE(put(*c, "k", bytes) == store_code::ok);
    const std::string_view key = "k";
    auto found = c->find({&key, 1});
    CHECK(found.at(0).places.size() > 1);
    store_code code{};
    CHECK(get(*c, key, code) == bytes);
    CHECK(code == store_code::ok);
    // A part that begins in one stripe and ends in another.
    std::vector<std::byte> part(5 * MiB);
    const part_to_read wanted{0, 2 * MiB + 11, part};
    REQUIRE(c->read_parts({&key, 1}, found, {&wanted, 1}).at(0) == store_code::ok);
    CHECK(std::equal(part.begin(), part.end(), bytes.begin() + 2 * MiB + 11));
    // The same, written part by part and not in order.
    const object_outline outline{"parts", bytes.size()};
    auto begun = c->begin({&outline, 1}, {});
    REQUIRE(begun.at(0).code == store_code::ok);
    const std::span<const std::byte> all{bytes}, head = all.first(4 * MiB), tail = all.subspan(4 * MiB);
    CHECK(c->write_part(*begun[0].object, 4 * MiB, {&tail, 1}) == store_code::ok);
    CHECK(c->write_part(*begun[0].object, 0, {&head, 1}) == store_code::ok);
    CHECK(c->finish({&begun[0].object, 1}).at(0) == store_code::ok);
    CHECK(get(*c, "parts", code) == bytes);
  }
}

TEST_CASE(
    "of puts of one size one after the other each from the third on is one question, and none is lost") {
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const cluster world{2};
    const auto c = world.client(host);
    const auto asked = [&](store_wire::op what) {
      const auto all = c->figures().value().times.at(static_cast<std::size_t>(what)).counts;
      return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
    };
    std::map<std::string, std::vector<std::byte>> there;
    for (unsigned i = 0; i < 20; ++i) {
      const auto key = "k" + std::to_string(i);
      REQUIRE(put(*c, key, there[key] = noise(16 * KiB, i)) == store_code::ok);
      if (i % 5 == 4) {  // its room stays for the next one
        CHECK(put(*c, "k" + std::to_string(i - 3), noise(16 * KiB, 100)) == store_code::already_exists);
        CHECK(put(*c, std::string(object_table::key_bytes_max + 1, 'x'), noise(16 * KiB, 100)) ==
              store_code::invalid_key);
      }
    }
    CHECK(asked(store_wire::op::reserve) == 2);
    CHECK(asked(store_wire::op::publish) == 1);
    CHECK(asked(store_wire::op::put_next) == 19 + 8);
    // What is of another kind has nothing to do with it.
    REQUIRE(put(*c, "other", there["other"] = noise(5000, 7)) == store_code::ok);
    put_policy over;
    over.replace = true;
    REQUIRE(put(*c, "k3", there["k3"] = noise(16 * KiB, 33), over) == store_code::ok);
    put_policy twice;
    twice.replicas = 2;
    for (const auto* key : {"t1", "t2", "t3", "t4"}) {
      REQUIRE(put(*c, key, there[key] = noise(16 * KiB, 5), twice) == store_code::ok);
      const std::string_view k = key;
      CHECK(c->look({&k, 1}).at(0).places.size() == 2);
    }
    for (const auto& stored : there) {
      CAPTURE(stored.first);
      store_code code{};
      CHECK(get(*c, stored.first, code) == stored.second);
    }
    CHECK(c->counts().value().objects == there.size());
  }
}

TEST_CASE("several threads put through one client, room for the next or not") {
  const cluster world;
  const auto c = world.client();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 100; ++i)
        CHECK(put(*c, std::to_string(t) + "/" + std::to_string(i), noise(t < 3 ? 4096 : 8192, 100 * t + i)) ==
              store_code::ok);
    });
  for (auto& t : threads) t.join();
  for (unsigned t = 0; t < 4; ++t)
    for (unsigned i = 0; i < 100; ++i) {
      store_code code{};
      CHECK(get(*c, std::to_string(t) + "/" + std::to_string(i), code) ==
            noise(t < 3 ? 4096 : 8192, 100 * t + i));
    }
}

TEST_CASE(
    "processes of the directory's host reach it over a Unix socket, over TCP where that is somebody else's") {
  cluster world;
  const auto port = world.directory->port();
  const auto address = *unix_address("@mooncaf-store-4-" + std::to_string(port));
  const auto answers = [&] { return connect_unix(address, SOCK_STREAM).has_value(); };
  CHECK(answers());
  const auto c = world.client();
  CHECK(put(*c, "k", noise(100, 1)) == store_code::ok);

  // Somebody has taken the socket of a port that a directory takes later.
  world.holders.clear();
  world.directory.reset();
  CHECK_FALSE(answers());
  const auto squatter = listen_unix(address, SOCK_STREAM);
  REQUIRE(squatter);
  directory_server_options o;
  o.secret = secret;
  o.port = port;
  o.recovery = {};
  auto d = directory_server::start(std::move(o));
  REQUIRE(d);
  world.directory = std::move(*d);
  CHECK(directory_link::connect(world.address("host-0")));  // after a second in which nobody answers
}
