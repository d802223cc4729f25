#include "actors/store/carried_directory.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <thread>

#include "runtime/base/wall_clock.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/directory/disk_notes.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "storage/objects/wire/directory_link.hpp"
#include "tests/storage/objects/secrets.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

bool soon(const std::function<bool()>& holds) {
  for (const auto until = clock_type::now() + 60s; clock_type::now() < until; std::this_thread::yield())
    if (holds()) return true;
  return false;
}

struct seat {
  test::temp_dir folder;
  std::unique_ptr<carried_directory> directory = open();

  std::unique_ptr<carried_directory> open(bool alone = false) const {
    auto chosen = default_options().store;
    chosen.state_folder = folder / "state";
    auto made = carried_directory::open({"127.0.0.1", 0}, key_ring{test::secret}, chosen, alone);
    REQUIRE(made);
    return std::move(*made);
  }
  bool answers() const {
    directory_address to;
    to.at = one_seat("127.0.0.1", directory->at().port);
    to.secret = key_ring{test::secret};
    return directory_link::connect(to).has_value();
  }
  /// It leads under the term, and no more. @returns the number of the store whose SSDs counted meanwhile.
  std::uint64_t reign(std::uint64_t term, std::uint64_t led_before) {
    directory->lead({clock_type::now() + 1h, term, led_before});
    REQUIRE(soon([&] { return directory->serves(); }));
    CHECK(answers());
    directory->lead({{}, term, led_before});
    REQUIRE(soon([&] { return !directory->serves(); }));
    CHECK_FALSE(answers());
    const auto notes = disk_notes::open(folder / "state", 1);
    REQUIRE(notes);
    REQUIRE((*notes)->adopt(5));  // an SSD: from now on there is a folder with a number
    return (*notes)->store();
  }
};

}  // namespace

TEST_CASE(
    "a directory serves while its conductor leads, and after a restart it knows under which term it did") {
  seat s;
  CHECK_FALSE(s.directory->serves());
  CHECK_FALSE(s.answers());
  s.reign(3, 0);
  s.directory = s.open();
  CHECK(s.directory->last().term == 3);
  CHECK(s.directory->last().clock_us != 0);
  CHECK_FALSE(s.directory->serves());
}

TEST_CASE("notes of SSDs count again where no other conductor led since, and only there") {
  seat s;
  const auto first = s.reign(3, 0);
  CHECK(s.reign(3, 0) == first);  // the same term: nobody can have led in between
  CHECK(s.reign(6, 3) == first);
  CHECK(s.reign(12, 10) != first);
}

TEST_CASE("a right that runs out ends the directory, without a word from anybody") {
  seat s;
  s.directory->lead({clock_type::now() + 2s, 3, 0});
  CHECK(soon([&] { return s.directory->serves(); }));
  CHECK(soon([&] { return !s.directory->serves(); }));
}

TEST_CASE("without another conductor the directory serves from the start") {
  seat s;
  s.directory = s.open(true);
  CHECK(s.directory->serves());
  CHECK(s.answers());
}

TEST_CASE("a leader that was cut off for a moment serves again all that segments hold") {
  seat s;
  directory_address to;
  to.at = one_seat("127.0.0.1", s.directory->at().port);
  to.secret = key_ring{test::secret};
  to.own_host = "here";
  // The leader before it had a clock that was ahead, so the wall clock does not tell its directories apart.
  const auto ahead = wall_clock_us() + 60'000'000;
  const auto lead = [&](time_point until) { s.directory->lead({until, 7, 5, ahead}); };
  lead(clock_type::now() + 1h);
  REQUIRE(soon([&] { return s.directory->serves(); }));
  segment_mount_options segment;
  segment.directory = to;
  segment.name = "segment";
  segment.bytes = 1 << 20;
  const auto holder = segment_mount::start(std::move(segment));
  REQUIRE(holder);
  to.time_limit = 20s;
  const std::vector<std::byte> value(1000, std::byte{7});
  const std::span<const std::byte> piece{value};
  const outgoing_object one{"key", {piece}};
  REQUIRE(soon([&] {
    const auto client = store_client::connect({to, 1 << 20});
    return client && (*client)->put({&one, 1}, {}).front() == store_code::ok;
  }));
  for (int lapse = 0; lapse < 3; ++lapse) {
    CAPTURE(lapse);
    lead(clock_type::now());
    REQUIRE(soon([&] { return !s.directory->serves(); }));
    lead(clock_type::now() + 1h);
    REQUIRE(soon([&] { return s.directory->serves(); }));
    const std::string_view key = "key";
    CHECK(soon([&] {
      const auto client = store_client::connect({to, 1 << 20});
      return client && (*client)->exists({&key, 1}).front() == 1;
    }));
  }
}
