// What is read back from SSD into memory, and for how long it stays there: a part of `object_table`.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

store_code object_table::load(std::string_view key, time_point now) {
  auto* const e = visible(key, now);
  if (!e) return store_code::not_found;
  auto& o = e->second;
  if (!o.memory.empty()) return store_code::ok;
  if (!o.work.empty()) return store_code::busy;
  if (!o.leased) lease(*e, now);  // what makes room for it on its way is not to be itself
  settle(now);
  bool coming = false;
  for (const auto replica : on_disks(o)) {
    auto rooms = room_to_load(o, replica, coming, now);
    if (rooms.empty()) continue;
    const auto ticket = next_ticket_++;
    for (std::size_t i = 0; i < replica.size(); ++i) {
      for (auto& part : rooms[i]) {
        part.ticket = ticket;
        part.owner = o.owner;
        take(part);
        auto record = record_of(o, part, now);
        record.published = false;  // and nobody's: its lender writes there, and no tenant
        if (journal_) journal_->reserved(part.segment, record);
      }
      const auto& from = replica[i];
      if (journal_) journal_->load(from.segment, from.ticket, places(rooms[i]));
      disk_work_[{from.segment, from.ticket}] = {e, true, std::move(rooms[i])};
    }
    o.work.assign(replica.begin(), replica.end());
    return store_code::busy;
  }
  return coming || leaving_bytes_ > 0 ? store_code::busy : store_code::no_space;
}

/// Within the quota of its tenant: then what makes way is that one's.
/// @param coming  becomes true if there will be room when others are saved.
/// @returns for each part of the replica, or nothing.
std::vector<std::vector<object_table::held>> object_table::room_to_load(const object& o,
                                                                        std::span<const disk_part> replica,
                                                                        bool& coming, time_point now) {
  std::uint64_t bytes = 0;
  for (const auto& part : replica) {
    const auto memory = segments_.find(segments_.at(part.segment).ssd->beside);
    if (memory == segments_.end() || memory->second.usable_bytes() < part.size) return {};
    bytes += offset_allocator::rounded(part.size);
  }
  for (auto made = way::none; made != way::made;) {
    made = make_way(o.owner, bytes, true, false, now);
    coming = coming || made == way::coming || made == way::late;
    if (made != way::made && (coming || !revoke_one({o.owner}, now))) return {};
  }
  std::vector<std::vector<held>> rooms;
  std::size_t stripes = 0;
  for (const auto& part : replica) {
    auto& room = rooms.emplace_back(room_beside(part, coming, now));
    stripes += room.size();
    for (auto& one : room) one.at += part.at;
    if (!room.empty() && stripes <= std::max<std::size_t>(stripes_max, replica.size())) continue;
    for (const auto& some : rooms)
      for (const auto& one : some) segments_.at(one.segment).space.release(one.extent.handle);
    return {};
  }
  return rooms;
}

/// Where the lender of the SSD can write.
std::vector<object_table::held> object_table::room_beside(const disk_part& part, bool& coming,
                                                          time_point now) {
  const auto in = segments_.at(part.segment).ssd->beside;
  auto room = room_in(in, part.size);
  for (auto made = way::made; room.empty() && made != way::none && made != way::late;) {
    made = leaving_bytes_ > part.size ? way::late : evict_one(now, false, {{}, in, true});
    coming = coming || made == way::coming || made == way::late;
    room = room_in(in, part.size);
  }
  while (room.empty() && revoke_one({{}, in}, now)) room = room_in(in, part.size);
  return room;
}

/// In one run, or in stripes.
std::vector<object_table::held> object_table::room_in(std::uint32_t in, std::uint64_t size) {
  if (const auto part = try_segment(in, size)) return {*part};
  return stripe_among(size, {in}, {});  // among one there is no choice by load
}

/// All of it is there, or some of it cannot be read.
void object_table::end_load(entry& e, bool good, time_point now) {
  auto& o = e.second;
  if (!good) {
    count(o.owner, &object_counts::disk_damaged);
    const auto replica = o.work.front().replica();
    end_work(e, true, now);
    drop_from_disk(e, replica);
    if (o.memory.empty() && o.disks.empty()) erase(e, now, now);
    return;
  }
  std::vector<held> room;
  for (const auto& part : std::exchange(o.work, {})) {
    const auto work = disk_work_.extract({part.segment, part.ticket});
    room.insert(room.end(), work.mapped().room.begin(), work.mapped().room.end());
  }
  count(o.owner, &object_counts::loaded);
  count(o.owner, &object_counts::loaded_bytes, o.size);
  o.memory.insert(o.memory.end(), room.begin(), room.end());
  count_alone(o);
  o.transient = true;
  promote(o);
  for (const auto& part : room)
    if (journal_)
      journal_->published(part.segment, record_of(o, part, now), e.first,
                          o.in ? std::string_view{o.in->first} : std::string_view{});
  lease(e, now);
  o.revocable = true;
}

/// What was read from SSD stays in memory once it is used often enough.
void object_table::promote(object& o) {
  const bool due = o.transient && o.hits >= segments_.at(o.disks.front().segment).ssd->policy.promote_hits;
  if (!due) return;
  o.transient = false;
  count(o.owner, &object_counts::promoted);
}

void object_table::hold(std::string_view key, time_point now) {
  auto* const e = visible_and_leased(key, now);
  if (e && !e->second.revocable) use(*e, now);
}

/// Ends the oldest lease that may end before its time.
bool object_table::revoke_one(const from_whom& from, time_point now) {
  constexpr int looked_at_max = 256;
  int looked_at = 0;
  for (auto* e = leased_.oldest; e && looked_at < looked_at_max; e = e->second.newer, ++looked_at) {
    auto& o = e->second;
    const auto fits = [&](const held& part) {
      return (from.in == 0 || part.segment == from.in) && (!from.owner || part.owner == *from.owner);
    };
    if (!o.revocable || !o.work.empty() || o.disks.empty() ||
        std::none_of(o.memory.begin(), o.memory.end(), fits))
      continue;
    unlease(*e);
    o.lease_end = now;
    leave_memory(*e, now);
    return true;
  }
  return false;
}

}  // namespace mooncaf
