// The table against a model that knows no segments, lists or tickets: only what must be true of any object
// store.

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "runtime/base/units.hpp"
#include "storage/objects/table/object_table.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

struct model_object {
  std::uint64_t size = 0, checksum = 0;
  std::vector<replica_place> places;
  time_point lease_end{};
  bool hard = false;
  std::string group;
};

struct writing {
  std::uint64_t session, ticket, size;
  std::string key;
  std::vector<replica_place> places;
  bool hard;
  std::string group;
  bool moves, keeps;
  std::uint32_t leaving;  ///< segment; zero: none
};

struct contest {
  explicit contest(unsigned seed) : random(seed), table(options(seed)) {}
  static object_table_options options(unsigned seed) {
    object_table_options o;
    o.lease = std::chrono::seconds(10);
    o.seed = seed;
    return o;
  }

  std::mt19937_64 random;
  object_table table;
  time_point now{1h};
  std::map<std::string, model_object> there;  // a superset: eviction takes away, nothing adds
  std::vector<writing> open;
  std::vector<std::pair<time_point, writing>> rooms;  // for what has no key yet, and when they end
  std::map<std::uint32_t, std::uint64_t> segments;
  std::map<std::uint32_t, std::vector<withheld_run>> withheld;  ///< by segment: where no object may lie
  std::uint64_t withheld_most = 0;
  int names = 0, striped = 0, named = 0;

  std::string key() { return "key-" + std::to_string(random() % 60); }

  void mount() {
    const auto bytes = 64 * KiB * (100 + random() % 2000);
    const auto id = table.mount("s" + std::to_string(names++), "h" + std::to_string(random() % 2), bytes);
    REQUIRE(id != 0);
    REQUIRE(segments.emplace(id, bytes).second);
  }

  /// Every replica has all bytes, inside of segments that no other replica has a part in.
  void check_shape(const std::vector<replica_place>& places, std::uint64_t size) {
    std::map<std::uint32_t, std::size_t> owner;
    std::size_t parts = 0;
    const auto replicas = replicas_of(places, size);
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      parts += replicas[i].size();
      striped += replicas[i].size() > 1;
      for (const auto& p : replicas[i]) {
        REQUIRE(p.bytes > 0);
        REQUIRE(p.offset + p.bytes <= segments.at(p.segment));
        REQUIRE(owner.emplace(p.segment, i).first->second == i);
      }
    }
    REQUIRE(parts == places.size());
  }

  /// A replica goes with any of its stripes.
  static void lose(std::vector<replica_place>& places, std::uint64_t size, std::uint32_t segment) {
    std::vector<replica_place> left;
    for (const auto replica : replicas_of(places, size))
      if (std::none_of(replica.begin(), replica.end(), [&](const auto& p) { return p.segment == segment; }))
        left.insert(left.end(), replica.begin(), replica.end());
    places = std::move(left);
  }

  void unmount() {
    if (segments.empty()) return mount();
    auto gone = segments.begin();
    std::advance(gone, static_cast<std::ptrdiff_t>(random() % segments.size()));
    const auto id = gone->first;
    segments.erase(gone);
    withheld.erase(id);
    table.unmount(id, now);
    for (auto& w : open) lose(w.places, w.size, id);
    std::erase_if(open, [&](const writing& w) { return w.places.empty(); });
    for (auto& [until, w] : rooms) lose(w.places, w.size, id);
    std::erase_if(rooms, [&](const auto& room) { return room.second.places.empty(); });
    for (auto at = there.begin(); at != there.end();) {
      lose(at->second.places, at->second.size, id);
      const bool is = table.look(at->first, now).code == store_code::ok;
      // An object leaves with its last whole replica and not before, but for what makes way.
      if (at->second.places.empty()) REQUIRE_FALSE(is);
      at = at->second.places.empty() ? there.erase(at) : std::next(at);
    }
  }

  void reserve() {
    put_policy policy;
    policy.replicas = 1 + static_cast<std::uint32_t>(random() % 3);
    policy.hard_pin = random() % 20 == 0;
    policy.soft_pin = random() % 5 == 0;
    policy.replace = random() % 3 == 0;
    policy.move = random() % 6 == 0;
    if (policy.move && random() % 2 == 0) policy.replicas = 0;
    policy.keep = policy.move && random() % 2 == 0;
    if (policy.keep && random() % 2 == 0)
      policy.leaving = table.segments().empty() ? "" : table.segments().front().name;
    const auto group = random() % 3 == 0 ? "group-" + std::to_string(random() % 4) : std::string{};
    const auto session = 1 + random() % 4;
    const auto k = key();
    auto size = 1 + random() % (random() % 20 == 0 ? 300 * MiB : 20 * MiB);  // some wider than a segment
    const bool there_now = table.look(k, now).code == store_code::ok;
    const bool known = (there_now && !policy.replace && !policy.move) ||
                       std::any_of(open.begin(), open.end(), [&](const writing& w) { return w.key == k; });
    const auto views = table.segments();
    const auto left =
        std::find_if(views.begin(), views.end(), [&](const auto& s) { return s.name == policy.leaving; });
    const auto leaving = left == views.end() ? 0 : left->id;
    const auto got = table.reserve(session, k, size, policy, {}, now, {group});
    REQUIRE((got.code == store_code::already_exists) == known);
    REQUIRE((got.code == store_code::not_found) == (policy.move && !known && !there_now));
    if (got.code != store_code::ok) return;
    REQUIRE(got.places.size() >= 1);
    if (policy.move) size = there.at(k).size;
    const auto replicas = replicas_of(got.places, size).size();
    REQUIRE(replicas <=
            (policy.replicas == 0 ? replicas_of(there.at(k).places, size).size() : policy.replicas));
    check_shape(got.places, size);
    if (!there_now) there.erase(k);
    open.push_back({session, got.ticket, size, k, got.places, policy.hard_pin, group, policy.move,
                    policy.keep, leaving});
  }

  void reserve_ahead() {
    put_policy policy;
    policy.replicas = 1 + static_cast<std::uint32_t>(random() % 3);
    policy.hard_pin = random() % 20 == 0;
    const auto session = 1 + random() % 4, size = 1 + random() % (1 * MiB);
    const auto got = table.reserve_ahead(session, size, policy, {}, now);
    if (got.code != store_code::ok) return;
    check_shape(got.places, size);
    rooms.push_back({now + object_table_options{}.ahead_for,
                     {session, got.ticket, size, {}, got.places, policy.hard_pin, {}, false, false, 0}});
  }

  void name() {
    if (rooms.empty()) return;
    const auto i = rooms.begin() + static_cast<std::ptrdiff_t>(random() % rooms.size());
    auto w = i->second;
    w.key = key();
    const auto code = table.name(w.session, w.ticket, w.key, now);
    const bool known = table.look(w.key, now).code == store_code::ok ||
                       std::any_of(open.begin(), open.end(), [&](const auto& o) { return o.key == w.key; });
    const auto views = table.segments();
    const bool drained = std::any_of(views.begin(), views.end(), [&](const auto& s) {
      return s.draining &&
             std::any_of(w.places.begin(), w.places.end(), [&](const auto& p) { return p.segment == s.id; });
    });
    REQUIRE(code == (known ? store_code::already_exists : drained ? store_code::not_found : store_code::ok));
    if (code != store_code::ok) return;
    ++named;
    rooms.erase(i);
    there.erase(w.key);
    open.push_back(w);
  }

  void end_one() {
    if (open.empty()) return;
    const auto i = random() % open.size();
    const auto w = open[i];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
    if (random() % 4 == 0) {
      REQUIRE(table.revoke(w.session, w.ticket, now) == store_code::ok);
      return;
    }
    const auto sum = random();
    if (w.moves) return end_move(w, sum);
    const bool stays_in = w.group.empty() && table.look(w.key, now).code == store_code::ok;
    const auto group = stays_in ? there.at(w.key).group : w.group;
    REQUIRE(table.publish(w.session, w.ticket, sum, now) == store_code::ok);
    there[w.key] = {w.size, sum, w.places, {}, w.hard, group};
  }

  /// It is what it was, in other places; or it is gone, or was copied wrongly, and nothing has changed.
  void end_move(const writing& w, std::uint64_t wrong) {
    const bool is_there = table.look(w.key, now).code == store_code::ok;
    const bool right = is_there && random() % 8 != 0;
    const auto code = table.publish(w.session, w.ticket, right ? there.at(w.key).checksum : wrong, now);
    REQUIRE(code == (right ? store_code::ok : store_code::not_found));
    if (!right) return;
    auto& o = there.at(w.key);
    auto stays = w.keeps ? o.places : std::vector<replica_place>{};
    lose(stays, o.size, w.leaving);
    stays.insert(stays.end(), w.places.begin(), w.places.end());
    check_shape(stays, o.size);
    o.places = std::move(stays);
    if (!w.keeps) o.lease_end = {};
    else if (o.lease_end > now) o.lease_end = now + 10s;  // who reads it is protected anew
  }

  /// A holder takes some of a segment for something else, after giving back what it had taken before.
  void withhold() {
    if (segments.empty()) return;
    auto which = segments.begin();
    std::advance(which, static_cast<std::ptrdiff_t>(random() % segments.size()));
    const auto [id, bytes] = *which;
    REQUIRE(table.withhold(id, 0, now)->withheld_bytes == 0);
    REQUIRE(table.take_withheld(id).empty());
    withheld.erase(id);
    const auto wanted = random() % 2 * (random() % bytes / (4 * KiB) * (4 * KiB));
    std::uint64_t before = 0;
    for (int asked = 0; asked < 3; ++asked) {  // once more is no harm
      const auto stands = table.withhold(id, wanted, now);
      REQUIRE(stands);
      REQUIRE(stands->withheld_bytes >= before);
      before = stands->withheld_bytes;
      for (const auto& run : table.take_withheld(id)) {
        REQUIRE(run.offset % (4 * KiB) == 0);
        REQUIRE(run.bytes % (4 * KiB) == 0);
        REQUIRE(run.offset + run.bytes <= bytes);
        withheld[id].push_back(run);
      }
      std::uint64_t told = 0;
      for (const auto& run : withheld[id]) told += run.bytes;
      REQUIRE(told == stands->withheld_bytes);
      REQUIRE(stands->bytes + told <= bytes);
    }
    withheld_most = std::max(withheld_most, before);
    for (const auto& [k, o] : there)
      if (o.hard || o.lease_end > now) REQUIRE(table.look(k, now).code == store_code::ok);
  }

  void find() {
    const auto k = key();
    const auto seen = table.find(k, now);
    const auto known = there.find(k);
    if (seen.code != store_code::ok) {
      // Gone is fine (evicted), unless a lease or a hard pin protects it.
      if (known != there.end()) {
        REQUIRE(known->second.lease_end <= now);
        REQUIRE_FALSE(known->second.hard);
        there.erase(known);
      }
      return;
    }
    REQUIRE(known != there.end());
    REQUIRE(seen.size == known->second.size);
    REQUIRE(seen.checksum == known->second.checksum);
    REQUIRE(seen.places == known->second.places);
    for (auto& [other, o] : there)
      if (other == k || (!o.group.empty() && o.group == known->second.group &&
                         table.look(other, now).code == store_code::ok))
        o.lease_end = now + 10s;
  }

  void remove() {
    const auto k = key();
    const bool force = random() % 3 == 0;
    const bool known = table.look(k, now).code == store_code::ok;
    const auto m = there.find(k);
    const bool kept = known && !force && (m->second.lease_end > now || m->second.hard);
    const auto code = table.remove(k, force, now);
    if (kept) REQUIRE(code == store_code::has_lease);
    if (known && !kept) REQUIRE(code == store_code::ok);
    if (code == store_code::ok) there.erase(k);
  }

  void leave() {
    const auto session = 1 + random() % 4;
    table.end_session(session, now);
    std::erase_if(open, [&](const writing& w) { return w.session == session; });
    std::erase_if(rooms, [&](const auto& room) { return room.second.session == session; });
  }

  /// No two objects that anybody may read or write share a byte.
  void check_apart() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> taken;
    const auto take = [&](const replica_place& p) {
      const auto [at, fresh] = taken.emplace(std::pair{p.segment, p.offset}, p.bytes);
      REQUIRE(fresh);
      const auto next = std::next(at);
      if (next != taken.end() && next->first.first == p.segment)
        REQUIRE(p.offset + p.bytes <= next->first.second);
      if (at != taken.begin() && std::prev(at)->first.first == p.segment)
        REQUIRE(std::prev(at)->first.second + std::prev(at)->second <= p.offset);
    };
    for (const auto& [id, runs] : withheld)
      for (const auto& run : runs) take({id, run.offset, run.bytes});
    for (const auto& w : open)
      for (const auto& p : w.places) take(p);
    for (const auto& [until, w] : rooms)
      for (const auto& p : w.places) take(p);
    for (const auto& [k, o] : there)
      if (table.look(k, now).code == store_code::ok)
        for (const auto& p : o.places) take(p);
  }

  void step() {
    switch (random() % 20) {
      case 0:
        now += std::chrono::milliseconds(random() % 4000);
        std::erase_if(rooms, [&](const auto& room) { return room.first <= now; });
        return table.tick(now);
      case 1:
        if (random() % 4 == 0)
          table.drain("s" + std::to_string(random() % static_cast<unsigned>(names)), random() % 2 == 0);
        return random() % 8 == 0 ? unmount() : random() % 4 == 0 && segments.size() < 5 ? mount() : leave();
      case 2:
      case 3:
        return remove();
      case 4:
      case 5:
      case 6:
        return find();
      case 7:
      case 8:
      case 9:
      case 10:
        return end_one();
      case 16:
      case 17:
        return reserve_ahead();
      case 18:
        return name();
      case 19:
        return random() % 3 == 0 ? withhold() : reserve();
      default:
        return reserve();
    }
  }
};

}  // namespace

TEST_CASE("whatever is done in whatever order, a published object is whole and alone in its place, or gone") {
  int striped = 0, named = 0, withheld = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    contest c{seed};
    for (int i = 0; i < 3; ++i) c.mount();
    for (int i = 0; i < 1500; ++i) {
      CAPTURE(i);
      c.step();
      if (i % 50 == 0) {
        REQUIRE(c.table.consistent());
        c.check_apart();
      }
    }
    // After everybody has left and all is removed, no byte is held.
    for (std::uint64_t session = 1; session <= 4; ++session) c.table.end_session(session, c.now);
    c.table.remove_if([](std::string_view) { return true; }, true, c.now);
    c.table.tick(c.now + 10s);
    const auto end = c.table.counts();
    REQUIRE(c.table.consistent());
    CHECK(end.objects == 0);
    CHECK(end.free_bytes == end.total_bytes);
    std::uint64_t all = 0;
    for (const auto& [id, bytes] : c.segments) {
      REQUIRE(c.table.withhold(id, 0, c.now));
      all += bytes;
    }
    CHECK(c.table.counts().free_bytes == all);
    withheld += c.withheld_most > 0;
    striped += c.striped;
    named += c.named;
  }
  CHECK(striped > 100);
  CHECK(named > 100);
  CHECK(withheld > 50);
}
