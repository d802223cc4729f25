#include "storage/objects/table/object_order.hpp"

#include <unordered_map>
#include <utility>

#include "storage/objects/table/object_index.hpp"

namespace mooncaf {

eviction_order::handle object_order::place(const stored_object& o) { return o.order.place_; }

void object_order::place_at(stored_object& o, eviction_order::handle h) {
  o.order.place_ = h;
  if (placed_.size() <= h) placed_.resize(h + 1);
  placed_[h] = &o;
}

// ---- coming and going -------------------------------------------------------------------------------------

void object_order::enter(stored_object& o, const stored_object* parent, std::uint64_t named, double cost) {
  const bool elsewhere = is_elsewhere(named);
  const auto depth = parent ? this->depth(*parent) + 1 : elsewhere ? commons_->depth(named) + 1 : 0;
  place_at(o, order_.add(object_index::hash_of(o), cost / static_cast<double>(o.size), depth, o.owner));
  if (parent) order_.link(place(o), place(*parent));
  if (parent || elsewhere) o.order.parent_ = named;
  tell_chain(o);
}

void object_order::enter_again(stored_object& o, std::uint64_t parent, double worth, std::uint32_t depth) {
  place_at(o, order_.add(object_index::hash_of(o), worth, depth, o.owner));
  o.order.parent_ = parent;
  tell_chain(o);
  to_link_ = to_link_ || parent != 0;
}

void object_order::link_parents(const object_index& all) {
  if (!std::exchange(to_link_, false)) return;
  std::unordered_map<std::uint64_t, eviction_order::handle> by_name;
  all.each([&](const stored_object& o) { return by_name.emplace(object_index::hash_of(o), place(o)), true; });
  all.each([&](const stored_object& o) {
    const auto parent = o.order.parent_ == 0 ? by_name.end() : by_name.find(o.order.parent_);
    if (parent != by_name.end()) order_.link(place(o), parent->second);
    return true;
  });
}

void object_order::leave(stored_object& o, bool evicted) {
  leave_chain(o);
  order_.erase(place(o), evicted);
}

void object_order::hand_over(stored_object& was, stored_object& is) {
  stand(was, standing::held);
  std::swap(was.order.place_, is.order.place_);
  std::swap(was.order.parent_, is.order.parent_);
  std::swap(placed_[place(was)], placed_[place(is)]);
}

void object_order::used_like(stored_object& o, const stored_object& other) {
  o.order.counted_ = other.order.counted_;
  o.order.used_ = other.order.used_;
}

// ---- use --------------------------------------------------------------------------------------------------

bool object_order::use(stored_object& o, time_point now) {
  const bool counts = now - o.order.counted_ >= one_use_;
  if (counts) o.order.counted_ = now;
  o.order.used_ = now;
  order_.use(place(o), counts);
  return counts;
}

void object_order::use_beside(stored_object& o) { order_.use(place(o), false); }
void object_order::renew(stored_object& o) { order_.use(place(o), true); }
void object_order::set_used(stored_object& o, time_point now) { o.order.used_ = now; }

// ---- leaving ----------------------------------------------------------------------------------------------

stored_object* object_order::next(std::optional<std::uint32_t> owner) {
  for (;;) {
    const auto h = owner ? order_.victim_of(*owner) : order_.victim();
    if (h == eviction_order::none) return nullptr;
    if (!has_children_elsewhere(h)) return placed_[h];
  }
}

/// The last of its children says when it is gone.
bool object_order::has_children_elsewhere(eviction_order::handle h) {
  if (!commons_ || !commons_->is_followed(object_index::hash_of(*placed_[h]))) return false;
  order_.follow(h, true);
  followed_.insert(h);
  return true;
}

stored_object* object_order::next_followed(const victim_wish& from) const {
  auto best = eviction_order::none;
  const auto rank = [&](eviction_order::handle h) {
    return std::pair{order_.standing_of(h), placed_[h]->protection.lease_end()};
  };
  for (const auto h : followed_) {
    const auto& o = *placed_[h];
    if (order_.standing_of(h) == standing::held || order_.children(h) > 0 ||
        (from.owner && o.owner != *from.owner) || (from.in != 0 && !lies_in(o.memory, from.in)))
      continue;
    if (best == eviction_order::none || rank(h) < rank(best)) best = h;
  }
  return best == eviction_order::none ? nullptr : placed_[best];
}

void object_order::childless(stored_object& o) {
  followed_.erase(place(o));
  order_.follow(place(o), false);
}

// ---- chains -----------------------------------------------------------------------------------------------

bool object_order::is_elsewhere(std::uint64_t key) const {
  return commons_ && key != 0 && shard_of(key, shard_.count) != shard_.index;
}

void object_order::tell_chain(const stored_object& o) {
  const auto parent = o.order.parent_;
  if (commons_ && parent != 0)
    commons_->enter(object_index::hash_of(o), depth(o), parent, is_elsewhere(parent));
}

void object_order::leave_chain(const stored_object& o) {
  if (!commons_) return;
  followed_.erase(place(o));
  const auto parent = o.order.parent_;
  if (parent == 0 || !commons_->leave_chain(object_index::hash_of(o), parent, is_elsewhere(parent))) return;
  shard_message childless{shard_message::kind::childless, shard_.index};
  childless.hash = parent;
  commons_->post(shard_of(parent, shard_.count), std::move(childless));
}

}  // namespace mooncaf
