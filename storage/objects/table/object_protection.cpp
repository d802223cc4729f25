#include "storage/objects/table/object_protection.hpp"

#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

void object_protection::lease(stored_object& o, time_point until) {
  unlease(o);
  auto& s = o.protection;
  s.lease_end_ = until;
  s.leased_ = true;
  s.older_ = newest_;
  (s.older_ ? s.older_->protection.newer_ : oldest_) = &o;
  newest_ = &o;
  ++leases_;
}

void object_protection::unlease(stored_object& o) {
  auto& s = o.protection;
  if (!s.leased_) return;
  (s.older_ ? s.older_->protection.newer_ : oldest_) = s.newer_;
  (s.newer_ ? s.newer_->protection.older_ : newest_) = s.older_;
  s.older_ = s.newer_ = nullptr;
  s.leased_ = false;
  --leases_;
}

void object_protection::set_lease_end(stored_object& o, time_point end) { o.protection.lease_end_ = end; }

stored_object* object_protection::lease_ended(time_point now) {
  auto* const o = oldest_;
  if (!o || o->protection.lease_end_ > now) return nullptr;
  unlease(*o);
  return o;
}

stored_object* object_protection::next_lease(const stored_object& o) { return o.protection.newer_; }

void object_protection::pin(stored_object& o, bool hard, time_point soft_end, duration ttl, time_point now) {
  auto& s = o.protection;
  s.hard_ = hard;
  s.soft_end_ = soft_end;
  if (ttl.count() > 0 && ttl < time_point::max() - now) s.ttl_end_ = now + ttl;
}

void object_protection::pin_like(stored_object& o, const stored_object& other) {
  o.protection.hard_ = other.protection.hard_;
  o.protection.soft_end_ = other.protection.soft_end_;
  o.protection.ttl_end_ = other.protection.ttl_end_;
}

void object_protection::watch(stored_object& o, time_point now) {
  const auto& s = o.protection;
  if (s.has_ttl()) by_ttl_.insert({s.ttl_end_, &o});
  if (!s.hard_ && s.soft_end_ > now) by_soft_end_.insert({s.soft_end_, &o});
}

void object_protection::forget(stored_object& o) {
  unlease(o);
  by_ttl_.erase({o.protection.ttl_end_, &o});
  by_soft_end_.erase({o.protection.soft_end_, &o});
}

stored_object* object_protection::soft_pin_ended(time_point now) {
  if (by_soft_end_.empty() || by_soft_end_.begin()->first > now) return nullptr;
  auto* const o = by_soft_end_.begin()->second;
  by_soft_end_.erase(by_soft_end_.begin());
  return o;
}

stored_object* object_protection::expired(time_point now) const {
  return by_ttl_.empty() || by_ttl_.begin()->first > now ? nullptr : by_ttl_.begin()->second;
}

bool object_protection::consistent() const {
  std::size_t hanging = 0;
  const stored_object* before = nullptr;
  for (const auto* o = oldest_; o; before = o, o = o->protection.newer_, ++hanging)
    if (!o->protection.leased_ || o->protection.older_ != before) return false;
  return newest_ == before && hanging == leases_;
}

}  // namespace mooncaf
