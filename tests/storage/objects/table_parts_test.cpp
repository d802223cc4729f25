// The parts of the object table, each alone: what it owns stays right whatever the others do.

#include <doctest/doctest.h>

#include "storage/objects/table/object_books.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

memory_part part_in(std::uint32_t segment, std::uint64_t ticket, std::uint32_t copy, std::uint64_t at,
                    std::uint64_t size) {
  memory_part p;
  p.segment = segment;
  p.ticket = ticket;
  p.copy = copy;
  p.at = at;
  p.size = p.bytes = size;
  return p;
}

constexpr time_point start{1h};

}  // namespace

TEST_CASE("a replica goes with any of its stripes, and no other does") {
  const std::vector<memory_part> memory{part_in(1, 7, 0, 0, 64), part_in(2, 7, 0, 64, 64),
                                        part_in(3, 7, 1, 0, 128)};
  CHECK(are_whole_replicas(memory, 128));
  CHECK(replica_count(memory) == 2);
  const auto left = without_replicas_in(2, memory);
  REQUIRE(left.size() == 1);
  CHECK(left.front().segment == 3);
  CHECK(without_replicas_in(4, memory).size() == 3);
  CHECK_FALSE(are_whole_replicas(std::vector{memory[0], memory[2]}, 128));
}

TEST_CASE("a replica is saved if all of it lies beside SSDs, and stripes in one segment as one part") {
  const std::vector<memory_part> memory{part_in(1, 7, 0, 0, 64), part_in(1, 7, 0, 64, 64),
                                        part_in(2, 7, 0, 128, 10), part_in(3, 7, 1, 0, 138)};
  const auto runs = runs_to_save(memory, [](std::uint32_t s) { return s == 3 ? 0 : s + 10; });
  REQUIRE(runs.size() == 1);
  REQUIRE(runs[0].size() == 2);
  CHECK(runs[0][0].part.segment == 11);
  CHECK(runs[0][0].part.size == 128);
  CHECK(runs[0][1].part.at == 128);
  CHECK(runs[0][1].part.number == 1);
}

TEST_CASE("memory that is given back rests until its time, and counts until then") {
  tenant_quotas quotas{{{"red", {}}}, {}, nullptr};
  segment_space space{quotas, nullptr};
  space.mount(1, "s", "h", 1 * MiB);
  auto part = space.allocate(1, 1000);
  REQUIRE(part);
  part->owner = quotas.number("red");
  CHECK(quotas.use().used_bytes == 0);
  space.take(*part);
  CHECK(quotas.use(1).used_bytes == 1024);
  space.give_back(*part, start + 5s, start);
  CHECK(quotas.use(1).resting_bytes == 1024);
  CHECK(quotas.use(1).replicas == 0);
  space.end_rests(start + 4s);
  CHECK(space.free_bytes(1) == 1 * MiB - 1024);
  space.end_rests(start + 5s);
  CHECK(space.free_bytes(1) == 1 * MiB);
  CHECK(quotas.use() == tenant_use{});
  std::vector<tenant_use> uses(quotas.size());
  CHECK(space.consistent(uses));
}

TEST_CASE("withheld pages are told once, and are nobody's until they are given back") {
  tenant_quotas quotas{{}, {}, nullptr};
  segment_space space{quotas, nullptr};
  space.mount(1, "s", "h", 8 * MiB);
  REQUIRE(space.withhold_run(1, 2 * MiB));
  CHECK(space.withheld_bytes(1) == 2 * MiB);
  CHECK(space.total_bytes() <= 6 * MiB);
  CHECK(space.take_withheld(1).size() == 1);
  CHECK(space.take_withheld(1).empty());
  space.give_back_withheld(1, 0);
  CHECK(space.total_bytes() == 8 * MiB);
  CHECK(space.free_bytes(1) == 8 * MiB);
}

TEST_CASE("leases end in the order in which they were granted, each once") {
  object_protection protection;
  stored_object a, b;
  protection.lease(a, start + 10s);
  protection.lease(b, start + 11s);
  protection.lease(a, start + 12s);  // again: behind the other
  CHECK(protection.consistent());
  CHECK(protection.lease_ended(start + 10s) == nullptr);
  CHECK(protection.lease_ended(start + 12s) == &b);
  CHECK(protection.lease_ended(start + 12s) == &a);
  CHECK(protection.lease_ended(start + 12s) == nullptr);
  CHECK_FALSE(a.protection.leased());
  CHECK(protection.leases() == 0);
}

TEST_CASE("a soft pin ends once, and a time to live until the object is forgotten") {
  object_protection protection;
  stored_object o;
  object_protection::pin(o, false, start + 5s, 7s, start);
  protection.watch(o, start);
  CHECK(protection.soft_pin_ended(start + 4s) == nullptr);
  CHECK(protection.soft_pin_ended(start + 5s) == &o);
  CHECK(protection.soft_pin_ended(start + 5s) == nullptr);
  CHECK(protection.expired(start + 6s) == nullptr);
  CHECK(protection.expired(start + 7s) == &o);
  protection.forget(o);
  CHECK(protection.expired(start + 7s) == nullptr);
}

TEST_CASE("a ticket is its writer's alone, and room without a name ends once") {
  object_writers writers{1};
  stored_object a, b;
  const auto first = writers.begin(a, 5, {});
  const auto second = writers.begin(b, 5, {});
  CHECK(first != second);
  CHECK(writers.find(6, first) == nullptr);
  CHECK(writers.find(5, first) == &a);
  writers.keep_unnamed(a, start);
  writers.keep_unnamed(b, start);
  writers.name(a);
  CHECK(writers.unnamed_ended(start) == &b);
  CHECK(writers.unnamed_ended(start) == nullptr);
  writers.end(b);
  CHECK_FALSE(b.writing.open());
  CHECK(writers.take(5) == std::vector<stored_object*>{&a});
  writers.seen(100);
  CHECK(writers.new_ticket() == 101);
}

TEST_CASE("a quota lets in what fits, and counts what passes by itself apart") {
  tenant_quotas quotas{{{"red", {1000, 2, 500}}}, {}, nullptr};
  const auto red = quotas.number("red");
  CHECK(quotas.number_of(std::string_view{"\0red\0key", 8}) == red);
  CHECK(quotas.claim(red, {1000, 1}));
  quotas.more(red, &tenant_use::used_bytes, 600);
  quotas.more(red, &tenant_use::objects);
  CHECK_FALSE(quotas.claim(red, {401, 1}));
  CHECK(quotas.claim(red, {400, 1}));
  CHECK(quotas.fits(red, {600, 1}, 200, 0));
  quotas.more(red, &tenant_use::used_bytes, 600);
  CHECK(quotas.is_over(red));
  quotas.more(red, &tenant_use::resting_bytes, 300);
  CHECK_FALSE(quotas.is_over(red));
}

TEST_CASE("a save is over when all its parts are, or one will not be") {
  tenant_quotas quotas{{}, {}, nullptr};
  disk_work work{quotas};
  stored_object o;
  work.add_save(o, {1, 10, 0, 64, 0});
  work.add_save(o, {2, 11, 64, 64, 1});
  work.set_going(o, 128);
  CHECK(quotas.use().leaving_bytes == 128);
  CHECK(work.is_saving(0));
  CHECK_FALSE(work.done(3, 10, true));
  CHECK_FALSE(work.done(1, 10, true)->complete);
  CHECK_FALSE(work.done(1, 10, true));
  CHECK(work.done(2, 11, false)->complete);
  const auto parts = work.finish(o);
  REQUIRE(parts.size() == 2);
  CHECK_FALSE(parts[0].bad);
  CHECK(parts[1].bad);
  work.set_going(o, 0);
  CHECK(quotas.use().leaving == 0);
  CHECK(work.all().empty());
}

TEST_CASE("room of a load that is given up is free when its holder has said that it is through") {
  tenant_quotas quotas{{}, {}, nullptr};
  disk_work work{quotas};
  stored_object o;
  const disk_part part{1, 10, 0, 64, 0};
  work.begin_load(o, {&part, 1}, {{part_in(2, 12, 0, 0, 64)}});
  CHECK(work.finish(o).empty());
  CHECK_FALSE(o.work.any());
  const auto said = work.done(1, 10, true);
  REQUIRE(said);
  CHECK(said->of == nullptr);
  CHECK(said->room.size() == 1);
}

TEST_CASE("an object leaves all SSDs that it is on at its place among all") {
  tenant_quotas quotas{{}, {}, nullptr};
  disk_space disks{quotas};
  for (const std::uint32_t id : {1u, 2u}) disks.mount(id, {"d", "h", 1000, id + 10, {}, false});
  stored_object a, b;
  a.version = 1;
  b.version = 2;
  disks.rank_first(a, 0);
  disks.rank_first(b, 1);  // deeper in its chain: it goes first
  a.disks = {{1, 5, 0, 10, 0}, {2, 6, 10, 10, 1}};
  b.disks = {{2, 7, 0, 20, 0}};
  for (const auto& part : a.disks) disks.put(a, part);
  disks.put(b, b.disks.front());
  CHECK(disks.free_bytes(2) == 970);
  CHECK(quotas.use().disk_bytes == 40);
  auto walk = disks.walk_tenant(0);
  CHECK(walk.next()->object == &b);
  CHECK(walk.next()->object == &a);
  CHECK_FALSE(walk.next());
  for (const auto& part : a.disks) disks.take_off(a, part);
  CHECK(disks.free_bytes(1) == 1000);
  CHECK_FALSE(disks.is_ranked(a, 2));
}

TEST_CASE("an SSD that refuses to write is left alone for a while") {
  tenant_quotas quotas{{}, {}, nullptr};
  disk_space disks{quotas};
  disks.mount(1, {"d", "h", 1000, 11, {}, false});
  CHECK_FALSE(disks.may_save(1, 10, start));
  disks.open(1);
  CHECK(disks.may_save(1, 10, start));
  CHECK_FALSE(disks.may_save(1, 1001, start));
  disks.note_writing(1, false, start);
  CHECK_FALSE(disks.may_save(1, 10, start + 999ms));
  CHECK(disks.may_save(1, 10, start + 1s));
  disks.note_writing(1, false, start + 1s);
  CHECK_FALSE(disks.may_save(1, 10, start + 2s));
  disks.note_writing(1, true, start + 2s);
  CHECK(disks.may_save(1, 10, start + 2s));
}
