#include "storage/objects/table/object_life.hpp"

#include <algorithm>
#include <map>

#include "storage/objects/table/object_books.hpp"

namespace mooncaf {

using standing = object_order::standing;

// ---- appears and leaves -----------------------------------------------------------------------------------

void object_life::show(stored_object& o, time_point now) {
  if (!o.writing.terms.moves) b_.order.set_used(o, now);
  b_.quotas.more(o.owner, &tenant_use::objects);
  b_.quotas.more(o.owner, &tenant_use::object_bytes, o.size);
  count_alone(o);
  b_.groups.shown(o);
  b_.protection.watch(o, now);
  offer(o, now);
}

void object_life::erase(stored_object& o, time_point free_at, time_point now, bool evicted) {
  b_.protection.forget(o);
  end_work(o, true, now);
  while (!o.disks.empty()) drop_from_disk(o, o.disks.back().replica());
  b_.groups.end_hold(o);
  b_.order.leave(o, evicted);
  b_.groups.leave(o);
  if (o.stay.alone_) b_.quotas.less(o.owner, &tenant_use::on_disk_alone);
  if (o.published()) {
    b_.quotas.less(o.owner, &tenant_use::objects);
    b_.quotas.less(o.owner, &tenant_use::object_bytes, o.size);
  } else {
    b_.quotas.less(o.owner, &tenant_use::reserved);
    if (o.writing.terms.moves) b_.quotas.less(o.owner, &tenant_use::moving_bytes, bytes_in_parts(o.memory));
    b_.writers.end(o);
  }
  for (const auto& part : o.memory) b_.space.give_back(part, free_at, now);
  b_.index.erase(o);
}

// ---- is protected -----------------------------------------------------------------------------------------

void object_life::lease(stored_object& o, time_point now) {
  if (!o.protection.leased()) b_.order.stand(o, standing::held);
  b_.protection.lease(o, now + b_.options.lease);
}

void object_life::end_lease(stored_object& o, time_point now) {
  b_.protection.unlease(o);
  b_.protection.set_lease_end(o, now);
}

time_point object_life::protected_until(const stored_object& o) {
  const auto own = o.protection.lease_end();
  return o.group.any() ? std::max(own, object_groups::leased_until(o)) : own;
}

bool object_life::holds_with_group(stored_object& o, time_point now) {
  const bool held = o.group.any() && b_.groups.holds(o, now);
  if (held) b_.order.stand(o, standing::held);
  return held;
}

void object_life::offer(stored_object& o, time_point now) {
  const auto& p = o.protection;
  const bool movable = !o.work.any() && !o.memory.empty();
  if (!p.hard() && !p.leased() && movable && !holds_with_group(o, now))
    b_.order.stand(o, p.soft_end() > now ? standing::soft : standing::plain);
}

void object_life::end_protection(stored_object& o, time_point now) {
  const bool leaves = o.stay.transient_ && !o.work.any() && !holds_with_group(o, now);
  leaves ? leave_memory(o, now) : offer(o, now);
}

void object_life::settle(time_point now) {
  while (auto* const o = b_.protection.lease_ended(now)) end_protection(*o, now);
  while (auto* const o = b_.groups.hold_ended(now))
    if (!o->protection.leased()) end_protection(*o, now);
  while (auto* const o = b_.protection.soft_pin_ended(now)) offer(*o, now);
}

// ---- is used ----------------------------------------------------------------------------------------------

void object_life::use(stored_object& o, bool counts) {
  o.stay.revocable_ = false;
  if (!counts) return;
  ++o.stay.hits_;
  if (o.disks.empty()) return;
  promote(o);
  b_.disks.rank_again(o);
}

void object_life::promote(stored_object& o) {
  if (!o.stay.transient_ || o.stay.hits_ < b_.disks.at(o.disks.front().segment).policy.promote_hits) return;
  o.stay.transient_ = false;
  b_.quotas.count(o.owner, &object_counts::promoted);
}

void object_life::came_from_disk(stored_object& o, std::span<const memory_part> parts, time_point now) {
  o.memory.insert(o.memory.end(), parts.begin(), parts.end());
  count_alone(o);
  o.stay.transient_ = true;
  promote(o);
  if (b_.journal)
    for (const auto& part : parts)
      b_.journal->published(part.segment, record_of(o, part, now), *o.key, object_groups::name(o));
  lease(o, now);
  o.stay.revocable_ = true;
}

// ---- memory -----------------------------------------------------------------------------------------------

void object_life::leave_memory(stored_object& o, time_point now) {
  for (const auto& part : o.memory) b_.space.give_back(part, now, now);
  o.memory.clear();
  b_.quotas.count(o.owner, &object_counts::demoted);
  count_alone(o);
  if (!o.stay.transient_) o.stay.hits_ = 0;  // else it has not earned its place yet
  o.stay.transient_ = o.stay.revocable_ = false;
  b_.order.stand(o, standing::held);
}

bool object_life::drop_replica(stored_object& o, const std::function<bool(const memory_part&)>& of_these,
                               time_point now) {
  const auto it = std::find_if(o.memory.begin(), o.memory.end(), of_these);
  if (it == o.memory.end() || replica_count(o.memory) < 2) return false;
  const auto one = *it;
  for (const auto& part : o.memory)
    if (part.one_with(one)) b_.space.give_back(part, protected_until(o), now);
  std::erase_if(o.memory, [&](const memory_part& part) { return part.one_with(one); });
  return true;
}

void object_life::lose_memory(stored_object& o, std::uint32_t segment, time_point now) {
  auto stays = without_replicas_in(segment, o.memory);
  if (stays.size() == o.memory.size()) return;
  const auto read_until = o.published() ? protected_until(o) : now + b_.options.quarantine;
  for (const auto& part : o.memory) {
    const auto same = [&](const memory_part& s) { return s.one_with(part); };
    if (part.segment == segment) b_.space.lose(part);
    else if (std::none_of(stays.begin(), stays.end(), same)) b_.space.give_back(part, read_until, now);
  }
  if (!o.published() && o.writing.terms.moves)
    b_.quotas.less(o.owner, &tenant_use::moving_bytes, bytes_in_parts(o.memory) - bytes_in_parts(stays));
  o.memory = std::move(stays);
  if (o.memory.empty() && !o.disks.empty()) b_.order.stand(o, standing::held);
}

void object_life::count_alone(stored_object& o) {
  const bool alone = o.published() && o.memory.empty();
  if (alone == o.stay.alone_) return;
  o.stay.alone_ = alone;
  alone ? b_.quotas.more(o.owner, &tenant_use::on_disk_alone)
        : b_.quotas.less(o.owner, &tenant_use::on_disk_alone);
}

// ---- SSD --------------------------------------------------------------------------------------------------

void object_life::put_on_disk(stored_object& o, std::span<const disk_part> replica) {
  if (o.disks.empty()) b_.disks.rank_first(o, b_.order.depth(o));
  for (const auto& part : replica) {
    b_.disks.put(o, part);
    o.disks.push_back(part);
  }
}

void object_life::drop_from_disk(stored_object& o, std::uint64_t replica) {
  const auto of_it = [&](const disk_part& part) { return part.replica() == replica; };
  for (const auto& part : o.disks) {
    if (!of_it(part)) continue;
    b_.disks.take_off(o, part);
    if (b_.journal) b_.journal->erased(part.segment, part.ticket, *o.key);
  }
  std::erase_if(o.disks, of_it);
  settle_in_memory(o);
}

void object_life::settle_in_memory(stored_object& o) {
  if (o.disks.empty()) o.stay.transient_ = false;
}

void object_life::end_work(stored_object& o, bool given_up, time_point now) {
  if (!o.work.any()) return;
  for (const auto& done : b_.work.finish(o)) {
    for (const auto& room : done.room) b_.space.give_back(room, now, now);
    if (done.loads) continue;
    if (given_up && !done.bad && b_.journal) b_.journal->erased(done.part.segment, done.part.ticket, *o.key);
    b_.disks.end_save(done.part.segment, o.owner, done.part.size);
  }
  b_.work.set_going(o, 0);
}

// ---- is told of -------------------------------------------------------------------------------------------

segment_record object_life::record_of(const stored_object& o, const memory_part& part, time_point now) const {
  segment_record r;
  r.ticket = part.ticket;
  r.offset = part.extent.offset;
  r.size = part.size;
  r.version = o.version;
  r.object_size = o.size;
  r.at = part.at;
  r.copy = part.copy;
  r.published = o.published();
  r.hard_pin = o.protection.hard();
  r.checksum = o.checksum;
  r.soft_pin_for = std::max(o.protection.soft_end() - now, duration{});
  if (o.protection.has_ttl()) r.ttl = std::max(o.protection.ttl_end() - now, duration{1});
  r.parent = o.order.parent();
  r.depth = b_.order.depth(o);
  r.worth = static_cast<float>(b_.order.worth(o));
  return r;
}

segment_record object_life::record_on_disk(const stored_object& o, const disk_part& part,
                                           time_point now) const {
  auto r = record_of(o, {}, now);
  r.ticket = part.ticket;
  r.copy = part.number;
  r.at = part.at;
  r.size = part.size;
  return r;
}

void object_life::changed(std::string_view key) {
  b_.lone.forget(key);
  if (b_.journal) b_.journal->changed(key);
}

// ---- for tests --------------------------------------------------------------------------------------------

bool object_life::sound(const stored_object& o) const {
  const auto& p = o.protection;
  if (o.memory.empty() && o.disks.empty()) return false;
  if (!are_whole_replicas(o.memory, o.size) || (!o.published() && (p.leased() || o.work.any()))) return false;
  const bool protects = p.hard() || p.leased() || object_groups::is_held(o);
  const bool may_go = o.published() && !protects && !o.work.any() && !o.memory.empty();
  if (may_go != (b_.order.standing_of(o) != standing::held)) return false;
  if (o.owner != b_.quotas.number_of(*o.key) || o.stay.alone_ != (o.published() && o.memory.empty()))
    return false;
  if (o.stay.transient_ && o.disks.empty()) return false;
  std::map<std::uint32_t, std::uint64_t> replica_on;
  for (const auto replica : replicas_on_disks(o.disks)) {
    std::uint64_t next = 0;
    for (const auto& part : replica) {
      if (part.at != std::exchange(next, part.at + part.size)) return false;
      if (replica_on.emplace(part.segment, part.replica()).first->second != part.replica()) return false;
      if (!b_.disks.is_ranked(o, part.segment)) return false;
    }
    if (next != o.size) return false;
  }
  return true;
}

// Recounts from the objects, without any of the counters that it checks.
bool object_life::consistent(std::vector<tenant_use>& uses) const {
  std::map<std::uint32_t, std::uint64_t> used;
  std::map<std::uint32_t, std::size_t> on_disk;
  std::size_t grouped = 0, held = 0, leased = 0, open = 0, working = 0;
  bool good = true;
  const auto take = [&](const memory_part& part) {
    uses[part.owner].used_bytes += part.bytes;
    uses[part.owner].replicas += part.at == 0;
  };
  const auto add = [&](const stored_object& o) {
    good = sound(o);
    if (!good) return false;
    auto& u = uses[o.owner];
    for (const auto& part : o.memory) take(part);
    ++(o.published() ? u.objects : u.reserved);
    u.object_bytes += o.published() ? o.size : 0;
    if (!o.published() && o.writing.terms.moves) u.moving_bytes += bytes_in_parts(o.memory);
    u.leaving_bytes += o.work.going();
    u.leaving += o.work.going() != 0;
    u.on_disk_alone += o.stay.alone_;
    std::map<std::uint32_t, bool> there;
    for (const auto& part : o.disks) {
      used[part.segment] += part.size;
      u.disk_bytes += part.size;
      on_disk[part.segment] += there.emplace(part.segment, true).second;
    }
    grouped += o.group.any();
    held += object_groups::is_held(o);
    leased += o.protection.leased();
    open += !o.published();
    working += o.work.parts().size();
    return true;
  };
  b_.index.each([&](const stored_object& o) { return (good = !o.beside) && add(o); });
  if (good)
    b_.index.each_beside(
        [&](const stored_object& o) { return (good = o.beside && !o.published()) && add(o); });
  if (!good) return false;
  for (const auto& part : b_.work.all()) {
    for (const auto& room : part.room) take(room);
    if (!part.of) continue;
    const auto same = [&](const disk_part& p) { return p.segment == part.disk && p.ticket == part.ticket; };
    const auto& parts = part.of->work.parts();
    const auto found = std::find_if(parts.begin(), parts.end(), same);
    if (found == parts.end()) return false;
    --working;
    if (part.loads) continue;
    used[part.disk] += found->size;
    uses[part.of->owner].disk_bytes += found->size;
  }
  b_.lone.each([&](const lone_part& one) {
    used[one.part.segment] += one.part.size;
    uses[one.owner].disk_bytes += one.part.size;
  });
  return b_.disks.agrees_with(used, on_disk) && b_.protection.consistent() && b_.order.consistent() &&
         grouped == b_.groups.members_of_all() && held == b_.groups.held() &&
         leased == b_.protection.leases() && open == b_.writers.size() && working == 0;
}

}  // namespace mooncaf
