// What a table has to do with those of the directory's other shards: the part of `object_table` that takes of
// the quotas that all have in common, and knows of groups and chains that go from one to another.
//
// A group's lease and its end are one word that all shards look at, so that both count in all of them at
// once; memory of what has left follows with a message. What has children elsewhere is found out when it
// would be given up.

#include <algorithm>
#include <utility>

#include "storage/objects/key_shard.hpp"
#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// A shard that had nothing to give is not asked again before that.
constexpr auto ask_one_again = std::chrono::milliseconds(100);
/// Somebody waits for room for so long: then also what is not on SSD yet goes elsewhere.
constexpr auto patience = std::chrono::seconds(1);
/// More is asked for than one put needs, so that not each one waits; not more than this part of the quota.
constexpr std::uint64_t ahead_puts = 16, ahead_part = 32;
/// What is pinned softly counts as used so much later.
constexpr std::int64_t softly_pinned = std::int64_t{1} << 61;
}  // namespace

// ---- quotas -----------------------------------------------------------------------------------------------

quota_use object_table::own_use(std::uint32_t owner) const {
  const auto& who = owners_[owner];
  return {who.used_bytes, who.seen.objects - who.on_disk_alone + who.seen.reserved, who.disk_bytes,
          who.resting_bytes + who.moving_bytes + who.leaving_bytes, who.leaving};
}

quota_use object_table::use_of_all(std::uint32_t owner) const {
  const auto own = own_use(owner);
  if (!commons_ || !commons_->bounds(owner)) return own;
  const auto all = commons_->used(owner);
  const auto& told = owners_[owner].told;
  return {own.bytes + (all.bytes - told.bytes), own.objects + (all.objects - told.objects),
          own.disk_bytes + (all.disk_bytes - told.disk_bytes),
          own.passing_bytes + (all.passing_bytes - told.passing_bytes),
          own.passing_objects + (all.passing_objects - told.passing_objects)};
}

/// Takes it of the quota until it is used, or `tell` says that it was not. @returns whether it was there.
bool object_table::claim(std::uint32_t owner, const quota_use& room) {
  tell(owner);
  return claim_more(owner, room, {});
}

/// @param claimed  before, and not used yet.
bool object_table::claim_more(std::uint32_t owner, const quota_use& room, const quota_use& claimed) {
  auto& who = owners_[owner];
  if (!commons_ || !commons_->bounds(owner)) {
    const auto used = own_use(owner);
    const auto fits = [](std::uint64_t had, std::uint64_t more, std::uint64_t limit) {
      return more == 0 || (more <= limit && had <= limit - more);
    };
    return fits(used.bytes + claimed.bytes, room.bytes, who.limit.bytes) &&
           fits(used.objects + claimed.objects, room.objects, who.limit.objects) &&
           fits(used.disk_bytes, room.disk_bytes, who.limit.disk_bytes);
  }
  if (!commons_->take(owner, room)) return false;
  who.told.bytes += room.bytes;
  who.told.objects += room.objects;
  who.told.disk_bytes += room.disk_bytes;
  (room.disk_bytes > 0 ? who.to_disk : who.to_memory).since = {};
  touch(owner);
  return true;
}

/// The others are to hear of a change.
void object_table::touch(std::uint32_t owner) {
  if (!commons_ || !commons_->bounds(owner) || std::exchange(owners_[owner].to_tell, true)) return;
  to_tell_.push_back(owner);
}

void object_table::tell(std::uint32_t owner) {
  if (!commons_ || !commons_->bounds(owner)) return;
  auto& who = owners_[owner];
  const auto is = own_use(owner);
  commons_->change(owner, who.told, is);
  who.told = is;
}

void object_table::tell_others() {
  for (const auto owner : to_tell_) {
    owners_[owner].to_tell = false;
    tell(owner);
  }
  to_tell_.clear();
}

void object_table::say_lent() {
  if (!commons_) return;
  std::uint64_t disks = 0;
  for (const auto& [id, s] : segments_) disks += s.ssd ? s.ssd->bytes : 0;
  commons_->say_lent(options_.shard.index, total_bytes_, disks);
}

/// When what would go first of this one's was used, or put, last; about one lease later, if it was used.
std::int64_t object_table::coldest_of(std::uint32_t owner) {
  const auto h = victim({owner}, {});
  if (h == eviction_order::none) return shard_commons::never;
  const bool soft = order_.standing_of(h) == eviction_order::standing::soft;
  return placed_[h]->second.lease_end.time_since_epoch().count() + (soft ? softly_pinned : 0);
}

/// Of those that have little left.
void object_table::say_coldest() {
  if (!commons_) return;
  for (std::uint32_t owner = 1; commons_->bounds(owner); ++owner) {
    const auto used = commons_->used(owner);
    const auto& limit = owners_[owner].limit;
    const bool much = used.bytes > limit.bytes / 8 * 7 || used.objects > limit.objects / 8 * 7;
    commons_->say_coldest(owner, options_.shard.index, much ? coldest_of(owner) : shard_commons::never);
  }
}

/// Whether another shard has something of the tenant's that nobody has used for twice as long as what would
/// go here.
bool object_table::colder_elsewhere(std::uint32_t owner, time_point now) {
  if (!commons_ || !commons_->bounds(owner) || owners_[owner].to_memory.pending) return false;
  const auto here = coldest_of(owner);
  if (here == shard_commons::never) return false;
  auto there = shard_commons::never;
  for (std::uint32_t s = 0; s < commons_->count(); ++s)
    if (s != options_.shard.index) there = std::min(there, commons_->coldest(owner, s));
  const std::int64_t unused = now.time_since_epoch().count() - here;
  const std::int64_t margin = std::max(unused, std::int64_t{duration{options_.one_use}.count()});
  return there != shard_commons::never && here - there > margin;
}

/// @returns whether room is being made elsewhere; what asks for it is to ask again.
bool object_table::ask_others(std::uint32_t owner, const quota_use& room, bool lossy, time_point now) {
  if (!commons_ || !commons_->bounds(owner)) return false;
  auto& who = owners_[owner];
  const bool of_disks = room.disk_bytes > 0;
  auto& r = of_disks ? who.to_disk : who.to_memory;
  if (r.pending) return true;
  const auto own = own_use(owner), all = use_of_all(owner);
  if (of_disks ? all.disk_bytes == own.disk_bytes : all.bytes == own.bytes) return false;
  if (now - r.heard > ask_one_again) r.asked = 0;
  if (now - r.heard > patience) r.since = {};
  std::uint32_t whom = commons_->count();
  for (std::uint32_t s = 0; s < commons_->count(); ++s) {
    if (s == options_.shard.index || (r.asked >> s & 1) != 0) continue;
    if (whom == commons_->count() || commons_->coldest(owner, s) < commons_->coldest(owner, whom)) whom = s;
  }
  if (whom == commons_->count()) {
    r.since = {};
    return false;
  }
  if (r.since == time_point{}) r.since = now;
  const auto some_more = [](std::uint64_t one, std::uint64_t limit) {
    return std::min(one * ahead_puts, std::max(one, limit / ahead_part));
  };
  r.pending = true;
  r.asked |= 1u << whom;
  shard_message ask{shard_message::kind::make_room, options_.shard.index, owner};
  ask.room = {some_more(room.bytes, who.limit.bytes), some_more(room.objects, who.limit.objects),
              some_more(room.disk_bytes, who.limit.disk_bytes)};
  ask.lossy = lossy || now - r.since > patience;
  commons_->post(whom, std::move(ask));
  return true;
}

void object_table::make_room_for_others(const shard_message& asked, time_point now) {
  const auto owner = asked.owner;
  const auto& who = owners_[owner];
  shard_message answer{shard_message::kind::room_made, options_.shard.index, owner};
  answer.room = asked.room;
  bool went = false;
  if (asked.room.disk_bytes > 0) {
    const auto had = who.disk_bytes;
    const auto enough = [&] {
      tell(owner);
      return use_of_all(owner).disk_bytes <= who.limit.disk_bytes - asked.room.disk_bytes;
    };
    make_way_on_disks(owner, enough, now);
    went = who.disk_bytes < had || enough();
  }
  const auto enough = [&] {
    tell(owner);
    return fits_quota(owner, asked.room, who.leaving_bytes, who.leaving);
  };
  auto made = asked.room.disk_bytes == 0 ? way::made : way::none;
  while ((made == way::made || made == way::coming) && !(answer.some = enough())) {
    made = evict_one(now, asked.lossy, {owner});
    went = went || made != way::none;
  }
  answer.some = answer.some || went || who.leaving > 0 || (!asked.lossy && is_saving(owner));
  say_coldest();
  commons_->post(asked.from, std::move(answer));
}

// ---- groups -----------------------------------------------------------------------------------------------

/// What is found is leased, with all of its group, in whatever shard.
object_table::entry* object_table::visible_and_leased(std::string_view key, time_point now) {
  for (;;) {
    auto* const e = visible(key, now);
    if (!e || !e->second.in || !e->second.in->second.shared) return e;
    const auto& g = e->second.in->second;
    if (g.shared->lease(now + options_.lease, g.followed)) return e;
  }
}

time_point object_table::protected_until(const object& o) const {
  if (!o.in || !o.in->second.shared) return o.lease_end;
  return std::max(o.lease_end, o.in->second.shared->leased_until());
}

/// Other shards have given up the group: so does this one. @returns false if there was nothing to follow.
bool object_table::follow_group(object_group& g, time_point now) {
  if (!g.shared) return false;
  const auto left = g.shared->left();
  if (left == g.followed) return false;
  const bool soft = left.soft != g.followed.soft;
  g.followed = left;
  using standing = eviction_order::standing;
  std::vector<entry*> going;
  for (auto* const member : g.members) {
    const auto stands = order_.standing_of(member->second.place);
    if (stands == standing::plain || (soft && stands == standing::soft)) going.push_back(member);
  }
  for (auto* const one : going) static_cast<void>(let_go(*one, now, false));
  return true;
}

/// Others of the group were used elsewhere since.
void object_table::lease_again(const object_group& g, time_point now) {
  for (auto* const member : g.members) {
    if (order_.standing_of(member->second.place) == eviction_order::standing::held) continue;
    order_.use(member->second.place, false);
    offer(*member, now);
  }
}

/// For as long as its group is leased. @returns whether it is.
bool object_table::hold_with_group(entry& e, time_point now) {
  auto& o = e.second;
  if (!o.in || !o.in->second.shared) return false;
  const auto until = o.in->second.shared->leased_until();
  if (until <= now) return o.group_end > now;
  if (o.group_end == until) return true;
  forget_group_end(e);
  o.group_end = until;
  by_group_end_.insert({until, &e});
  order_.stand(o.place, eviction_order::standing::held);
  return true;
}

void object_table::forget_group_end(entry& e) {
  if (e.second.group_end == time_point{}) return;
  by_group_end_.erase({std::exchange(e.second.group_end, {}), &e});
}

void object_table::settle_groups(time_point now) {
  while (!by_group_end_.empty() && by_group_end_.begin()->first <= now) {
    auto& e = *by_group_end_.begin()->second;
    forget_group_end(e);
    if (!e.second.leased) end_protection(e, now);
  }
}

/// @param soft  with what is pinned softly. @returns false if it does not go, or has gone: then what is to be
/// given up is to be chosen anew.
bool object_table::give_up_group(groups::value_type& group, bool soft, time_point now) {
  auto& g = group.second;
  if (!g.shared) return true;
  switch (g.shared->give_up(soft, g.followed, now)) {
    case shared_group::outcome::leased:
      lease_again(g, now);
      return false;
    case shared_group::outcome::known_too_little:
      follow_group(g, now);
      return false;
    case shared_group::outcome::given_up:
      break;
  }
  const auto in = g.shared->shards();
  for (std::uint32_t s = 0; s < commons_->count(); ++s) {
    if (s == options_.shard.index || (in >> s & 1) == 0) continue;
    shard_message left{shard_message::kind::group_left, options_.shard.index};
    left.group = group.first;
    commons_->post(s, std::move(left));
  }
  return true;
}

// ---- chains -----------------------------------------------------------------------------------------------

bool object_table::is_elsewhere(std::uint64_t key) const {
  return commons_ && key != 0 && shard_of(key, options_.shard.count) != options_.shard.index;
}

void object_table::enter_chain(const entry& e) {
  const auto& o = e.second;
  if (!commons_ || o.parent == 0) return;
  commons_->enter(text_hash{}(e.first), order_.depth(o.place), o.parent, is_elsewhere(o.parent));
}

void object_table::leave_chain(const entry& e) {
  const auto& o = e.second;
  if (!commons_) return;
  followed_.erase(o.place);
  if (o.parent == 0 || !commons_->leave_chain(text_hash{}(e.first), o.parent, is_elsewhere(o.parent))) return;
  shard_message childless{shard_message::kind::childless, options_.shard.index};
  childless.hash = o.parent;
  commons_->post(shard_of(o.parent, options_.shard.count), std::move(childless));
}

/// Whether it is not to go because it has children elsewhere; the last of them says when it is gone.
bool object_table::is_followed(eviction_order::handle h) {
  if (!commons_ || !commons_->is_followed(text_hash{}(placed_[h]->first))) return false;
  order_.follow(h, true);
  followed_.insert(h);
  return true;
}

/// Of what has children elsewhere alone, what was used longest ago. @cost O(all that has such)
eviction_order::handle object_table::followed_victim(const from_whom& from) const {
  auto best = eviction_order::none;
  const auto rank = [&](eviction_order::handle h) {
    return std::pair{order_.standing_of(h), placed_[h]->second.lease_end};
  };
  for (const auto h : followed_) {
    const auto& o = placed_[h]->second;
    const auto lies_there = [&](const held& part) { return part.segment == from.in; };
    if (order_.standing_of(h) == eviction_order::standing::held || order_.children(h) > 0 ||
        (from.owner && o.owner != *from.owner) ||
        (from.in != 0 && std::none_of(o.memory.begin(), o.memory.end(), lies_there)))
      continue;
    if (best == eviction_order::none || rank(h) < rank(best)) best = h;
  }
  return best;
}

void object_table::hear(const shard_message& m, time_point now) {
  switch (m.what) {
    case shard_message::kind::group_left:
      if (const auto g = groups_.find(m.group); g != groups_.end()) follow_group(g->second, now);
      return;
    case shard_message::kind::childless:
      if (const auto parent = objects_.find(hashed_key{m.hash}); parent != objects_.end()) {
        followed_.erase(parent->second.place);
        order_.follow(parent->second.place, false);
      }
      return;
    case shard_message::kind::make_room:
      return make_room_for_others(m, now);
    case shard_message::kind::room_made: {
      auto& who = owners_[m.owner];
      auto& r = m.room.disk_bytes > 0 ? who.to_disk : who.to_memory;
      r.pending = false;
      r.heard = now;
      if (m.some) r.asked = 0;
      return;
    }
  }
}

}  // namespace mooncaf
