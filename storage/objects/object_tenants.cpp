// Whose objects there are, and how much each may have: the part of `object_table` that counts by tenant.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

std::uint32_t object_table::owner(std::string_view tenant) {
  if (tenant.empty()) return 0;
  const auto [at, fresh] =
      owner_numbers_.try_emplace(std::string{tenant}, static_cast<std::uint32_t>(owners_.size()));
  if (fresh) owners_.emplace_back().name = tenant;
  return at->second;
}

std::uint32_t object_table::owner_of(std::string_view name) const {
  if (name.empty() || name.front() != '\0') return 0;
  const auto found = owner_numbers_.find(split_name(name).tenant);
  return found == owner_numbers_.end() ? 0 : found->second;
}

tenant_view object_table::tenant(std::uint32_t owner) const {
  const auto& who = owners_[owner];
  tenant_view t{who.name, who.limit, who.seen};
  const bool shared = commons_ && commons_->bounds(owner);
  t.counts.total_bytes = std::min(who.limit.bytes, shared ? commons_->lent_memory() : total_bytes_);
  t.counts.free_bytes = t.counts.total_bytes - std::min(t.counts.total_bytes, use_of_all(owner).bytes);
  t.counts.quarantined_bytes = who.resting_bytes;
  t.counts.disk_bytes = who.disk_bytes;
  for (const auto& [id, s] : segments_) t.counts.disk_total_bytes += s.ssd ? s.ssd->bytes : 0;
  if (shared) t.counts.disk_total_bytes = commons_->lent_disks();
  t.counts.disk_total_bytes = std::min(who.limit.disk_bytes, t.counts.disk_total_bytes);
  if (!shared) return t;
  // What all shards have in common each tells a part of: who asks them all adds up.
  for (const auto limit : {&tenant_limit::bytes, &tenant_limit::objects, &tenant_limit::disk_bytes})
    if (t.limit.*limit != ~std::uint64_t{0}) t.limit.*limit = options_.shard.part_of(t.limit.*limit);
  for (const auto figure :
       {&object_counts::total_bytes, &object_counts::free_bytes, &object_counts::disk_total_bytes})
    t.counts.*figure = options_.shard.part_of(t.counts.*figure);
  return t;
}

void object_table::count(std::uint32_t owner, std::uint64_t object_counts::*what, std::uint64_t n) {
  seen_.*what += n;
  owners_[owner].seen.*what += n;
}

std::uint64_t object_table::bytes_in(const std::vector<held>& memory) {
  std::uint64_t n = 0;
  for (const auto& part : memory) n += part.owner == 0 ? 0 : part.bytes;
  return n;
}

/// By its first stripe, until it rests.
void object_table::count_replica(const held& part, bool more) {
  if (part.at != 0 || part.rests) return;
  for (auto* const counts : {&seen_, &owners_[part.owner].seen})
    more ? ++counts->replicas : --counts->replicas;
}

void object_table::take(const held& part) {
  touch(part.owner);
  count_replica(part, true);
  used_bytes_ += part.bytes;
  taken_bytes_ += part.bytes;
  owners_[part.owner].used_bytes += part.bytes;
  auto& by = segments_.at(part.segment).used_by;
  if (by.size() <= part.owner) by.resize(part.owner + 1);
  by[part.owner] += part.bytes;
}

void object_table::untake(const held& part) {
  touch(part.owner);
  count_replica(part, false);
  used_bytes_ -= part.bytes;
  owners_[part.owner].used_bytes -= part.bytes;
  segments_.at(part.segment).used_by[part.owner] -= part.bytes;
}

/// What a tenant writes comes through other hands, which may not have heard yet that it is to write no more.
time_point object_table::free_after_writing(const object& o, time_point now) const {
  return o.owner == 0 ? now : now + options_.quarantine;
}

/// What of a tenant's lies on SSD alone takes up nothing that is bounded. To be called when that may have
/// changed.
void object_table::count_alone(object& o) {
  const bool alone = o.ticket == 0 && o.memory.empty();
  if (alone != o.alone) touch(o.owner);
  owners_[o.owner].on_disk_alone += alone;
  owners_[o.owner].on_disk_alone -= o.alone;
  o.alone = alone;
}

/// What is being saved may go when that is done. @cost O(all that disks are at work on)
bool object_table::is_saving(std::uint32_t owner) const {
  return std::ranges::any_of(disk_work_, [&](const auto& at) {
    const auto& [which, work] = at;
    return !work.loads && work.of && work.of->second.owner == owner;
  });
}

/// Room in the tenant's quota, which is taken at once where it is there; its own objects make way for it.
/// @returns none if that is not enough; what it, or another shard, is busy with otherwise.
object_table::way object_table::make_way(std::uint32_t owner, std::uint64_t bytes, bool another_object,
                                         bool lossy, time_point now) {
  const quota_use room{bytes, another_object ? 1u : 0u};
  if (bytes > owners_[owner].limit.bytes) return way::none;
  for (;;) {
    if (claim(owner, room)) return way::made;
    const auto& who = owners_[owner];
    if (!lossy && fits_quota(owner, room, who.leaving_bytes, who.leaving)) return way::coming;
    if (!lossy && colder_elsewhere(owner, now) && ask_others(owner, room, false, now)) return way::late;
    auto made = evict_one(now, lossy, {owner});
    const bool waits = made == way::none && (who.leaving > 0 || (!lossy && is_saving(owner)));
    if (made == way::late || waits) return way::late;
    if (made == way::none && ask_others(owner, room, lossy, now)) return way::late;
    if (made == way::none) made = evict_one(now, lossy, {owner, 0, true});
    if (made == way::none) return made;
  }
}

/// @param leaving_bytes  of what is there, and is not counted; `leaving` objects.
bool object_table::fits_quota(std::uint32_t owner, const quota_use& room, std::uint64_t leaving_bytes,
                              std::uint64_t leaving) const {
  const auto& limit = owners_[owner].limit;
  const auto used = use_of_all(owner);
  return used.bytes - leaving_bytes <= limit.bytes - room.bytes &&
         (room.objects == 0 || used.objects - leaving < limit.objects);
}

/// A directory that has begun with lower quotas finds more than they allow. Where there are several shards,
/// those make way that have more than their even part.
void object_table::keep_quotas(time_point now) {
  for (std::uint32_t owner = 1; owner < owners_.size(); ++owner) {
    const auto& limit = owners_[owner].limit;
    const auto& shard = options_.shard;
    const tenant_limit part{shard.part_of(limit.bytes), shard.part_of(limit.objects),
                            shard.part_of(limit.disk_bytes)};
    const auto over = [](const quota_use& u, const tenant_limit& l) {
      return u.bytes - u.passing_bytes > l.bytes || u.objects - u.passing_objects > l.objects;
    };
    const auto too_much = [&] {
      tell(owner);
      return over(use_of_all(owner), limit) && (!commons_ || over(own_use(owner), part));
    };
    for (auto made = way::made; too_much() && (made == way::made || made == way::coming);)
      made = evict_one(now, false, {owner});
    const auto fits = [&] {
      tell(owner);
      return use_of_all(owner).disk_bytes <= limit.disk_bytes ||
             (commons_ && own_use(owner).disk_bytes <= part.disk_bytes);
    };
    make_way_on_disks(owner, fits, now);
  }
}

bool object_table::owners_agree() const {
  std::vector<std::uint64_t> held_bytes(owners_.size()), shown(owners_.size()), reserved(owners_.size()),
      resting(owners_.size()), moving(owners_.size()), leaving_bytes(owners_.size()), leaving(owners_.size()),
      alone(owners_.size());
  for (const auto* const all : {&objects_, &replacing_}) {
    for (const auto& [key, o] : *all) {
      for (const auto& part : o.memory) held_bytes[part.owner] += part.bytes;
      ++(o.ticket == 0 ? shown : reserved)[o.owner];
      if (o.ticket != 0 && o.moves) moving[o.owner] += bytes_in(o.memory);
      leaving_bytes[o.owner] += o.going;
      leaving[o.owner] += o.going != 0;
      alone[o.owner] += o.alone;
      if (o.owner != owner_of(key) || o.alone != (o.ticket == 0 && o.memory.empty())) return false;
    }
  }
  for (const auto& [key, some] : stripes_)
    for (const auto& s : some) held_bytes[s.part.owner] += s.part.bytes;
  for (const auto& [which, work] : disk_work_)
    for (const auto& part : work.room) held_bytes[part.owner] += part.bytes;
  for (const auto& [at, part] : quarantine_) resting[part.owner] += part.bytes;
  std::uint64_t by_segment = 0, used = 0;
  for (const auto& [id, s] : segments_)
    for (const auto n : s.used_by) by_segment += s.ssd ? 0 : n;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    const auto& who = owners_[i];
    used += who.used_bytes;
    if (who.used_bytes != held_bytes[i] + resting[i] || who.moving_bytes != moving[i] ||
        who.leaving_bytes != leaving_bytes[i] || who.leaving != leaving[i] || who.on_disk_alone != alone[i] ||
        who.resting_bytes != resting[i] || who.seen.objects != shown[i] || who.seen.reserved != reserved[i])
      return false;
  }
  return used == used_bytes_ && by_segment == used_bytes_;
}

}  // namespace mooncaf
