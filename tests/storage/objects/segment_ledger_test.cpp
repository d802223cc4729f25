#include "storage/objects/segment/segment_ledger.hpp"

#include <doctest/doctest.h>

#include <map>

using namespace mooncaf;
using namespace std::chrono_literals;
using store_wire::entry;

namespace {

const time_point ledger_now{1h};

struct frame_of_entries {
  std::vector<std::byte> bytes{std::byte{0}};
  byte_writer out{bytes};
  std::map<std::uint64_t, std::uint64_t> offsets;  ///< of tickets
  frame_of_entries& begin(entry kind, std::uint32_t segment = 7) {
    out.put(static_cast<std::uint8_t>(kind));
    out.put(segment);
    return *this;
  }
  frame_of_entries& reserved(std::uint64_t ticket, std::uint64_t offset, std::uint64_t size) {
    begin(entry::reserved);
    for (const auto n : {ticket, offset, size}) out.put(n);
    out.put_text({});
    offsets[ticket] = offset;
    return *this;
  }
  frame_of_entries& published(std::uint64_t ticket, std::string_view key, duration soft = {},
                              duration ttl = {}) {
    begin(entry::published);
    out.put(ticket);
    out.put(offsets[ticket]);
    segment_record r;
    r.checksum = ticket * 10;
    r.soft_pin_for = soft;
    r.ttl = ttl;
    store_wire::put_published(out, r, key, key == "a" ? "group of a" : "");
    return *this;
  }
  frame_of_entries& freed(std::uint64_t ticket, duration rests) {
    begin(entry::freed);
    out.put(ticket);
    out.put(offsets[ticket]);
    out.put(static_cast<std::int64_t>(rests.count()));
    return *this;
  }
};

segment_ledger ledger() {
  segment_ledger l;
  l.begin(7);
  return l;
}

std::vector<segment_record> announced(segment_ledger& l, time_point at = ledger_now) {
  std::vector<segment_record> all;
  for (const auto& part : l.announcement(at)) {
    byte_reader in{part};
    CHECK(in.get<std::uint32_t>() == 7);
    in.get<std::uint8_t>();
    for (auto n = in.get<std::uint32_t>(); n > 0; --n) all.push_back(store_wire::get_record(in));
    CHECK(in.ok());
    CHECK(in.left() == 0);
  }
  return all;
}

}  // namespace

TEST_CASE(
    "what is announced is what is published or in doubt, in the order of places, with what is left of its "
    "time") {
  auto l = ledger();
  frame_of_entries f;
  f.reserved(1, 640, 100)
      .reserved(2, 0, 50)
      .reserved(3, 128, 60)
      .published(1, "a", 30s, 60s)
      .published(2, "b");
  const auto taken = l.apply(f.bytes, ledger_now);
  CHECK(taken.understood);
  CHECK_FALSE(taken.acknowledge);
  CHECK(l.objects() == 2);
  const auto all = announced(l, ledger_now + 20s);
  REQUIRE(all.size() == 3);
  CHECK(all[0].key == "b");
  CHECK(all[0].checksum == 20);
  CHECK(all[0].ttl == duration{});
  CHECK_FALSE(all[1].published);
  CHECK(all[1].offset == 128);
  CHECK(all[2].key == "a");
  CHECK(all[2].group == "group of a");
  CHECK(all[2].size == 100);
  CHECK(all[2].soft_pin_for == 10s);
  CHECK(all[2].ttl == 40s);
}

TEST_CASE("what was freed is in doubt as long as it rests, or until its place is given to another") {
  auto l = ledger();
  frame_of_entries f;
  f.reserved(1, 0, 100).published(1, "a").reserved(2, 128, 64).published(2, "b").reserved(3, 256, 64);
  f.freed(1, 10s).freed(2, 10s).freed(3, 0s);
  REQUIRE(l.apply(f.bytes, ledger_now).understood);
  CHECK(l.objects() == 0);
  CHECK(announced(l).size() == 2);
  frame_of_entries again;
  again.reserved(4, 64, 128).published(4, "c");
  REQUIRE(l.apply(again.bytes, ledger_now + 1s).understood);
  const auto all = announced(l);
  REQUIRE(all.size() == 1);
  CHECK(all[0].key == "c");
  frame_of_entries free;
  free.offsets = again.offsets;
  free.freed(4, 1s);
  REQUIRE(l.apply(free.bytes, ledger_now + 2s).understood);
  CHECK(announced(l).size() == 1);
  REQUIRE(l.apply(frame_of_entries{}.bytes, ledger_now + 3s).understood);
  CHECK(announced(l).empty());
}

TEST_CASE(
    "what somebody waits for has filler before it, of any length that is there, and is acknowledged or not") {
  auto l = ledger();
  frame_of_entries f;
  f.bytes = {std::byte{1}};
  f.out.put_text(std::string(3000, '\0'));
  f.reserved(1, 0, 100).published(1, "a");
  const auto taken = l.apply(f.bytes, ledger_now);
  CHECK(taken.understood);
  CHECK(taken.acknowledge);
  CHECK(l.objects() == 1);

  frame_of_entries for_a_reader;
  for_a_reader.bytes = {std::byte{2}};
  for_a_reader.out.put_text(std::string(3000, '\0'));
  for_a_reader.reserved(3, 400, 100);
  const auto heard = l.apply(for_a_reader.bytes, ledger_now);
  CHECK(heard.understood);
  CHECK_FALSE(heard.acknowledge);
  frame_of_entries unknown;
  unknown.bytes = {std::byte{3}};
  CHECK_FALSE(l.apply(unknown.bytes, ledger_now).understood);

  frame_of_entries cut;
  cut.bytes = {std::byte{1}};
  cut.out.put(std::uint32_t{3000});
  cut.reserved(2, 200, 100);
  CHECK_FALSE(l.apply(cut.bytes, ledger_now).understood);
}

TEST_CASE("the holder learns who belongs to the store, and when it does so itself no more") {
  auto l = ledger();
  frame_of_entries f;
  f.begin(entry::joined, 7).begin(entry::joined, 8).begin(entry::joined, 9).begin(entry::fenced, 8);
  f.begin(entry::serving).out.put(std::uint64_t{55});
  const auto taken = l.apply(f.bytes, ledger_now);
  CHECK(taken.understood);
  CHECK_FALSE(taken.acknowledge);
  CHECK_FALSE(taken.fenced);
  CHECK(l.former().members == std::vector<std::uint32_t>{7, 9});
  CHECK(l.former().fenced == std::vector<std::uint32_t>{8});
  CHECK(l.former().served_by == 55);
  CHECK(l.apply(frame_of_entries{}.begin(entry::fenced).bytes, ledger_now).fenced);
}

TEST_CASE("an announcement of any length goes in parts that one frame can hold") {
  auto l = ledger();
  for (std::uint64_t i = 0; i < 40; ++i) {
    frame_of_entries f;
    f.reserved(i + 1, i * 64, 64).published(i + 1, std::string(60'000, 'k'));
    REQUIRE(l.apply(f.bytes, ledger_now).understood);
  }
  const auto parts = l.announcement(ledger_now);
  CHECK(parts.size() == 3);
  for (const auto& p : parts) CHECK(p.size() < 2 * MiB);
  CHECK(announced(l).size() == 40);
}

TEST_CASE("a frame that fits nothing is not understood") {
  auto l = ledger();
  CHECK_FALSE(l.apply({}, ledger_now).understood);
  CHECK_FALSE(l.apply(frame_of_entries{}.begin(static_cast<entry>(99)).bytes, ledger_now).understood);
  CHECK_FALSE(l.apply(frame_of_entries{}.begin(entry::reserved, 8).bytes, ledger_now).understood);
  auto cut = frame_of_entries{}.reserved(1, 0, 64).bytes;
  cut.pop_back();
  CHECK_FALSE(l.apply(cut, ledger_now).understood);
  CHECK(announced(l).empty());
}

TEST_CASE("the SSD beside heard of everything only if it was announced to each directory that served") {
  segment_ledger l;
  const auto serve = [&](std::uint64_t by) {
    frame_of_entries f;
    f.begin(entry::serving).out.put(by);
    CHECK(l.apply(f.bytes, ledger_now).understood);
    return l.former().disk;
  };
  l.begin(7);
  l.disk_announced(5);
  CHECK(serve(1) == 5);
  l.begin(7);
  CHECK(l.former().disk == 5);  // as the last that served would say
  l.disk_announced(5);
  CHECK(serve(2) == 5);
  l.begin(7);
  l.begin_disk(8);
  CHECK(serve(3) == 0);
  l.disk_announced(5);
  CHECK(l.former().disk == 5);
}
