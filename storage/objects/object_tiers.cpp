// Objects on SSD: the part of `object_table` that says what lies there, what it gives up, and what becomes of
// it when a lender goes. What is saved, and what is read back, are files beside this one.
//
// Whoever lends an SSD lends memory beside it, and it is between these two that bytes go. An object that lies
// in the memory of several lenders is in parts on their SSDs, each of which is no more than the others. An
// SSD's lender works when it is told (`object_journal`), in the order in which it is told. An object that
// disks work on stays in memory meanwhile. There is one work on an object at a time, of one disk or several.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

std::uint32_t object_table::mount_disk(std::string name, std::string host, std::uint64_t bytes,
                                       std::uint32_t beside, const disk_policy& policy) {
  const auto memory = segments_.find(beside);
  if (memory == segments_.end() || memory->second.ssd || memory->second.disk_beside != 0) return 0;
  for (const auto& [id, s] : segments_)
    if (s.name == name) return 0;
  const auto id = next_segment_++;
  auto& s =
      segments_.emplace(id, segment{std::move(name), std::move(host), offset_allocator{0}}).first->second;
  s.ssd = std::make_unique<disk_state>();
  s.draining = memory->second.draining;
  s.ssd->beside = beside;
  s.ssd->policy = policy;
  s.ssd->bytes = bytes;
  memory->second.disk_beside = id;
  say_lent();
  return id;
}

void object_table::disk_open(std::uint32_t id) { segments_.at(id).ssd->open = true; }

/// Replica by replica.
std::vector<std::span<const object_table::disk_part>> object_table::on_disks(const object& o) {
  std::vector<std::span<const disk_part>> all;
  const std::span<const disk_part> parts{o.disks};
  for (std::size_t i = 0, end = 0; i < parts.size(); i = end) {
    for (end = i; end < parts.size() && parts[end].replica() == parts[i].replica(); ++end) {
    }
    all.push_back(parts.subspan(i, end - i));
  }
  return all;
}

void object_table::put_on_disk(entry& e, std::span<const disk_part> replica) {
  auto& o = e.second;
  if (o.disks.empty()) o.rank = {o.counted, ~order_.depth(o.place), o.version};
  for (const auto& part : replica) {
    auto& s = segments_.at(part.segment);
    charge_disk(*s.ssd, o.owner, part.size, true);
    if (s.used_by.size() <= o.owner) s.used_by.resize(o.owner + 1);
    s.used_by[o.owner] += part.size;
    s.ssd->order[o.owner].insert({o.rank, &e});
    o.disks.push_back(part);
  }
}

/// It is still among those of the object.
void object_table::take_off_disk(entry& e, const disk_part& part) {
  auto& o = e.second;
  auto& s = segments_.at(part.segment);
  s.ssd->order[o.owner].erase({o.rank, &e});
  charge_disk(*s.ssd, o.owner, part.size, false);
  s.used_by[o.owner] -= part.size;
}

/// The replica alone: others stay.
void object_table::drop_from_disk(entry& e, std::uint64_t replica) {
  auto& o = e.second;
  const auto of_it = [&](const disk_part& part) { return part.replica() == replica; };
  for (const auto& part : o.disks) {
    if (!of_it(part)) continue;
    take_off_disk(e, part);
    if (journal_) journal_->erased(part.segment, part.ticket, e.first);
  }
  std::erase_if(o.disks, of_it);
  if (o.disks.empty()) o.transient = false;  // in memory alone
}

void object_table::rank_on_disks(entry& e) {
  auto& o = e.second;
  const disk_rank now{o.counted, std::get<1>(o.rank), o.version};
  for (const auto& part : o.disks) {
    auto& order = segments_.at(part.segment).ssd->order[o.owner];
    order.erase({o.rank, &e});
    order.insert({now, &e});
  }
  o.rank = now;
}

void object_table::charge_disk(disk_state& d, std::uint32_t owner, std::uint64_t bytes, bool more) {
  auto& own = owners_[owner].disk_bytes;
  touch(owner);
  more ? d.used += bytes : d.used -= bytes;
  more ? own += bytes : own -= bytes;
}

// ---- what the disk gives up
// -------------------------------------------------------------------------------------

std::size_t object_table::disk_state::objects() const {
  std::size_t n = 0;
  for (const auto& [owner, all] : order) n += all.size();
  return n;
}

std::vector<object_table::disk_cursor> object_table::on_disk_of(std::uint32_t owner) {
  std::vector<disk_cursor> all;
  for (auto& [id, s] : segments_)
    if (auto* const d = s.ssd.get()) all.push_back({d, d->order[owner].begin(), d->order[owner].end()});
  return all;
}

/// What was used longest ago goes first, whatever of these it is in.
void object_table::give_up_on_disk(std::vector<disk_cursor> from, const std::function<bool()>& enough,
                                   time_point now) {
  while (!enough()) {
    std::erase_if(from, [](const disk_cursor& c) { return c.at == c.end; });
    const auto oldest = std::min_element(
        from.begin(), from.end(), [](const auto& a, const auto& b) { return a.at->first < b.at->first; });
    if (oldest == from.end()) return;
    const auto* const disk = oldest->disk;
    auto& e = *oldest->at->second;
    for (auto& cursor : from)  // parts of it may be in several
      if (cursor.at != cursor.end && cursor.at->second == &e &&
          (&cursor == &*oldest || e.second.disks.size() > 1))
        ++cursor.at;
    const auto& o = e.second;
    const bool last = o.memory.empty() && on_disks(o).size() == 1;
    if (!o.work.empty() || (o.memory.empty() && o.leased) || (last && o.hard)) continue;
    count(o.owner, &object_counts::disk_evictions);
    const auto there = [&](const disk_part& part) { return segments_.at(part.segment).ssd.get() == disk; };
    if (last) erase(e, now, now, true);
    else drop_from_disk(e, std::find_if(o.disks.begin(), o.disks.end(), there)->replica());
  }
}

/// Of all SSDs; what is not seen anyway first.
void object_table::make_way_on_disks(std::uint32_t owner, const std::function<bool()>& enough,
                                     time_point now) {
  if (!enough()) forget_alone_if([&](std::string_view key) { return owner_of(key) == owner && !enough(); });
  if (!enough()) give_up_on_disk(on_disk_of(owner), enough, now);
}

/// Room in what the owner may have of all SSDs, for which its own objects make way, and on this one, for
/// which anybody's do; before all others what is not seen anyway.
bool object_table::make_disk_room(disk_state& d, std::uint32_t owner, std::uint64_t bytes, time_point now) {
  const auto limit = owners_[owner].limit.disk_bytes;
  if (bytes > limit || bytes > d.bytes) return false;
  const quota_use room{0, 0, bytes};
  if (!claim(owner, room)) {
    make_way_on_disks(
        owner, [&] { return use_of_all(owner).disk_bytes <= limit - bytes; }, now);
    if (!claim(owner, room)) return ask_others(owner, room, false, now), false;
  }
  const auto fits = [&] { return d.used <= d.bytes - bytes; };
  while (!fits() && !d.alone.empty()) forget_alone(d.alone.begin()->first);
  if (fits()) return true;
  std::vector<disk_cursor> everybodys;
  for (auto& [whose, order] : d.order) everybodys.push_back({&d, order.begin(), order.end()});
  give_up_on_disk(std::move(everybodys), fits, now);
  return fits();
}

// ---- what they work on
// ------------------------------------------------------------------------------------------

void object_table::disk_done(std::uint32_t id, std::uint64_t ticket, bool good, time_point now) {
  const auto found = disk_work_.find({id, ticket});
  if (found == disk_work_.end() || found->second.ended != disk_work::outcome::none) return;
  auto& work = found->second;
  if (!work.of) {
    for (const auto& part : work.room) give_back(part, now, now);
    disk_work_.erase(found);
    return;
  }
  auto& e = *work.of;
  work.ended = good ? disk_work::outcome::good : disk_work::outcome::bad;
  if (!work.loads) note_writing(*segments_.at(id).ssd, good, now);
  const auto is_good = [&](const disk_part& part) {
    return disk_work_.at({part.segment, part.ticket}).ended == disk_work::outcome::good;
  };
  const bool all = std::all_of(e.second.work.begin(), e.second.work.end(), is_good);
  if (good && !all) return;  // others are still at it
  work.loads ? end_load(e, good, now) : end_save(e, good, now);
}

/// Disks work on it no more, or what they do is for nothing.
void object_table::end_work(entry& e, bool given_up, time_point now) {
  auto& o = e.second;
  for (const auto& part : std::exchange(o.work, {})) {
    const auto found = disk_work_.find({part.segment, part.ticket});
    auto& work = found->second;
    if (work.loads && work.ended == disk_work::outcome::none) {  // its lender may still write there
      work.of = nullptr;
      continue;
    }
    for (const auto& room : work.room) give_back(room, now, now);
    if (!work.loads) {
      auto& d = *segments_.at(part.segment).ssd;
      if (given_up && work.ended != disk_work::outcome::bad && journal_)
        journal_->erased(part.segment, part.ticket, e.first);
      d.under_way -= part.size;
      charge_disk(d, o.owner, part.size, false);
    }
    disk_work_.erase(found);
  }
  set_going(o, 0);
}

/// A segment is going: nothing is saved to it or from it, or loaded into it, any more.
void object_table::forget_disk(std::uint32_t id, time_point now) {
  std::vector<entry*> ended;
  for (auto at = disk_work_.begin(); at != disk_work_.end();) {
    auto& [which, work] = *at;
    if (which.first != id && segments_.at(which.first).ssd->beside != id) {
      ++at;
      continue;
    }
    for (const auto& part : std::exchange(work.room, {})) {  // nobody writes there any more
      untake(part);
      segments_.at(part.segment).space.release(part.extent.handle);
    }
    work.ended = disk_work::outcome::bad;
    if (work.of) ended.push_back(work.of);
    at = work.of ? std::next(at) : disk_work_.erase(at);
  }
  for (auto* const e : ended) {
    end_work(*e, true, now);  // what was said of it by several ends with the first
    offer(*e, now);
  }
}

bool object_table::disks_consistent() const {
  std::uint64_t leaving = 0, alone = 0, at_work = 0;
  std::map<std::uint32_t, std::uint64_t> used, by_owner;
  std::map<std::uint32_t, std::set<const object*>> ranked;
  for (const auto& [which, work] : disk_work_) at_work += work.of != nullptr;
  for (const auto& [key, o] : objects_) {
    if (!o.work.empty() && o.ticket != 0) return false;
    for (const auto& part : o.work) {
      const auto found = disk_work_.find({part.segment, part.ticket});
      if (found == disk_work_.end() || !found->second.of || &found->second.of->second != &o) return false;
      used[part.segment] += found->second.loads ? 0 : part.size;
      by_owner[o.owner] += found->second.loads ? 0 : part.size;
      --at_work;
    }
    leaving += o.going;
    std::map<std::uint32_t, std::uint64_t> replica_on;
    for (const auto replica : on_disks(o)) {
      std::uint64_t next = 0;
      for (const auto& part : replica) {
        if (part.at != std::exchange(next, part.at + part.size)) return false;
        if (replica_on.emplace(part.segment, part.replica()).first->second != part.replica()) return false;
        used[part.segment] += part.size;
        by_owner[o.owner] += part.size;
        ranked[part.segment].insert(&o);
        auto* const e = const_cast<entry*>(&*objects_.find(key));
        const auto& order = segments_.at(part.segment).ssd->order;
        if (order.count(o.owner) == 0 || order.at(o.owner).count({o.rank, e}) == 0) return false;
      }
      if (next != o.size) return false;
    }
    if (o.transient && o.disks.empty()) return false;
  }
  for (const auto& [id, s] : segments_) {
    if (!s.ssd) continue;
    for (const auto& [key, some] : s.ssd->alone)
      for (const auto& one : some) {
        used[id] += one.part.size;
        by_owner[one.owner] += one.part.size;
        ++alone;
      }
    if (s.ssd->used != used[id] || s.ssd->objects() != ranked[id].size() || s.ssd->used > s.ssd->bytes)
      return false;
  }
  for (std::uint32_t i = 0; i < owners_.size(); ++i)
    if (owners_[i].disk_bytes != by_owner[i]) return false;
  return leaving == leaving_bytes_ && alone == alone_ && at_work == 0;
}

}  // namespace mooncaf
