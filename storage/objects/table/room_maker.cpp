#include "storage/objects/table/room_maker.hpp"

#include <algorithm>

#include "storage/objects/table/object_books.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/object_saving.hpp"

namespace mooncaf {

using standing = object_order::standing;

namespace {
/// A softly pinned object counts as used so much later.
constexpr std::int64_t softly_pinned = std::int64_t{1} << 61;
/// An eviction looks first at so many replicas that were made for readers: giving up one that is not read
/// costs nothing.
constexpr std::size_t looks_at_made = 16;
/// Objects that lie elsewhere are stepped over, up to this bound on the work of one call.
constexpr std::size_t stepped_over_max = 64;
}  // namespace

room_maker::room_maker(object_books& books, object_life& life, object_saving& saving)
    : options_(books.options),
      life_(life),
      saving_(saving),
      index_(books.index),
      groups_(books.groups),
      order_(books.order),
      warmth_(books.warmth),
      space_(books.space),
      work_(books.work),
      quotas_(books.quotas) {}

// ---- one object, and its group ----------------------------------------------------------------------------

stored_object* room_maker::victim(const victim_wish& from, time_point now) {
  order_.link_parents(index_);
  auto* first = order_.next(from.owner);
  if (from.in == 0) return first;
  std::vector<stored_object*> stepped_over;
  while (first && stepped_over.size() < stepped_over_max && !lies_in(first->memory, from.in)) {
    stepped_over.push_back(first);
    order_.stand(*first, standing::held);
    first = order_.next(from.owner);
  }
  for (auto* const over : stepped_over) life_.offer(*over, now);
  return first;
}

way room_maker::evict_one(time_point now, bool lossy, const victim_wish& from) {
  life_.settle(now);
  const auto unread = [&](const stored_object& o) { return object_life::protected_until(o) <= now; };
  if (!from.owner && drop_made_replicas(unread, looks_at_made, 1, now) > 0) return way::made;
  const auto goes = [&](stored_object& o) {
    return give_up_group(o, order_.standing_of(o) == standing::soft, now);
  };
  auto* first = victim(from, now);
  // A member of a group that was used, or has left, in another shard hears of it before it is chosen.
  while (first && !goes(*first)) first = victim(from, now);
  if (!first && from.at_last) {
    first = order_.next_followed(from);
    if (first && !goes(*first)) return way::none;
  }
  if (!first) return way::none;
  // Members of its group that are no better protected go with it, since half a group is of no use.
  std::vector<stored_object*> going{first};
  if (first->group.any())
    for (auto* const member : object_groups::with(*first))
      if (member != first && order_.standing_of(*member) == order_.standing_of(*first))
        going.push_back(member);
  auto made = way::none;
  for (auto* const one : going) {
    const auto outcome = let_go(*one, now, lossy);
    if (made != way::made) made = outcome;
  }
  return made;
}

/// At once where it is on SSD, or to be lost; else as soon as it is saved.
way room_maker::let_go(stored_object& o, time_point now, bool lossy) {
  if (!o.disks.empty()) {
    life_.leave_memory(o, now);
    return way::made;
  }
  const auto leaves = lossy ? object_saving::parting::lost : saving_.save_to_leave(o, now);
  if (leaves == object_saving::parting::saved) return way::coming;
  if (leaves == object_saving::parting::late) return way::late;
  quotas_.count(o.owner, &object_counts::evictions);
  quotas_.count(o.owner, &object_counts::evicted_bytes, o.size);
  life_.erase(o, now, now, true);
  return way::made;
}

/// @param soft  also objects pinned softly. @returns false if it does not go, or has gone: then the victim is
/// to be chosen anew.
bool room_maker::give_up_group(stored_object& o, bool soft, time_point now) {
  switch (groups_.give_up(o, soft, now)) {
    case shared_group::outcome::leased:
      for (auto* const member : object_groups::with(o)) {  // others of it were used elsewhere since
        if (order_.standing_of(*member) == standing::held) continue;
        order_.use_beside(*member);
        life_.offer(*member, now);
      }
      return false;
    case shared_group::outcome::known_too_little:
      follow_group(o, now);
      return false;
    case shared_group::outcome::given_up:
      break;
  }
  return true;
}

bool room_maker::follow_group(stored_object& o, time_point now) {
  const auto left = object_groups::news(o);
  if (!left.any) return false;
  std::vector<stored_object*> going;
  for (auto* const member : object_groups::with(o)) {
    const auto stands = order_.standing_of(*member);
    if (stands == standing::plain || (left.soft && stands == standing::soft)) going.push_back(member);
  }
  for (auto* const one : going) static_cast<void>(let_go(*one, now, false));
  return true;
}

/// Looks at so many, and next time at others. @returns how many went.
std::size_t room_maker::drop_made_replicas(const std::function<bool(const stored_object&)>& goes,
                                           std::size_t looks, std::size_t most, time_point now) {
  std::size_t dropped = 0;
  for (looks = std::min(looks, warmth_.made()); looks > 0 && dropped < most; --looks) {
    const auto one = warmth_.next_made();
    if (!one) continue;
    const auto is_it = [&](const memory_part& part) { return part.ticket == one->ticket; };
    if (goes(*one->of) && life_.drop_replica(*one->of, is_it, now)) ++dropped;
    else warmth_.keep_made(*one);
  }
  quotas_.count(&object_counts::cooled, dropped);
  return dropped;
}

void room_maker::cool_down(time_point now) {
  const auto cold = [&](const stored_object& o) { return warmth_.is_cold(o, now); };
  drop_made_replicas(cold, warmth_.made(), warmth_.made(), now);
}

// ---- watermarks, and memory that a holder takes back ------------------------------------------------------

double room_maker::bytes_at_work() const {
  const auto& use = quotas_.use();
  return static_cast<double>(use.used_bytes - use.resting_bytes - use.leaving_bytes);
}

void room_maker::keep_watermarks(time_point now) {
  const auto share = [&](double part) { return static_cast<double>(space_.total_bytes()) * part; };
  if (bytes_at_work() <= share(options_.high_watermark)) return;
  for (auto made = way::made;
       bytes_at_work() > share(options_.low_watermark) && (made == way::made || made == way::coming);)
    made = evict_one(now, false, {});
}

// Free runs are taken as long as that keeps below the watermark; above it objects leave first, or the next
// put would evict at once.
boundary_report room_maker::withhold(std::uint32_t id, std::uint64_t bytes, time_point now) {
  life_.settle(now);
  space_.give_back_withheld(id, bytes);
  const auto share = [&](double part, double more) {
    return (static_cast<double>(space_.total_bytes()) - more) * part;
  };
  const auto missing = [&] { return bytes - std::min(bytes, space_.withheld_bytes(id)); };
  // Small, scattered objects may leave no long run when they go, so one call gives up a bounded part of them.
  constexpr auto longest_run = segment_space::longest_run;
  const auto before = bytes_at_work();
  const auto enough = [&] {
    return before - bytes_at_work() > 2.0 * static_cast<double>(missing() + longest_run);
  };
  for (auto made = way::made; missing() > 0;) {
    const bool full = bytes_at_work() > share(options_.high_watermark, static_cast<double>(missing()));
    if (!full && space_.withhold_run(id, missing())) continue;
    // Objects that are on their way to SSD will leave enough room.
    const bool leaving = quotas_.use().leaving_bytes > missing() + longest_run;
    if (leaving || enough() || made == way::none || made == way::late) break;
    made = evict_one(now, false, {{}, id});
    if (full && (made == way::none || made == way::late) && space_.withhold_run(id, missing()))
      made = way::made;
  }
  boundary_report r;
  r.withheld_bytes = space_.withheld_bytes(id);
  r.bytes = space_.usable_bytes(id);
  const auto idle = share(options_.low_watermark, 0) - bytes_at_work();
  r.idle_bytes = std::min(idle > 0 ? static_cast<std::uint64_t>(idle) : 0, space_.free_bytes(id));
  r.taken_bytes = space_.taken_bytes();
  if (const auto* const next = victim({{}, id}, now)) r.coldest = now - next->order.used();
  return r;
}

// ---- quotas -----------------------------------------------------------------------------------------------

way room_maker::make_way(std::uint32_t owner, std::uint64_t bytes, bool another_object, bool lossy,
                         time_point now) {
  const quota_use room{bytes, another_object ? 1u : 0u};
  if (bytes > quotas_.limit(owner).bytes) return way::none;
  const auto colder_elsewhere = [&] {
    if (!quotas_.is_bounded(owner) || quotas_.asks_for_memory(owner)) return false;
    const auto here = coldest_of(owner);
    return here != shard_commons::never && quotas_.has_colder_elsewhere(owner, here, options_.one_use, now);
  };
  for (;;) {
    if (quotas_.claim(owner, room)) return way::made;
    const auto& use = quotas_.use(owner);
    if (!lossy && quotas_.fits(owner, room, use.leaving_bytes, use.leaving)) return way::coming;
    if (!lossy && colder_elsewhere() && quotas_.ask_others(owner, room, false, now)) return way::late;
    auto made = evict_one(now, lossy, {owner});
    const bool waits = made == way::none && (use.leaving > 0 || (!lossy && work_.is_saving(owner)));
    if (made == way::late || waits) return way::late;
    if (made == way::none && quotas_.ask_others(owner, room, lossy, now)) return way::late;
    if (made == way::none) made = evict_one(now, lossy, {owner, 0, true});
    if (made == way::none) return made;
  }
}

/// A directory that has begun with lower quotas finds more than they allow.
void room_maker::keep_quotas(time_point now) {
  for (std::uint32_t owner = 1; owner < quotas_.size(); ++owner) {
    for (auto made = way::made; quotas_.is_over(owner) && (made == way::made || made == way::coming);)
      made = evict_one(now, false, {owner});
    saving_.make_way(
        owner, [&] { return !quotas_.is_over_on_disks(owner); }, now);
  }
}

// ---- other shards -----------------------------------------------------------------------------------------

/// When the tenant's next victim was used, or put, last; about one lease later, if it was used.
std::int64_t room_maker::coldest_of(std::uint32_t owner) {
  const auto* const o = victim({owner}, {});
  if (!o) return shard_commons::never;
  const bool soft = order_.standing_of(*o) == standing::soft;
  return o->protection.lease_end().time_since_epoch().count() + (soft ? softly_pinned : 0);
}

void room_maker::say_coldest() {
  for (std::uint32_t owner = 1; quotas_.is_bounded(owner); ++owner)
    quotas_.say_coldest(owner, quotas_.is_nearly_full(owner) ? coldest_of(owner) : shard_commons::never);
}

void room_maker::make_room_for_others(const shard_message& asked, time_point now) {
  const auto owner = asked.owner;
  const auto& use = quotas_.use(owner);
  shard_message answer{shard_message::kind::room_made, 0, owner};
  answer.room = asked.room;
  bool went = false;
  if (asked.room.disk_bytes > 0) {
    const auto had = use.disk_bytes;
    const auto enough = [&] {
      quotas_.tell(owner);
      return quotas_.use_of_all(owner).disk_bytes <= quotas_.limit(owner).disk_bytes - asked.room.disk_bytes;
    };
    saving_.make_way(owner, enough, now);
    went = use.disk_bytes < had || enough();
  }
  const auto enough = [&] {
    quotas_.tell(owner);
    return quotas_.fits(owner, asked.room, use.leaving_bytes, use.leaving);
  };
  auto made = asked.room.disk_bytes == 0 ? way::made : way::none;
  while ((made == way::made || made == way::coming) && !(answer.some = enough())) {
    made = evict_one(now, asked.lossy, {owner});
    went = went || made != way::none;
  }
  answer.some = answer.some || went || use.leaving > 0 || (!asked.lossy && work_.is_saving(owner));
  say_coldest();
  quotas_.answer(asked.from, std::move(answer));
}

}  // namespace mooncaf
