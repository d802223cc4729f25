#include "storage/objects/table/object_groups.hpp"

#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

void object_groups::join(stored_object& o, std::string_view name) {
  auto at = groups_.find(name);
  if (at == groups_.end()) at = groups_.try_emplace(std::string{name}).first;
  auto& g = at->second;
  g.all.insert(&o);
  o.group.in_ = &*at;
  if (!commons_ || g.shared) return;
  g.shared = &commons_->join(name, shard_.index);
  g.followed = g.shared->left();
}

void object_groups::leave(stored_object& o) {
  auto* const from = std::exchange(o.group.in_, nullptr);
  if (!from) return;
  from->second.all.erase(&o);
  if (!from->second.all.empty()) return;
  if (commons_) commons_->leave(from->first, shard_.index);
  groups_.erase(groups_.find(from->first));
}

std::string_view object_groups::name(const stored_object& o) {
  return o.group.in_ ? std::string_view{o.group.in_->first} : std::string_view{};
}

const object_groups::members& object_groups::with(const stored_object& o) { return o.group.in_->second.all; }

void object_groups::shown(stored_object& o) {
  if (o.group.in_) o.group.in_->second.leased_at = {};
}

bool object_groups::first_use_at(stored_object& o, time_point now) {
  return std::exchange(o.group.in_->second.leased_at, now) != now;
}

// ---- other shards -----------------------------------------------------------------------------------------

bool object_groups::lease(stored_object& o, time_point until) {
  if (!o.group.in_ || !o.group.in_->second.shared) return true;
  const auto& g = o.group.in_->second;
  return g.shared->lease(until, g.followed);
}

time_point object_groups::leased_until(const stored_object& o) {
  return o.group.in_ && o.group.in_->second.shared ? o.group.in_->second.shared->leased_until()
                                                   : time_point::min();
}

object_groups::left_elsewhere object_groups::news(stored_object& o) {
  if (!o.group.in_ || !o.group.in_->second.shared) return {};
  auto& g = o.group.in_->second;
  const auto left = g.shared->left();
  if (left == g.followed) return {};
  const bool soft = left.soft != g.followed.soft;
  g.followed = left;
  return {true, soft};
}

bool object_groups::holds(stored_object& o, time_point now) {
  if (!o.group.in_ || !o.group.in_->second.shared) return false;
  const auto until = leased_until(o);
  if (until <= now) return o.group.held_until_ > now;
  if (o.group.held_until_ == until) return true;
  end_hold(o);
  o.group.held_until_ = until;
  by_end_.insert({until, &o});
  return true;
}

void object_groups::end_hold(stored_object& o) {
  if (is_held(o)) by_end_.erase({std::exchange(o.group.held_until_, {}), &o});
}

bool object_groups::is_held(const stored_object& o) { return o.group.held_until_ != time_point{}; }

stored_object* object_groups::hold_ended(time_point now) {
  if (by_end_.empty() || by_end_.begin()->first > now) return nullptr;
  auto* const o = by_end_.begin()->second;
  end_hold(*o);
  return o;
}

shared_group::outcome object_groups::give_up(stored_object& o, bool soft, time_point now) {
  using outcome = shared_group::outcome;
  if (!o.group.in_ || !o.group.in_->second.shared) return outcome::given_up;
  auto& g = o.group.in_->second;
  const auto became = g.shared->give_up(soft, g.followed, now);
  if (became != outcome::given_up) return became;
  const auto in = g.shared->shards();
  for (std::uint32_t s = 0; s < commons_->count(); ++s) {
    if (s == shard_.index || (in >> s & 1) == 0) continue;
    shard_message left{shard_message::kind::group_left, shard_.index};
    left.group = o.group.in_->first;
    commons_->post(s, std::move(left));
  }
  return became;
}

stored_object* object_groups::any_of(std::string_view name) const {
  const auto g = groups_.find(name);
  return g == groups_.end() ? nullptr : *g->second.all.begin();
}

std::size_t object_groups::members_of_all() const {
  std::size_t n = 0;
  for (const auto& [name, g] : groups_) n += g.all.size();
  return n;
}

}  // namespace mooncaf
