// Objects on SSD: the part of `object_table` that says what is saved there, what leaves memory for it, what
// comes back, and what the SSD itself gives up.
//
// Whoever lends an SSD lends memory beside it, and it is between these two that bytes go. The SSD's lender
// does it when it is told (`object_journal`), in the order in which it is told. An object that the disk works
// on stays in memory meanwhile. Of a lender there is one work on an object at a time.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// Bytes that one SSD has been told to save and has not saved yet: more would only wait there. And at most
/// this part of the memory beside it, since what is being saved makes way for nobody before it is.
constexpr std::uint64_t saving_max = 256 * MiB, saving_part = 4;
/// A disk that refuses writes is left alone for so long, doubled each time.
constexpr duration first_pause = std::chrono::seconds(1), longest_pause = std::chrono::seconds(60);
}  // namespace

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
  return id;
}

void object_table::disk_open(std::uint32_t id) { segments_.at(id).ssd->open = true; }

bool object_table::recover_on_disk(std::uint32_t id, segment_record&& r, bool stale, time_point now) {
  auto& d = *segments_.at(id).ssd;
  seen_.disk_stale += stale;
  const auto bytes_of = [](std::string_view name) { return split_name(name).key.size(); };
  if (stale || !r.published || r.size == 0 || r.size != r.object_size || bytes_of(r.key) == 0 ||
      bytes_of(r.key) > key_bytes_max || bytes_of(r.group) > key_bytes_max || r.size > d.bytes - d.used ||
      r.ttl.count() < 0)
    return false;
  next_ticket_ = std::max({next_ticket_, r.ticket + 1, r.version + 1});
  auto [at, fresh] = objects_.try_emplace(std::move(r.key));
  auto& o = at->second;
  const auto here = [&](const disk_part& part) { return part.segment == id; };
  if (!fresh && (o.ticket != 0 || o.version != r.version || o.size != r.size || o.checksum != r.checksum ||
                 std::any_of(o.disks.begin(), o.disks.end(), here)))
    return false;
  ++seen_.disk_recovered;
  if (fresh) {
    o.owner = owner(split_name(at->first).tenant);
    o.size = r.size;
    o.checksum = r.checksum;
    o.version = r.version;
    o.hard = r.hard_pin;
    o.lease_end = now;
    o.soft_end = now + std::clamp(r.soft_pin_for, duration{}, options_.soft_pin_max);
    if (r.ttl.count() > 0 && r.ttl < time_point::max() - now) o.ttl_end = now + r.ttl;
    if (!r.group.empty()) join(*at, r.group);
    o.place = order_.add(text_hash{}(at->first), static_cast<double>(r.worth), r.depth, o.owner);
    o.parent = r.parent;
    if (placed_.size() <= o.place) placed_.resize(o.place + 1);
    placed_[o.place] = &*at;
    to_link_ = to_link_ || r.parent != 0;
  }
  put_on_disk(*at, {id, r.ticket});
  if (fresh) show(*at, now);
  return true;
}

// ---- out of memory
// ----------------------------------------------------------------------------------------------

/// What makes room by leaving memory: at once where it is on SSD, else as soon as it is there.
object_table::way object_table::let_go(entry& e, time_point now, bool lossy) {
  auto& o = e.second;
  if (!o.disks.empty()) {
    leave_memory(e, now);
    return way::made;
  }
  for (const auto replica : savable(o)) {
    const auto& beside = segments_.at(segments_.at(replica.front().segment).disk_beside);
    const auto& d = *beside.ssd;
    const bool wanted = d.policy.write != write_policy::write_through_selective;
    if (lossy || !wanted || !d.open || beside.draining || d.paused_until > now || o.size > d.bytes ||
        o.size > owners_[o.owner].limit.disk_bytes)
      continue;
    if (save(e, true, now)) return way::coming;
    if (d.under_way > 0) return way::late;
  }
  count(o.owner, &object_counts::evictions);
  count(o.owner, &object_counts::evicted_bytes, o.size);
  erase(e, now, now, true);
  return way::made;
}

/// @pre Nobody reads it in memory, and it is on SSD.
void object_table::leave_memory(entry& e, time_point now) {
  auto& o = e.second;
  for (const auto& part : o.memory) give_back(part, now, now);
  o.memory.clear();
  count(o.owner, &object_counts::demoted);
  count_alone(o);
  if (!o.transient) o.hits = 0;  // else it has not earned its place yet
  o.transient = o.revocable = false;
  order_.stand(o.place, eviction_order::standing::held);
}

void object_table::save_by_policy(entry& e, time_point now) {
  const auto& o = e.second;
  if (o.memory.empty() || !o.disks.empty() || o.works != 0 || o.ticket != 0) return;
  const auto beside = segments_.find(segments_.at(o.memory.front().segment).disk_beside);
  if (beside == segments_.end()) return;
  const auto& policy = beside->second.ssd->policy;
  if (writes_on_commit(policy.write) || writes_on_use(policy.write, o.hits, policy.save_hits))
    static_cast<void>(save(e, false, now));
}

/// Replicas of which all lies beside one SSD, in stripes or not: its lender reaches no other memory.
std::vector<std::span<const object_table::held>> object_table::savable(const object& o) const {
  std::vector<std::span<const held>> all;
  const std::span<const held> memory{o.memory};
  for (std::size_t i = 0, end = 0; i < memory.size(); i = end) {
    for (end = i; end < memory.size() && memory[end].one_with(memory[i]); ++end) {
    }
    const auto replica = memory.subspan(i, end - i);
    const auto in = replica.front().segment;
    const bool in_one =
        std::all_of(replica.begin(), replica.end(), [&](const held& p) { return p.segment == in; });
    if (in_one && segments_.count(segments_.at(in).disk_beside) != 0) all.push_back(replica);
  }
  return all;
}

/// @param leaving  it leaves memory when it is saved. @returns whether it is on its way.
bool object_table::save(entry& e, bool leaving, time_point now) {
  auto& o = e.second;
  for (const auto replica : savable(o)) {
    const auto& from = replica.front();
    const auto to = segments_.find(segments_.at(from.segment).disk_beside);
    auto& d = *to->second.ssd;
    const auto most = std::min(saving_max, segments_.at(from.segment).space.total_bytes() / saving_part);
    const bool takes = d.open && !to->second.draining && d.paused_until <= now && o.size <= d.bytes &&
                       d.under_way + o.size <= std::max(most, o.size);
    if (!takes || !make_disk_room(d, o.owner, o.size, now)) continue;
    charge_disk(d, o, true);
    d.under_way += o.size;
    o.works = to->first;
    o.work = next_ticket_++;
    std::uint64_t going = 0;
    for (const auto& part : o.memory) going += part.bytes;
    if (leaving) set_going(o, going);
    order_.stand(o.place, eviction_order::standing::held);
    disk_work_[{o.works, o.work}] = {&e};
    auto record = record_of(o, from, now);
    record.ticket = o.work;
    record.copy = 0;
    record.size = o.size;
    if (journal_)
      journal_->save(to->first, record, e.first, o.in ? std::string_view{o.in->first} : std::string_view{},
                     places(replica));
    return true;
  }
  return false;
}

/// @param bytes  that leave memory as soon as it is saved; zero: it stays.
void object_table::set_going(object& o, std::uint64_t bytes) {
  auto& who = owners_[o.owner];
  leaving_bytes_ += bytes - o.going;
  who.leaving_bytes += bytes - o.going;
  who.leaving += bytes != 0;
  who.leaving -= o.going != 0;
  o.going = bytes;
}

void object_table::put_on_disk(entry& e, const disk_part& part) {
  auto& o = e.second;
  o.disks.push_back(part);
  auto& s = segments_.at(part.segment);
  charge_disk(*s.ssd, o, true);
  if (s.used_by.size() <= o.owner) s.used_by.resize(o.owner + 1);
  s.used_by[o.owner] += o.size;
  if (o.disks.size() == 1) o.rank = {o.counted, ~order_.depth(o.place)};
  s.ssd->order[o.owner].insert({o.rank, &e});
}

void object_table::end_save(entry& e, const disk_part& part, bool good, time_point now) {
  auto& o = e.second;
  auto& d = *segments_.at(part.segment).ssd;
  const bool leaving = o.going > 0;
  end_work(e, false);                   // gives the room back; taken anew below
  if (good || d.paused_until <= now) {  // what it had been told before it refused says nothing new
    d.pause = good ? duration{} : std::clamp(2 * d.pause, first_pause, longest_pause);
    d.paused_until = good ? time_point{} : now + d.pause;
  }
  count(o.owner, good ? &object_counts::saved : &object_counts::save_failures);
  if (good) {
    count(o.owner, &object_counts::saved_bytes, o.size);
    put_on_disk(e, part);
  }
  if (o.leased) return;
  if (good && leaving) leave_memory(e, now);
  else offer(e, now);
}

/// The disk works on it no more, or what it does is for nothing.
void object_table::end_work(entry& e, bool given_up) {
  auto& o = e.second;
  if (o.works == 0) return;
  const auto found = disk_work_.find({o.works, o.work});
  const auto disk = std::exchange(o.works, 0);
  if (found->second.loads) {  // its lender may still write there
    found->second.of = nullptr;
    return;
  }
  auto& d = *segments_.at(disk).ssd;
  if (given_up && journal_) journal_->erased(disk, o.work, e.first);
  set_going(o, 0);
  d.under_way -= o.size;
  charge_disk(d, o, false);
  disk_work_.erase(found);
}

// ---- back into memory
// -------------------------------------------------------------------------------------------

store_code object_table::load(std::string_view key, time_point now) {
  auto* const e = visible(key, now);
  if (!e) return store_code::not_found;
  auto& o = e->second;
  if (!o.memory.empty()) return store_code::ok;
  if (o.works != 0) return store_code::busy;
  if (!o.leased) lease(*e, now);  // what makes room for it on its way is not to be itself
  settle(now);
  bool coming = false;
  for (const auto& from : o.disks) {
    auto room = room_to_load(o, segments_.at(from.segment).ssd->beside, coming, now);
    if (room.empty()) continue;
    const auto ticket = next_ticket_++;
    for (auto& part : room) {
      part.ticket = ticket;
      part.owner = o.owner;
      take(part);
      auto record = record_of(o, part, now);
      record.published = false;  // and nobody's: its lender writes there, and no tenant
      if (journal_) journal_->reserved(part.segment, record);
    }
    if (journal_) journal_->load(from.segment, from.ticket, places(room));
    o.works = from.segment;
    o.work = from.ticket;
    disk_work_[{from.segment, from.ticket}] = {e, true, std::move(room)};
    return store_code::busy;
  }
  return coming || leaving_bytes_ > 0 ? store_code::busy : store_code::no_space;
}

/// Within the quota of its tenant: then what makes way is that one's.
/// @param coming  becomes true if there will be room when others are saved.
std::vector<object_table::held> object_table::room_to_load(const object& o, std::uint32_t in, bool& coming,
                                                           time_point now) {
  const auto memory = segments_.find(in);
  if (memory == segments_.end() || memory->second.space.total_bytes() < o.size) return {};
  const auto bytes = offset_allocator::rounded(o.size);
  const auto fits = [&](const way made) {
    coming = coming || made == way::coming || made == way::late;
    return made == way::made;
  };
  while (!fits(make_way(o.owner, bytes, true, false, now)))
    if (coming || !revoke_one({o.owner}, now)) return {};
  auto room = room_in(in, o.size);
  for (auto made = way::made; room.empty() && made != way::none && made != way::late;) {
    made = leaving_bytes_ > o.size ? way::late : evict_one(now, false, {{}, in});
    fits(made);
    room = room_in(in, o.size);
  }
  while (room.empty() && revoke_one({{}, in}, now)) room = room_in(in, o.size);
  return room;
}

/// In one run, or in stripes.
std::vector<object_table::held> object_table::room_in(std::uint32_t segment, std::uint64_t size) {
  if (const auto part = try_segment(segment, size)) return {*part};
  return stripe_among(size, {segment});
}

void object_table::end_load(entry& e, std::uint32_t id, const std::vector<held>& room, bool good,
                            time_point now) {
  auto& o = e.second;
  o.works = 0;
  if (!good) {
    count(o.owner, &object_counts::disk_damaged);
    for (const auto& part : room) give_back(part, now, now);
    drop_from_disk(e, id);
    if (o.memory.empty() && o.disks.empty()) erase(e, now, now);
    return;
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
  auto* const e = visible(key, now);
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
    if (!o.revocable || o.works != 0 || o.disks.empty() ||
        std::none_of(o.memory.begin(), o.memory.end(), fits))
      continue;
    unlease(*e);
    o.lease_end = now;
    leave_memory(*e, now);
    return true;
  }
  return false;
}

void object_table::disk_done(std::uint32_t id, std::uint64_t ticket, bool good, time_point now) {
  const auto found = disk_work_.find({id, ticket});
  if (found == disk_work_.end()) return;
  const auto work = found->second;
  if (work.of && !work.loads) return end_save(*work.of, {id, ticket}, good, now);
  disk_work_.erase(found);
  if (work.of) return end_load(*work.of, id, work.room, good, now);
  for (const auto& part : work.room) give_back(part, now, now);
}

// ---- on the disk
// ------------------------------------------------------------------------------------------------

void object_table::rank_on_disks(entry& e) {
  auto& o = e.second;
  const disk_rank now{o.counted, o.rank.second};
  for (const auto& part : o.disks) {
    auto& order = segments_.at(part.segment).ssd->order[o.owner];
    order.erase({o.rank, &e});
    order.insert({now, &e});
  }
  o.rank = now;
}

void object_table::charge_disk(disk_state& d, const object& o, bool more) {
  auto& own = owners_[o.owner].disk_bytes;
  more ? d.used += o.size : d.used -= o.size;
  more ? own += o.size : own -= o.size;
}

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
    auto& e = *oldest->at++->second;
    const auto& o = e.second;
    const bool last = o.memory.empty() && o.disks.size() == 1;
    if (o.works != 0 || (o.memory.empty() && o.leased) || (last && o.hard)) continue;
    count(o.owner, &object_counts::disk_evictions);
    const auto id = std::find_if(o.disks.begin(), o.disks.end(), [&](const disk_part& part) {
                      return segments_.at(part.segment).ssd.get() == oldest->disk;
                    })->segment;
    if (last) erase(e, now, now, true);
    else drop_from_disk(e, id);
  }
}

/// Room in what the owner may have of all SSDs, for which its own objects make way, and on this one, for
/// which anybody's do.
bool object_table::make_disk_room(disk_state& d, std::uint32_t owner, std::uint64_t bytes, time_point now) {
  const auto& who = owners_[owner];
  if (bytes > who.limit.disk_bytes || bytes > d.bytes) return false;
  const auto within_share = [&] { return who.disk_bytes <= who.limit.disk_bytes - bytes; };
  const auto fits = [&] { return d.used <= d.bytes - bytes; };
  if (!within_share()) give_up_on_disk(on_disk_of(owner), within_share, now);
  if (!within_share()) return false;
  if (fits()) return true;
  std::vector<disk_cursor> everybodys;
  for (auto& [whose, order] : d.order) everybodys.push_back({&d, order.begin(), order.end()});
  give_up_on_disk(std::move(everybodys), fits, now);
  return fits();
}

/// The replica alone: others stay.
void object_table::drop_from_disk(entry& e, std::uint32_t id) {
  auto& o = e.second;
  const auto part =
      std::find_if(o.disks.begin(), o.disks.end(), [&](const disk_part& p) { return p.segment == id; });
  auto& s = segments_.at(id);
  s.ssd->order[o.owner].erase({o.rank, &e});
  charge_disk(*s.ssd, o, false);
  s.used_by[o.owner] -= o.size;
  if (journal_) journal_->erased(id, part->ticket, e.first);
  o.disks.erase(part);
  if (o.disks.empty()) o.transient = false;  // in memory alone
}

/// A segment is going: nothing is saved to it or from it, or loaded into it, any more.
void object_table::forget_disk(std::uint32_t id) {
  for (auto at = disk_work_.begin(); at != disk_work_.end();) {
    auto& [which, work] = *at;
    const auto& s = segments_.at(which.first);
    if (which.first != id && s.ssd->beside != id) {
      ++at;
      continue;
    }
    auto* const of = work.of;
    if (of) of->second.works = 0;
    if (work.loads) {  // the lender of both is gone with either: nobody writes there any more
      for (const auto& part : work.room) {
        untake(part);
        segments_.at(part.segment).space.release(part.extent.handle);
      }
    } else {
      set_going(of->second, 0);
      s.ssd->under_way -= of->second.size;
      charge_disk(*s.ssd, of->second, false);
      offer(*of, {});
    }
    at = disk_work_.erase(at);
  }
}

bool object_table::disks_consistent() const {
  std::uint64_t leaving = 0;
  std::map<std::uint32_t, std::uint64_t> used, ranked, by_owner;
  for (const auto& [which, work] : disk_work_) {
    if (!work.of) continue;
    const auto& o = work.of->second;
    if (o.works != which.first || o.work != which.second || o.ticket != 0) return false;
    if (!work.loads) used[which.first] += o.size;
    if (!work.loads) by_owner[o.owner] += o.size;
    leaving += o.going;
  }
  for (const auto& [key, o] : objects_) {
    if (o.works != 0 && disk_work_.count({o.works, o.work}) == 0) return false;
    for (const auto& part : o.disks) {
      used[part.segment] += o.size;
      by_owner[o.owner] += o.size;
      ++ranked[part.segment];
      auto* const e = const_cast<entry*>(&*objects_.find(key));
      const auto& order = segments_.at(part.segment).ssd->order;
      if (order.count(o.owner) == 0 || order.at(o.owner).count({o.rank, e}) == 0) return false;
    }
    if (o.transient && o.disks.empty()) return false;
  }
  for (const auto& [id, s] : segments_)
    if (s.ssd && (s.ssd->used != used[id] || s.ssd->objects() != ranked[id] || s.ssd->used > s.ssd->bytes))
      return false;
  for (std::uint32_t i = 0; i < owners_.size(); ++i)
    if (owners_[i].disk_bytes != by_owner[i]) return false;
  return leaving == leaving_bytes_;
}

}  // namespace mooncaf
