// Directory, lender and client over real sockets and real memory, in one process.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "runtime/base/hash.hpp"
#include "storage/objects/directory_server.hpp"
#include "storage/objects/segment_lender.hpp"
#include "storage/objects/store_client.hpp"
#include "transport/net/socket.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

const std::string secret = "0123456789abcdef0123456789abcdef";

struct cluster {
  std::unique_ptr<directory_server> directory;
  std::vector<std::unique_ptr<segment_lender>> lenders;

  /// @param rows  each lender's host stands in a row of its own.
  explicit cluster(int segments = 1, std::uint64_t bytes = 32 * MiB, bool rows = false) {
    directory_server_options o;
    o.secret = secret;
    o.recovery = {};  // nobody is waited for
    auto d = directory_server::start(std::move(o));
    REQUIRE(d);
    directory = std::move(*d);
    for (int i = 0; i < segments; ++i) {
      segment_lender_options lend;
      const auto number = std::to_string(i);
      lend.directory = address((rows ? "row" + number + "/host-" : "host-") + number);
      lend.name = "s" + std::to_string(i);
      lend.bytes = bytes;
      auto l = segment_lender::start(std::move(lend));
      REQUIRE(l);
      lenders.push_back(std::move(*l));
    }
  }

  directory_address address(const std::string& host) const {
    directory_address a;
    a.port = directory->port();
    a.secret = secret;
    a.own_host = host;
    return a;
  }
  /// A client on the host of the first segment maps it; one of another host must use the data plane.
  std::unique_ptr<store_client> client(const std::string& host = "host-0") const {
    auto c = store_client::connect({address(host), 1 * MiB});
    REQUIRE(c);
    return std::move(*c);
  }
};

std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937_64 random{seed};
  std::vector<std::byte> bytes(n);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

store_code put(store_client& c, std::string_view key, std::span<const std::byte> bytes,
               const put_policy& policy = {}) {
  const outgoing_object item{key, {bytes}};
  return c.put({&item, 1}, policy).at(0);
}

std::vector<std::byte> get(store_client& c, std::string_view key, store_code& code) {
  const auto found = c.find({&key, 1}).at(0);
  std::vector<std::byte> bytes(found.size);
  const std::span<std::byte> whole{bytes};
  code = c.read(found, {&whole, 1});
  return bytes;
}

std::uint32_t segment_named(store_client& c, std::string_view name) {
  const auto all = c.segments();
  REQUIRE(all);
  const auto found =
      std::find_if(all->begin(), all->end(), [&](const auto& s) { return s.view.name == name; });
  REQUIRE(found != all->end());
  return found->view.id;
}

/// A bit of what lies in a place, whoever lends it: a second time, and it is as before.
void flip(store_client& c, const replica_place& place, std::uint64_t at) {
  const auto all = c.segments();
  REQUIRE(all);
  for (const auto& s : *all) {
    if (s.view.id != place.segment) continue;
    auto mapped = mapped_segment::map(s.address.unix_name, secret, clock_type::now() + 5s);
    REQUIRE(mapped);
    (*mapped)->bytes()[place.offset + at] ^= std::byte{1};
  }
}

bool soon(const std::function<bool()>& holds) {
  for (const auto until = clock_type::now() + 20s; clock_type::now() < until; std::this_thread::yield())
    if (holds()) return true;
  return false;
}

}  // namespace

TEST_CASE(
    "what a directory and a process of its host say goes through memory of both, as long as both are there") {
  const auto rings = [] {
    std::ifstream maps{"/proc/self/maps"};
    int n = 0;
    for (std::string line; std::getline(maps, line);) n += line.find("mooncaf-ring") != std::string::npos;
    return n;
  };
  const cluster world;
  REQUIRE(soon([&] { return rings() == 2; }));  // the lender's, mapped by either end
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
  world.lenders.at(1).reset();
  CHECK(read(*far, found) == store_code::ok);
  CHECK(found[0].sound.at(0).segment != second);
}

TEST_CASE("a reader takes the nearest replica, and a writer the nearest memory") {
  const cluster world{3, 32 * MiB, true};
  const auto writer = world.client("row2/lends nothing"), beside = world.client("host-2");
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
  CHECK_FALSE(mapped_segment::map(segments->at(0).address.unix_name, wrong.secret, clock_type::now() + 5s));
}

TEST_CASE("a lender that leaves takes along what lay there alone") {
  cluster world{2};
  const auto c = world.client("elsewhere");
  put_policy two, first;
  two.replicas = 2;
  first.preferred = {"s0"};
  const auto bytes = noise(10'000, 5);
  REQUIRE(put(*c, "both", bytes, two) == store_code::ok);
  REQUIRE(put(*c, "alone", bytes, first) == store_code::ok);
  world.lenders.erase(world.lenders.begin());
  REQUIRE(soon([&] { return c->counts()->objects == 1; }));
  store_code code{};
  CHECK(get(*c, "both", code) == bytes);
  get(*c, "alone", code);
  CHECK(code == store_code::not_found);
}

TEST_CASE("a directory that starts anew knows what its lenders hold, and reads under way never stop") {
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

namespace {
/// What memory of this name this process has taken from the kernel, whether mapped or not.
std::uint64_t pages_of(const std::string& memfd) {
  std::set<ino_t> seen;
  std::uint64_t bytes = 0;
  for (const auto& e : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(e.path(), gone).string();
    struct stat s = {};
    if (target.find(memfd) == std::string::npos || ::stat(e.path().c_str(), &s) != 0) continue;
    if (seen.insert(s.st_ino).second) bytes += static_cast<std::uint64_t>(s.st_blocks) * 512;
  }
  return bytes;
}

/// Something else of the process, that has as many bytes of the shared memory as it is not told to do
/// without.
struct neighbour {
  std::atomic<std::uint64_t> withheld{0}, taken{0};
  std::atomic<std::int64_t> coldest_ns{0};
  std::atomic<bool> idle{true};
  static constexpr std::uint64_t own = 8 * MiB;
  std::uint64_t shared;
  std::optional<boundary_report> told(std::uint64_t wanted) {
    withheld = wanted;
    const auto has = own + shared - wanted;
    return boundary_report{wanted, has, idle ? has : 0, taken, duration{coldest_ns}};
  }
};
}  // namespace

TEST_CASE(
    "memory that objects share with something else goes to whom it serves better, and its pages with it") {
  constexpr std::uint64_t own = 8 * MiB, shared = 32 * MiB;
  cluster world{0};
  neighbour other;
  other.shared = shared;
  std::mutex divided_mutex;
  shared_memory_figures divided;
  segment_lender_options lend;
  lend.directory = world.address("host-0");
  lend.directory.secret = secret;
  lend.name = "s";
  lend.bytes = own + shared;
  lend.shared_bytes = shared;
  lend.other = [&](std::uint64_t wanted) { return other.told(wanted); };
  lend.divided = [&](const shared_memory_figures& f) {
    std::lock_guard lock{divided_mutex};
    divided = f;
  };
  auto lender = segment_lender::start(std::move(lend));
  REQUIRE(lender);
  const auto objects_have = [&] {
    std::lock_guard lock{divided_mutex};
    return divided.object_bytes;
  };
  const auto c = world.client();
  REQUIRE(soon([&] { return c->lent()->at(0).view.withheld_bytes >= shared; }));
  const auto pinned = noise(300'000, 77);
  put_policy hard;
  hard.hard_pin = true;
  REQUIRE(put(*c, "pinned", pinned, hard) == store_code::ok);
  // Objects come and go, and what else there is has most of its memory idle.
  std::map<std::string, unsigned> there;
  unsigned n = 0;
  const auto churn = [&] {
    const auto key = "k" + std::to_string(n);
    if (put(*c, key, noise(200'000, n)) == store_code::ok) there[key] = n;
    ++n;
  };
  REQUIRE(soon([&] {
    churn();
    return objects_have() >= shared;
  }));
  CHECK(other.withheld == shared);
  CHECK(c->lent()->at(0).view.withheld_bytes < 2 * MiB);
  const auto check_all = [&] {
    std::size_t found = 0;
    for (const auto& [key, seed] : there) {
      store_code code = store_code::ok;
      const auto bytes = get(*c, key, code);
      if (code == store_code::ok) {
        ++found;
        REQUIRE(bytes == noise(200'000, seed));
      }
    }
    store_code code = store_code::ok;
    REQUIRE(get(*c, "pinned", code) == pinned);
    return found;
  };
  CHECK(check_all() > 30 * MiB / 200'000);
  // Now the other fills, and what it would give up is warmer than any object.
  other.idle = false;
  REQUIRE(soon([&] {
    ++other.taken;
    return objects_have() == 0;
  }));
  CHECK(other.withheld == 0);
  CHECK(c->lent()->at(0).view.withheld_bytes >= shared);
  CHECK(pages_of("mooncaf-segment") <= own + 1 * MiB);
  CHECK(check_all() > 0);  // the newest, or what was read last
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
    for (const auto& [key, bytes] : there) {
      CAPTURE(key);
      store_code code{};
      CHECK(get(*c, key, code) == bytes);
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
  const auto door = *unix_address("@mooncaf-store-4-" + std::to_string(port));
  const auto answers = [&] { return connect_unix(door, SOCK_STREAM).has_value(); };
  CHECK(answers());
  const auto c = world.client();
  CHECK(put(*c, "k", noise(100, 1)) == store_code::ok);

  // Somebody sits at the door of a port that a directory takes later.
  world.lenders.clear();
  world.directory.reset();
  CHECK_FALSE(answers());
  const auto squatter = listen_unix(door, SOCK_STREAM);
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
