// Who uses which objects, which of them that protects, and what leaves when room is wanted: the part of
// `object_table` that keeps them in order.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

void object_table::use(entry& e, time_point now) {
  const bool counts = now - e.second.counted >= options_.one_use;
  if (counts) e.second.counted = now;
  e.second.used = now;
  e.second.revocable = false;
  lease(e, now);
  order_.use(e.second.place, counts);
  if (counts) {
    ++e.second.hits;
    promote(e.second);
    rank_on_disks(e);
    save_by_policy(e, now);
  }
  if (!e.second.in || e.second.in->second.leased_at == now) return;
  e.second.in->second.leased_at = now;
  for (auto* const member : e.second.in->second.members) {
    if (member == &e || member->second.ticket != 0) continue;
    lease(*member, now);
    order_.use(member->second.place, false);
  }
}

void object_table::join(entry& e, std::string_view name) {
  auto at = groups_.find(name);
  if (at == groups_.end()) at = groups_.try_emplace(std::string{name}).first;
  auto& g = at->second;
  g.members.insert(&e);
  e.second.in = &*at;
  if (!commons_ || g.shared) return;
  g.shared = &commons_->join(name, options_.shard.index);
  g.followed = g.shared->left();
}

void object_table::leave(entry& e) {
  auto* const from = e.second.in;
  if (!from) return;
  from->second.members.erase(&e);
  if (!from->second.members.empty()) return;
  if (commons_) commons_->leave(from->first, options_.shard.index);
  groups_.erase(groups_.find(from->first));
}

void object_table::lease(entry& e, time_point now) {
  auto& o = e.second;
  o.lease_end = now + options_.lease;
  if (o.leased) unlease(e);
  else order_.stand(o.place, eviction_order::standing::held);
  o.leased = true;
  o.older = leased_.newest;  // all leases are of one length, so the first to end is the oldest
  (o.older ? o.older->second.newer : leased_.oldest) = &e;
  leased_.newest = &e;
}

void object_table::unlease(entry& e) {
  auto& o = e.second;
  if (!o.leased) return;
  (o.older ? o.older->second.newer : leased_.oldest) = o.newer;
  (o.newer ? o.newer->second.older : leased_.newest) = o.older;
  o.older = o.newer = nullptr;
  o.leased = false;
}

/// Nobody protects it any more, unless it is pinned hard, or the disk works on it.
void object_table::offer(entry& e, time_point now) {
  using standing = eviction_order::standing;
  const bool movable = e.second.work.empty() && !e.second.memory.empty();
  if (!e.second.hard && !e.second.leased && movable && !hold_with_group(e, now))
    order_.stand(e.second.place, e.second.soft_end > now ? standing::soft : standing::plain);
}

void object_table::end_protection(entry& e, time_point now) {
  const bool leaves = e.second.transient && e.second.work.empty() && !hold_with_group(e, now);
  leaves ? leave_memory(e, now) : offer(e, now);
}

void object_table::settle(time_point now) {
  while (leased_.oldest && leased_.oldest->second.lease_end <= now) {
    auto& e = *leased_.oldest;
    unlease(e);
    end_protection(e, now);
  }
  settle_groups(now);
  while (!by_soft_end_.empty() && by_soft_end_.begin()->first <= now) {
    auto& e = *by_soft_end_.begin()->second;
    by_soft_end_.erase(by_soft_end_.begin());
    offer(e, now);
  }
}

void object_table::place_in_chain(entry& e, const object_ties& ties) {
  auto& o = e.second;
  const auto parent = ties.parent.empty() || o.replaces ? objects_.end() : objects_.find(ties.parent);
  const bool known = parent != objects_.end() && &*parent != &e;
  const auto named = ties.parent.empty() || o.replaces ? 0 : text_hash{}(ties.parent);
  const bool elsewhere = is_elsewhere(named);
  const auto depth = known       ? order_.depth(parent->second.place) + 1
                     : elsewhere ? commons_->depth(named) + 1
                                 : 0;
  o.place = order_.add(text_hash{}(e.first), ties.cost / static_cast<double>(o.size), depth, o.owner);
  if (placed_.size() <= o.place) placed_.resize(o.place + 1);
  placed_[o.place] = &e;
  if (known) order_.link(o.place, parent->second.place);
  if (known || elsewhere) o.parent = named;
  enter_chain(e);
}

eviction_order::handle object_table::victim(const from_whom& from, time_point now) {
  const auto next = [&] {
    for (;;) {
      const auto h = from.owner ? order_.victim_of(*from.owner) : order_.victim();
      if (h == eviction_order::none || !is_followed(h)) return h;
    }
  };
  if (to_link_) link_recovered();
  auto first = next();
  if (from.in == 0) return first;
  // What lies elsewhere is stepped over, up to a bound on the work of one call.
  constexpr std::size_t stepped_over_max = 64;
  std::vector<entry*> stepped_over;
  const auto lies_there = [&](const held& part) { return part.segment == from.in; };
  while (
      first != eviction_order::none && stepped_over.size() < stepped_over_max &&
      std::none_of(placed_[first]->second.memory.begin(), placed_[first]->second.memory.end(), lies_there)) {
    stepped_over.push_back(placed_[first]);
    order_.stand(first, eviction_order::standing::held);
    first = next();
  }
  for (auto* const over : stepped_over) offer(*over, now);
  return first;
}

object_table::way object_table::evict_one(time_point now, bool lossy, const from_whom& from) {
  settle(now);
  // A replica that nobody needs costs nobody anything.
  constexpr std::size_t looks = 16;
  if (!from.owner &&
      drop_hot_replicas([&](const object& o) { return protected_until(o) <= now; }, looks, 1, now) > 0)
    return way::made;
  auto first = victim(from, now);
  const auto soft = [&] { return order_.standing_of(first) == eviction_order::standing::soft; };
  // Where it was used in another shard, or has left there, this one is to hear of it first.
  while (first != eviction_order::none && placed_[first]->second.in &&
         !give_up_group(*placed_[first]->second.in, soft(), now))
    first = victim(from, now);
  if (first == eviction_order::none && from.at_last) {
    first = followed_victim(from);
    if (first != eviction_order::none && placed_[first]->second.in &&
        !give_up_group(*placed_[first]->second.in, soft(), now))
      return way::none;
  }
  if (first == eviction_order::none) return way::none;
  auto* const e = placed_[first];
  // With it those of its group that are no better protected: half a group is of no use to anybody.
  std::vector<entry*> going{e};
  if (e->second.in)
    for (auto* const member : e->second.in->second.members)
      if (member != e && order_.standing_of(member->second.place) == order_.standing_of(first))
        going.push_back(member);
  auto made = way::none;
  for (auto* const one : going) {
    const auto outcome = let_go(*one, now, lossy);
    if (made != way::made) made = outcome;
  }
  return made;
}

void object_table::tick(time_point now) {
  while (!quarantine_.empty() && quarantine_.begin()->first <= now) {
    const auto part = quarantine_.begin()->second;
    quarantine_.erase(quarantine_.begin());
    untake(part);
    quarantined_bytes_ -= part.bytes;
    owners_[part.owner].resting_bytes -= part.bytes;
    segments_.at(part.segment).space.release(part.extent.handle);
  }
  while (!by_ttl_.empty() && by_ttl_.begin()->first <= now) {
    auto& e = *by_ttl_.begin()->second;
    count(e.second.owner, &object_counts::expired);
    erase(e, protected_until(e.second), now);
  }
  end_ahead(now);
  cool_down(now);
  settle(now);
  keep_quotas(now);
  say_coldest();
  const auto share = [&](double part) { return static_cast<double>(total_bytes_) * part; };
  const auto at_work = [&] { return static_cast<double>(used_bytes_ - quarantined_bytes_ - leaving_bytes_); };
  if (at_work() <= share(options_.high_watermark)) return;
  for (auto made = way::made;
       at_work() > share(options_.low_watermark) && (made == way::made || made == way::coming);)
    made = evict_one(now, false, {});
}

}  // namespace mooncaf
