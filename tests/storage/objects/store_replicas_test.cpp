// Replicas: which is read, what is done where one is damaged or gone, and how they are copied and moved.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/storage/objects/store_cluster.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

TEST_CASE("bytes that were damaged where they lie are not handed out; another replica is") {
  const cluster world{2};
  const auto c = world.client("host-0");
  put_policy two;
  two.replicas = 2;
  const auto bytes = noise(100'000, 4);
  REQUIRE(put(*c, "k", bytes, two) == store_code::ok);
  REQUIRE(put(*c, "single", bytes) == store_code::ok);
  const auto segments = c->segments();
  REQUIRE(segments);
  for (const std::string_view key : {"k", "single"}) {
    const auto place = c->look({&key, 1}).at(0).places.at(0);
    for (const auto& s : *segments) {
      if (s.view.id != place.segment) continue;
      auto mapped = mapped_segment::map(s.address.unix_name, secret, clock_type::now() + 5s);
      REQUIRE(mapped);
      (*mapped)->bytes()[place.offset + 50'000] ^= std::byte{1};
    }
  }
  store_code code{};
  CHECK(get(*c, "k", code) == bytes);
  CHECK(code == store_code::ok);
  get(*c, "single", code);
  CHECK(code == store_code::checksum_mismatch);
}

TEST_CASE("readers of other hosts divide themselves among all replicas of an object") {
  const cluster world{2};
  const auto near = world.client("host-0"), far = world.client("elsewhere");
  put_policy two;
  two.replicas = 2;
  const auto bytes = noise(10'000, 4);
  REQUIRE(put(*near, "k", bytes, two) == store_code::ok);
  const std::string_view key = "k";
  const auto second = segment_named(*near, "s1");
  const auto read_by = [&](store_client& c) {
    std::size_t of_the_second = 0;
    for (int i = 0; i < 60; ++i) {
      auto found = c.find({&key, 1});
      std::byte first{};
      const part_to_read part{0, 0, {&first, 1}};
      REQUIRE(c.read_parts({&key, 1}, found, {&part, 1}).at(0) == store_code::ok);
      CHECK(first == bytes[0]);
      of_the_second += found[0].sound.at(0).segment == second;
    }
    return of_the_second;
  };
  CHECK(read_by(*near) == 0);
  const auto of_the_second = read_by(*far);
  CHECK(of_the_second > 10);
  CHECK(of_the_second < 50);
}

TEST_CASE("parts of an object that was damaged where it lies are not handed out, on no host") {
  const cluster world{2, 4 * MiB};
  const auto near = world.client("host-0"), far = world.client("elsewhere");
  // In one piece, and wider than a segment has room for.
  for (const std::size_t size : {300'000ul, 5'000'000ul}) {
    CAPTURE(size);
    const auto bytes = noise(size, 5);
    REQUIRE(put(*near, "k", bytes) == store_code::ok);
    const std::string_view key = "k";
    for (auto* const c : {near.get(), far.get()}) {
      const auto read = [&] {
        auto found = c->find({&key, 1});
        std::vector<std::byte> some(1000);
        const part_to_read part{0, 500, some};
        const auto code = c->read_parts({&key, 1}, found, {&part, 1}).at(0);
        CHECK((code != store_code::ok || std::equal(some.begin(), some.end(), bytes.begin() + 500)));
        return code;
      };
      CHECK(read() == store_code::ok);
      const auto place = near->look({&key, 1}).at(0).places.back();
      flip(*near, place, place.bytes - 1);  // far from what is read
      CHECK(read() == store_code::checksum_mismatch);
      flip(*near, place, place.bytes - 1);
      CHECK(read() == store_code::ok);
    }
    REQUIRE(near->remove({&key, 1}, true).at(0) == store_code::ok);
  }
}

/// As behind a firewall: nobody comes in at the endpoint of a segment any more. What is inside stays.
void close_endpoint(store_client& c, std::uint32_t segment) {
  const auto all = c.segments();
  REQUIRE(all);
  const auto at = std::ranges::find(*all, segment, [](const auto& s) { return s.view.id; });
  REQUIRE(at != all->end());
  int closed = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in own{};
    socklen_t length = sizeof own;
    int listens = 0;
    socklen_t width = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &width) != 0 || listens == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 || own.sin_family != AF_INET)
      continue;
    if (ntohs(own.sin_port) == at->address.endpoint_port && ::shutdown(fd, SHUT_RDWR) == 0) ++closed;
  }
  REQUIRE(closed == 1);
}

TEST_CASE("who cannot ask at the endpoint looks at all of an object before parts of it are handed out") {
  const cluster world;
  const auto near = world.client("host-0"), before = world.client("elsewhere");
  const auto bytes = noise(3'000'000, 8);
  const std::string_view key = "k";
  REQUIRE(put(*near, "k", bytes) == store_code::ok);
  const auto place = near->look({&key, 1}).at(0).places.at(0);
  const auto read = [&](store_client& c) {
    auto found = c.find({&key, 1});
    std::vector<std::byte> some(1000);
    const part_to_read part{0, 500, some};
    const auto code = c.read_parts({&key, 1}, found, {&part, 1}).at(0);
    CHECK((code != store_code::ok || std::equal(some.begin(), some.end(), bytes.begin() + 500)));
    return code;
  };
  CHECK(read(*before) == store_code::ok);
  close_endpoint(*near, place.segment);
  const auto after = world.client("elsewhere");
  for (auto* const c : {before.get(), after.get()}) {
    CHECK(read(*c) == store_code::ok);
    flip(*near, place, place.bytes - 1);  // far from what is read
    CHECK(read(*c) == store_code::checksum_mismatch);
    flip(*near, place, place.bytes - 1);
    CHECK(read(*c) == store_code::ok);
  }
}

TEST_CASE("parts come from another replica where one was damaged or has gone") {
  cluster world{2};
  const auto near = world.client("host-0"), far = world.client("elsewhere");
  put_policy two;
  two.replicas = 2;
  const auto bytes = noise(300'000, 6);
  const std::string_view key = "k";
  REQUIRE(put(*near, "k", bytes, two) == store_code::ok);
  std::vector<std::byte> some(1000);
  const part_to_read part{0, 500, some};
  const auto read = [&](store_client& c, std::vector<object_view>& found) {
    some.assign(some.size(), std::byte{0});
    const auto code = c.read_parts({&key, 1}, found, {&part, 1}).at(0);
    CHECK((code != store_code::ok || std::equal(some.begin(), some.end(), bytes.begin() + 500)));
    return code;
  };
  const auto places = near->look({&key, 1}).at(0).places;
  REQUIRE(places.size() == 2);
  for (const auto& damaged : places) {
    flip(*near, damaged, 700);
    for (auto* const c : {near.get(), far.get()})
      for (int i = 0; i < 20; ++i) {
        auto found = c->find({&key, 1});
        CHECK(read(*c, found) == store_code::ok);
        CHECK(found[0].sound.at(0) != damaged);
      }
    flip(*near, damaged, 700);
  }
  const auto second = segment_named(*near, "s1");
  auto found = far->find({&key, 1});
  while (read(*far, found) == store_code::ok && found[0].sound.at(0).segment != second)
    found = far->find({&key, 1});
  REQUIRE(found[0].sound.at(0).segment == second);
  world.holders.at(1).reset();
  CHECK(read(*far, found) == store_code::ok);
  CHECK(found[0].sound.at(0).segment != second);
}

TEST_CASE("a reader takes the nearest replica, and a writer the nearest memory") {
  const cluster world{3, 32 * MiB, true};
  const auto writer = world.client("row2/mounts nothing"), beside = world.client("host-2");
  put_policy two;
  two.replicas = 2;
  std::map<std::uint32_t, std::string> names;
  const auto segments = writer->segments();
  REQUIRE(segments);
  for (const auto& s : *segments) names[s.view.id] = s.view.name;
  for (int i = 0; i < 20; ++i) {
    const auto key = std::to_string(i);
    REQUIRE(put(*writer, key, noise(100, 1), two) == store_code::ok);
    const std::string_view asked = key;
    const auto found = writer->look({&asked, 1}).at(0);
    REQUIRE(found.places.size() == 2);
    CHECK(names[found.places[0].segment] == "s2");
    const auto far = names[found.places[1].segment];
    const auto reader = world.client("row" + far.substr(1) + "/reads");
    for (const auto& [client, nearest] :
         {std::pair{reader.get(), far}, std::pair{beside.get(), std::string{"s2"}}}) {
      store_code code{};
      CHECK(get(*client, key, code) == noise(100, 1));  // it knows by now where all segments are
      CHECK(names[client->nearest_first(found)[0][0].segment] == nearest);
    }
  }
}

TEST_CASE("what was damaged while it was written part by part, in any order, is not published") {
  const cluster world;
  const auto c = world.client();
  const auto segments = c->segments();
  REQUIRE(segments);
  auto mapped = mapped_segment::map(segments->at(0).address.unix_name, secret, clock_type::now() + 5s);
  REQUIRE(mapped);
  const auto memory = (*mapped)->bytes();
  for (const bool damaged : {false, true}) {
    const auto bytes = noise(300'000, damaged ? 6 : 5);
    const std::span<const std::byte> all{bytes};
    const std::string key = damaged ? "damaged" : "sound";
    const object_outline outline{key, bytes.size(), {}};
    const auto begun = c->begin({&outline, 1}, {}).at(0);
    REQUIRE(begun.code == store_code::ok);
    for (const std::size_t at : {0ul, 200'000ul, 100'000ul}) {
      const auto piece = all.subspan(at, 100'000);
      REQUIRE(c->write_part(*begun.object, at, {&piece, 1}) == store_code::ok);
      const auto found = std::search(memory.begin(), memory.end(), piece.begin(), piece.begin() + 64);
      REQUIRE(found != memory.end());
      if (damaged && at == 0) found[50'000] ^= std::byte{1};
    }
    CHECK(c->finish({&begun.object, 1}).at(0) == (damaged ? store_code::checksum_mismatch : store_code::ok));
    store_code code{};
    const auto read = get(*c, key, code);
    CHECK(code == (damaged ? store_code::not_found : store_code::ok));
    if (!damaged) CHECK(read == bytes);
  }
}

TEST_CASE("a client copies objects from a segment that is drained, through memory and over TCP") {
  const cluster world{2};
  for (const auto* host : {"host-0", "elsewhere"}) {
    CAPTURE(host);
    const auto client = world.client(host);
    std::vector<std::string> keys;
    for (unsigned i = 0; i < 100; ++i) {
      keys.push_back(host + std::to_string(i));
      REQUIRE(put(*client, keys.back(), noise(5000 + i, i)) == store_code::ok);
    }
    const auto segment = client->segments()->at(0).view.name;
    CHECK(client->drain("nobody", true) == store_code::segment_not_found);
    REQUIRE(client->drain(segment, true) == store_code::ok);
    const auto lying = client->list({}, 1000, segment);
    std::vector<std::string_view> moving;
    for (const auto& o : lying.objects) moving.push_back(o.key);
    put_policy as_before;
    as_before.replicas = 0;
    for (const auto code : client->move(moving, as_before)) CHECK(code == store_code::ok);
    CHECK(client->list({}, 1000, segment).objects.empty());
    for (unsigned i = 0; i < 100; ++i) {
      store_code code{};
      CHECK(get(*client, keys[i], code) == noise(5000 + i, i));
    }
    REQUIRE(client->drain(segment, false) == store_code::ok);
    put_policy twice;
    twice.replicas = 2;
    const std::string_view one = keys[0];
    CHECK(client->move({&one, 1}, twice).at(0) == store_code::ok);
    CHECK(client->look({&one, 1}).at(0).places.size() == 2);
  }
}

TEST_CASE("those who hold an object copy it and move it where somebody asked, who need not wait") {
  cluster world{4};
  const auto c = world.client();
  const auto bytes = noise(300'000, 5);
  put_policy first;
  first.preferred = {"s0"};
  REQUIRE(put(*c, "k", bytes, first) == store_code::ok);
  const auto ask = [&](task_kind kind, const std::string& source, const std::vector<std::string>& targets) {
    task_order order;
    order.kind = kind;
    order.key = "k";
    order.source = source;
    order.targets = targets;
    return c->create_task(order);
  };
  const auto becomes = [&](const std::pair<store_code, task_id>& made, task_status status) {
    REQUIRE(made.first == store_code::ok);
    return soon([&] { return c->query_task(made.second).second.status == status; });
  };
  const auto lies_in = [&] {
    std::set<std::string> names;
    const std::string_view key = "k";
    const auto segments = c->segments();
    const auto seen = c->look({&key, 1});
    for (const auto& p : seen.at(0).places)
      for (const auto& s : *segments)
        if (s.view.id == p.segment) names.insert(s.view.name);
    return names;
  };
  CHECK(ask(task_kind::copy, "", {}).first == store_code::invalid_parameters);
  CHECK(ask(task_kind::copy, "", {"nowhere"}).first == store_code::invalid_parameters);
  CHECK(ask(task_kind::move, "s1", {"s2"}).first == store_code::invalid_parameters);
  CHECK(c->query_task({1, 2}).first == store_code::task_not_found);
  CHECK(becomes(ask(task_kind::copy, "", {"s0"}), task_status::success));  // where it is
  CHECK(becomes(ask(task_kind::copy, "", {"s1", "s2", "s1"}), task_status::success));
  CHECK(lies_in() == std::set<std::string>{"s0", "s1", "s2"});
  CHECK(becomes(ask(task_kind::move, "s0", {"s3"}), task_status::success));
  CHECK(lies_in() == std::set<std::string>{"s1", "s2", "s3"});
  CHECK(becomes(ask(task_kind::move, "s3", {"s1"}), task_status::success));  // where it lies already
  CHECK(lies_in() == std::set<std::string>{"s1", "s2"});
  // A target that has no room.
  REQUIRE(c->drain("s3", true) == store_code::ok);
  CHECK(becomes(ask(task_kind::copy, "", {"s3"}), task_status::failed));
  store_code code{};
  CHECK(get(*c, "k", code) == bytes);
  CHECK(code == store_code::ok);
}
