#include "storage/objects/table/object_reading.hpp"

#include <algorithm>
#include <utility>

#include "storage/objects/table/object_books.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/object_saving.hpp"

namespace mooncaf {

object_reading::object_reading(object_books& books, object_life& life, object_saving& saving,
                               room_maker& rooms)
    : b_(books), life_(life), saving_(saving), rooms_(rooms) {}

// ---- looking ----------------------------------------------------------------------------------------------

stored_object* object_reading::visible(std::string_view key, time_point now) {
  for (;;) {
    auto* const o = b_.index.find(key);
    if (!o || !o->published()) return nullptr;
    if (o->protection.expired(now)) {
      b_.quotas.count(o->owner, &object_counts::expired);
      life_.erase(*o, object_life::protected_until(*o), now);
      return nullptr;
    }
    if (!o->group.any() || !rooms_.follow_group(*o, now)) return o;
    // Following its group may have removed the object, so it is looked up again.
  }
}

stored_object* object_reading::leased_in_all_shards(std::string_view key, time_point now) {
  for (;;) {
    auto* const o = visible(key, now);
    if (!o || !o->group.any() || b_.groups.lease(*o, now + b_.options.lease)) return o;
  }
}

void object_reading::use(stored_object& o, time_point now) {
  life_.lease(o, now);
  const bool counts = b_.order.use(o, now);
  life_.use(o, counts);
  if (counts) saving_.save_by_policy(o, now);
  if (!o.group.any() || !object_groups::first_use_at(o, now)) return;
  for (auto* const member : object_groups::with(o)) {
    if (member == &o || !member->published()) continue;
    life_.lease(*member, now);
    b_.order.use_beside(*member);
  }
}

stored_object* object_reading::used(std::string_view key, time_point now) {
  auto* const o = leased_in_all_shards(key, now);
  if (o) use(*o, now);
  return o;
}

stored_object* object_reading::read(std::string_view key, time_point now) {
  auto* const o = leased_in_all_shards(key, now);
  if (!o) {
    b_.quotas.count(b_.quotas.number_of(key), &object_counts::misses);
    return nullptr;
  }
  b_.quotas.count(o->owner, &object_counts::hits);
  if (o->memory.empty()) b_.quotas.count(o->owner, &object_counts::disk_hits);
  use(*o, now);
  const auto for_readers = static_cast<double>(b_.space.total_bytes()) * b_.options.hot_share;
  b_.warmth.read(*o, for_readers - static_cast<double>(b_.space.bytes_for_readers()), now);
  const auto replicas = std::max<std::size_t>(replica_count(o->memory), 1);
  for (const auto& part : o->memory) b_.space.note_traffic(part.segment, part.size / replicas);
  return o;
}

void object_reading::hold(std::string_view key, time_point now) {
  auto* const o = leased_in_all_shards(key, now);
  if (o && !o->stay.revocable()) use(*o, now);
}

// ---- from SSD ---------------------------------------------------------------------------------------------

// Room is made for all parts before any is read, so that two loads cannot each hold half of their room.
store_code object_reading::load(std::string_view key, time_point now) {
  auto* const o = visible(key, now);
  if (!o) return store_code::not_found;
  if (!o->memory.empty()) return store_code::ok;
  if (o->work.any()) return store_code::busy;
  if (!o->protection.leased())
    life_.lease(*o, now);  // so that making room for the load does not evict the
                           // object itself
  life_.settle(now);
  bool coming = false;
  for (const auto replica : replicas_on_disks(o->disks)) {
    auto rooms = room_to_load(*o, replica, coming, now);
    if (rooms.empty()) continue;
    const auto ticket = b_.writers.new_ticket();
    for (std::size_t i = 0; i < replica.size(); ++i) {
      for (auto& part : rooms[i]) {
        part.ticket = ticket;
        part.owner = o->owner;
        b_.space.take(part);
        auto record = life_.record_of(*o, part, now);
        record.published = false;  // no tenant's, since the holder writes there
        if (b_.journal) b_.journal->reserved(part.segment, record);
      }
      const auto& from = replica[i];
      if (b_.journal) b_.journal->load(from.segment, from.ticket, places_of(rooms[i]));
    }
    b_.work.begin_load(*o, replica, std::move(rooms));
    return store_code::busy;
  }
  return coming || b_.quotas.use().leaving_bytes > 0 ? store_code::busy : store_code::no_space;
}

/// Within the quota of its tenant: then only that tenant's objects make way.
/// @param coming  becomes true if there will be room when others are saved.
/// @returns for each part of the replica, or nothing.
std::vector<std::vector<memory_part>> object_reading::room_to_load(const stored_object& o,
                                                                   std::span<const disk_part> replica,
                                                                   bool& coming, time_point now) {
  std::uint64_t bytes = 0;
  for (const auto& part : replica) {
    if (b_.space.usable_bytes(b_.disks.at(part.segment).beside) < part.size) return {};
    bytes += offset_allocator::rounded(part.size);
  }
  for (auto made = way::none; made != way::made;) {
    made = rooms_.make_way(o.owner, bytes, true, false, now);
    coming = coming || made == way::coming || made == way::late;
    if (made != way::made && (coming || !revoke_one({o.owner}, now))) return {};
  }
  std::vector<std::vector<memory_part>> rooms;
  std::size_t stripes = 0;
  for (const auto& part : replica) {
    auto& room = rooms.emplace_back(room_beside(part, coming, now));
    stripes += room.size();
    for (auto& one : room) one.at += part.at;
    if (!room.empty() && stripes <= std::max<std::size_t>(segment_placement::stripes_max, replica.size()))
      continue;
    for (const auto& some : rooms)
      for (const auto& one : some) b_.space.release(one);
    return {};
  }
  return rooms;
}

/// Memory into which the holder of the SSD can read the part.
std::vector<memory_part> object_reading::room_beside(const disk_part& part, bool& coming, time_point now) {
  const auto in = b_.disks.at(part.segment).beside;
  auto room = b_.placing.place_in(in, part.size);
  for (auto made = way::made; room.empty() && made != way::none && made != way::late;) {
    const bool enough = b_.quotas.use().leaving_bytes > part.size;
    made = enough ? way::late : rooms_.evict_one(now, false, {{}, in, true});
    coming = coming || made == way::coming || made == way::late;
    room = b_.placing.place_in(in, part.size);
  }
  while (room.empty() && revoke_one({{}, in}, now)) room = b_.placing.place_in(in, part.size);
  return room;
}

void object_reading::end_load(stored_object& o, bool good, time_point now) {
  if (!good) {
    b_.quotas.count(o.owner, &object_counts::disk_damaged);
    const auto replica = o.work.parts().front().replica();
    life_.end_work(o, true, now);
    life_.drop_from_disk(o, replica);
    if (o.memory.empty() && o.disks.empty()) life_.erase(o, now, now);
    return;
  }
  std::vector<memory_part> room;
  for (const auto& part : b_.work.finish(o)) room.insert(room.end(), part.room.begin(), part.room.end());
  b_.quotas.count(o.owner, &object_counts::loaded);
  b_.quotas.count(o.owner, &object_counts::loaded_bytes, o.size);
  life_.came_from_disk(o, room, now);
}

/// Ends the oldest lease that may end before its time.
bool object_reading::revoke_one(const victim_wish& from, time_point now) {
  constexpr int looked_at_max = 256;
  int looked_at = 0;
  for (auto* o = b_.protection.oldest_lease(); o && looked_at < looked_at_max;
       o = object_protection::next_lease(*o), ++looked_at) {
    const auto fits = [&](const memory_part& part) {
      return (from.in == 0 || part.segment == from.in) && (!from.owner || part.owner == *from.owner);
    };
    if (!o->stay.revocable() || o->work.any() || o->disks.empty() ||
        std::none_of(o->memory.begin(), o->memory.end(), fits))
      continue;
    life_.end_lease(*o, now);
    life_.leave_memory(*o, now);
    return true;
  }
  return false;
}

}  // namespace mooncaf
