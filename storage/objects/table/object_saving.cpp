#include "storage/objects/table/object_saving.hpp"

#include <algorithm>
#include <utility>

#include "storage/objects/table/object_books.hpp"

namespace mooncaf {

object_saving::object_saving(object_books& books, object_life& life)
    : life_(life),
      order_(books.order),
      space_(books.space),
      disks_(books.disks),
      work_(books.work),
      lone_(books.lone),
      writers_(books.writers),
      quotas_(books.quotas),
      journal_(books.journal) {}

object_saving::bytes_by_disk object_saving::by_disk(std::span<const disk_run> parts) {
  bytes_by_disk bytes;
  for (const auto& one : parts) bytes[one.part.segment] += one.part.size;
  return bytes;
}

std::vector<std::vector<disk_run>> object_saving::runs(const stored_object& o) const {
  return runs_to_save(o.memory, [&](std::uint32_t segment) { return space_.ssd_beside(segment); });
}

void object_saving::save_by_policy(stored_object& o, time_point now) {
  if (o.memory.empty() || !o.disks.empty() || o.work.any() || !o.published()) return;
  const auto beside = space_.ssd_beside(o.memory.front().segment);
  if (beside == 0) return;
  const auto& policy = disks_.at(beside).policy;
  if (writes_on_commit(policy.write) || writes_on_use(policy.write, o.stay.hits(), policy.save_hits))
    static_cast<void>(save(o, false, now));
}

bool object_saving::save(stored_object& o, bool leaving, time_point now) {
  for (auto& parts : runs(o)) {
    const auto bytes = by_disk(parts);
    const auto takes = [&](const auto& one) {
      const auto& [id, n] = one;
      return disks_.may_save(id, n, now) &&
             disks_.has_time_for(id, n, space_.usable_bytes(disks_.at(id).beside));
    };
    if (!std::all_of(bytes.begin(), bytes.end(), takes) || !take_room(o.owner, bytes, now)) continue;
    std::uint64_t going = 0;
    for (const auto& part : o.memory) going += part.bytes;
    if (leaving) work_.set_going(o, going);
    order_.stand(o, object_order::standing::held);
    const auto replica = writers_.new_ticket(parts.size());
    for (auto& [part, from] : parts) {
      part.ticket = replica + part.number;
      work_.add_save(o, part);
      if (journal_)
        journal_->save(part.segment, life_.record_on_disk(o, part, now), *o.key, object_groups::name(o),
                       places_of(from));
    }
    return true;
  }
  return false;
}

object_saving::parting object_saving::save_to_leave(stored_object& o, time_point now) {
  if (o.size > quotas_.limit(o.owner).disk_bytes) return parting::lost;
  for (const auto& parts : runs(o)) {
    bool wanted = true, under_way = false;
    for (const auto& [id, bytes] : by_disk(parts)) {
      wanted = wanted && disks_.at(id).policy.write != write_policy::write_through_selective &&
               disks_.may_save(id, bytes, now);
      under_way = under_way || disks_.under_way(id) > 0;
    }
    if (!wanted) continue;
    if (save(o, true, now)) return parting::saved;
    if (under_way || quotas_.asks_for_disk(o.owner)) return parting::late;
  }
  return parting::lost;
}

void object_saving::end_save(stored_object& o, bool good, time_point now) {
  const bool leaving = o.work.going() > 0;
  const auto parts = o.work.parts();
  life_.end_work(o, !good, now);  // gives the room back; taken anew below
  quotas_.count(o.owner, good ? &object_counts::saved : &object_counts::save_failures);
  if (good) {
    quotas_.count(o.owner, &object_counts::saved_bytes, o.size);
    lone_.forget(*o.key);
    life_.put_on_disk(o, parts);
  }
  if (o.protection.leased() || life_.holds_with_group(o, now)) return;
  if (good && leaving) life_.leave_memory(o, now);
  else life_.offer(o, now);
}

// ---- room on SSDs -----------------------------------------------------------------------------------------

/// On all of these, or on none.
bool object_saving::take_room(std::uint32_t owner, const bytes_by_disk& bytes, time_point now) {
  for (auto at = bytes.begin(); at != bytes.end(); ++at) {
    if (make_room(at->first, owner, at->second, now)) {
      disks_.begin_save(at->first, owner, at->second);
      continue;
    }
    for (auto taken = bytes.begin(); taken != at; ++taken)
      disks_.end_save(taken->first, owner, taken->second);
    return false;
  }
  return true;
}

/// Makes room within the tenant's share of all SSDs, from its own objects, and on this SSD, from all objects;
/// parts that no client can see go first.
bool object_saving::make_room(std::uint32_t disk, std::uint32_t owner, std::uint64_t bytes, time_point now) {
  const auto limit = quotas_.limit(owner).disk_bytes;
  if (bytes > limit || bytes > disks_.at(disk).bytes) return false;
  const quota_use room{0, 0, bytes};
  if (!quotas_.claim(owner, room)) {
    make_way(
        owner, [&] { return quotas_.use_of_all(owner).disk_bytes <= limit - bytes; }, now);
    if (!quotas_.claim(owner, room)) return quotas_.ask_others(owner, room, false, now), false;
  }
  const auto fits = [&] { return bytes <= disks_.free_bytes(disk); };
  while (!fits() && lone_.forget_one_on(disk)) {
  }
  if (!fits()) give_up(disks_.walk_disk(disk), fits, now);
  return fits();
}

void object_saving::fit(std::uint32_t disk, std::uint64_t bytes, time_point now) {
  const auto fits = [&] { return disks_.used(disk) <= bytes; };
  while (!fits() && lone_.forget_one_on(disk)) {
  }
  if (!fits()) give_up(disks_.walk_disk(disk), fits, now);
  disks_.resize(disk, std::max(bytes, disks_.used(disk)));
}

void object_saving::make_way(std::uint32_t owner, const std::function<bool()>& enough, time_point now) {
  if (!enough())
    lone_.forget_if([&](std::string_view key) { return quotas_.number_of(key) == owner && !enough(); });
  if (!enough()) give_up(disks_.walk_tenant(owner), enough, now);
}

void object_saving::give_up(disk_space::walk from, const std::function<bool()>& enough, time_point now) {
  while (!enough()) {
    const auto next = from.next();
    if (!next) return;
    auto& o = *next->object;
    const bool last = o.memory.empty() && replicas_on_disks(o.disks).size() == 1;
    if (o.work.any() || (o.memory.empty() && o.protection.leased()) || (last && o.protection.hard()))
      continue;
    quotas_.count(o.owner, &object_counts::disk_evictions);
    const auto there = [&](const disk_part& part) { return part.segment == next->disk; };
    if (last) life_.erase(o, now, now, true);
    else life_.drop_from_disk(o, std::find_if(o.disks.begin(), o.disks.end(), there)->replica());
  }
}

}  // namespace mooncaf
