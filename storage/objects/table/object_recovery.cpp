#include "storage/objects/table/object_recovery.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "storage/objects/table/object_books.hpp"
#include "storage/objects/table/object_puts.hpp"
#include "storage/objects/terms/key_scope.hpp"

namespace mooncaf {

namespace {

/// Whether a directory could have told a holder this record of a published object.
bool makes_sense(const segment_record& r) {
  const auto bytes_of = [](std::string_view name) { return split_name(name).key.size(); };
  return object_puts::is_key(r.key) && bytes_of(r.group) <= object_puts::key_bytes_max &&
         r.size <= r.object_size && r.at <= r.object_size - r.size;
}

}  // namespace

/// The first that is heard of an object of an earlier directory's.
void object_recovery::begin_again(stored_object& o, const segment_record& r, std::uint32_t owner,
                                  time_point lease_end, time_point now) {
  o.owner = owner;
  o.size = r.object_size;
  o.checksum = r.checksum;
  o.version = r.version;
  b_.protection.set_lease_end(o, lease_end);
  object_protection::pin(o, r.hard_pin, now + std::clamp(r.soft_pin_for, duration{}, b_.options.soft_pin_max),
                         r.ttl, now);
  if (!r.group.empty()) b_.groups.join(o, r.group);
  b_.order.enter_again(o, r.parent, static_cast<double>(r.worth), r.depth);
}

// ---- memory -----------------------------------------------------------------------------------------------

bool object_recovery::recover(std::uint32_t id, segment_record&& r, time_point now) {
  if (r.published && !makes_sense(r)) return false;
  auto part = b_.space.claim(id, r.offset, r.size);
  if (!part) return false;
  part->at = r.at;
  part->ticket = r.ticket;
  part->copy = r.copy;
  part->owner = b_.quotas.number(r.published ? split_name(r.key).tenant : std::string_view{});
  b_.space.take(*part);
  b_.writers.seen(std::max(r.ticket, r.version));
  if (!r.published) {
    b_.space.give_back(*part, now + std::max(b_.options.lease, b_.options.quarantine), now);
    return true;
  }
  auto key = std::move(r.key);
  if (r.size == r.object_size) return take_in(std::move(key), r, {&*part, 1}, now);
  stripes_[std::move(key)].push_back({*part, std::move(r)});
  return true;
}

/// A whole replica. @returns whether it agrees with other segments' records.
bool object_recovery::take_in(std::string&& name, const segment_record& r, std::span<const memory_part> parts,
                              time_point now) {
  // The earlier directory may have granted a lease that this one has not heard of.
  const auto read_until = now + b_.options.lease;
  b_.index.expect_many();
  auto [o, fresh] = b_.index.add(std::move(name));
  if (!fresh && o->version < r.version) {
    std::string key = *o->key;
    life_.erase(*o, read_until, now);
    o = b_.index.add(std::move(key)).first;
  } else if (!fresh) {
    const bool again = std::any_of(parts.begin(), parts.end(), [&, at = o](const memory_part& part) {
      return lies_in(at->memory, part.segment);
    });
    const bool replica = o->version == r.version;
    if (!replica || again || o->size != r.object_size || o->checksum != r.checksum) {
      for (const auto& part : parts) b_.space.give_back(part, read_until, now);
      return !replica;
    }
    o->memory.insert(o->memory.end(), parts.begin(), parts.end());
    life_.count_alone(*o);
    life_.offer(*o, now);
    b_.quotas.count(&object_counts::recovered, parts.size());
    return true;
  }
  begin_again(*o, r, parts.front().owner, read_until, now);
  o->memory.assign(parts.begin(), parts.end());
  b_.quotas.count(&object_counts::recovered, parts.size());
  life_.show(*o, now);
  return true;
}

void object_recovery::end_recovery(time_point now) {
  for (auto& [key, some] : std::exchange(stripes_, {})) {
    std::sort(some.begin(), some.end(), [](const stripe& a, const stripe& b) {
      return std::tie(a.part.ticket, a.part.copy, a.part.at) <
             std::tie(b.part.ticket, b.part.copy, b.part.at);
    });
    for (std::size_t i = 0; i < some.size();) {
      const auto& first = some[i].record;
      std::vector<memory_part> parts;
      std::uint64_t next = 0;
      bool fits = true;
      for (; i < some.size() && (parts.empty() || some[i].part.one_with(parts.front())); ++i) {
        const auto& r = some[i].record;
        fits = fits && r.at == next && r.object_size == first.object_size && r.checksum == first.checksum &&
               r.version == first.version;
        next += r.size;
        parts.push_back(some[i].part);
      }
      if (fits && next == first.object_size) take_in(std::string{key}, first, parts, now);
      else
        for (const auto& part : parts) b_.space.give_back(part, now + b_.options.lease, now);
    }
  }
}

void object_recovery::lose_segment(std::uint32_t segment) {
  for (auto& [key, some] : stripes_)
    std::erase_if(some, [&](const stripe& s) {
      if (s.part.segment == segment) b_.space.lose(s.part);
      return s.part.segment == segment;
    });
}

// ---- SSD --------------------------------------------------------------------------------------------------

bool object_recovery::recover_on_disk(std::uint32_t id, segment_record&& r, bool stale, time_point now) {
  b_.quotas.count(&object_counts::disk_stale, stale);
  if (stale) b_.lone.forget(r.key, r.version);  // the others of its object
  const bool whole = r.size == r.object_size;
  if (stale || !r.published || r.size == 0 || !makes_sense(r) || (whole && r.copy != 0) ||
      r.copy >= r.ticket || r.size > b_.disks.free_bytes(id) || r.ttl.count() < 0)
    return false;
  b_.writers.seen(std::max(r.ticket, r.version));
  const disk_part part{id, r.ticket, r.at, r.size, r.copy};
  if (whole) return take_in_on_disk(std::move(r.key), r, {&part, 1}, now);
  const auto key = std::exchange(r.key, {});
  return join_others(key, {part, std::move(r), b_.quotas.number(split_name(key).tenant), now}, now);
}

/// A replica. @returns whether there is no other value, or another replica on one of these SSDs.
bool object_recovery::take_in_on_disk(std::string&& key, const segment_record& r,
                                      std::span<const disk_part> parts, time_point now) {
  const auto [o, fresh] = b_.index.add(std::move(key));
  const auto is_there = [&](const disk_part& had) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const disk_part& part) { return part.segment == had.segment; });
  };
  const auto any_there = [&](const std::vector<disk_part>& some) {
    return std::any_of(some.begin(), some.end(), is_there);
  };
  if (!fresh && (!o->published() || o->version != r.version || o->size != r.object_size ||
                 o->checksum != r.checksum || any_there(o->disks) || any_there(o->work.parts())))
    return false;
  b_.quotas.count(&object_counts::disk_recovered, 1);
  if (fresh) begin_again(*o, r, b_.quotas.number(split_name(*o->key).tenant), now, now);
  life_.put_on_disk(*o, parts);
  if (fresh) life_.show(*o, now);
  return true;
}

/// Joins the part with the waiting ones; objects that are complete with it appear. @returns whether the part
/// may be of use, or was.
bool object_recovery::join_others(const std::string& key, lone_part&& fresh, time_point now) {
  const auto* const there = b_.index.find(key);
  if (there && (!there->published() || !there->disks.empty() || there->version != fresh.record.version))
    return false;
  const auto replica = fresh.part.replica();
  b_.lone.add(key, std::move(fresh));
  const auto all = b_.lone.of_replica(key, replica);
  const auto& first = all.front();
  std::vector<disk_part> parts;
  std::uint64_t next = 0;
  bool agree = true;
  for (const auto& one : all) {
    const auto& r = one.record;
    agree = agree && r.version == first.record.version && r.object_size == first.record.object_size &&
            r.checksum == first.record.checksum && r.at >= next && one.part.number >= parts.size();
    if (agree && r.at > next) return true;  // a part in between is away
    agree = agree && one.part.number == parts.size();
    next = r.at + r.size;
    parts.push_back(one.part);
  }
  if (agree && next < first.record.object_size) return true;
  auto record = first.record;
  const auto waited = now - first.came;
  const bool expired = record.ttl.count() > 0 && record.ttl <= waited;
  record.ttl -= record.ttl.count() > 0 ? waited : duration{};
  record.soft_pin_for = std::max(record.soft_pin_for - waited, duration{});
  for (const auto& part : parts) b_.lone.take_out(key, part);
  const bool taken = agree && !expired && take_in_on_disk(std::string{key}, record, parts, now);
  for (const auto& part : parts)
    if (!taken && b_.journal) b_.journal->erased(part.segment, part.ticket, key);
  return true;
}

void object_recovery::lose_disk(stored_object& o, std::uint32_t id, time_point now) {
  const auto there = [&](const disk_part& part) { return part.segment == id; };
  const auto first = std::find_if(o.disks.begin(), o.disks.end(), there);
  if (first == o.disks.end()) return;
  const auto replica = first->replica();
  std::vector<lone_part> others;
  for (const auto& part : o.disks) {
    if (part.replica() != replica) continue;
    b_.disks.take_off(o, part);
    if (there(part)) continue;
    others.push_back({part, life_.record_on_disk(o, part, now), o.owner, now});
    others.back().record.group = object_groups::name(o);
  }
  std::erase_if(o.disks, [&](const disk_part& part) { return part.replica() == replica; });
  life_.settle_in_memory(o);
  for (auto& one : others) {
    const auto part = one.part;
    if (!join_others(*o.key, std::move(one), now) && b_.journal)
      b_.journal->erased(part.segment, part.ticket, *o.key);
  }
}

void object_recovery::count_into(std::vector<tenant_use>& uses) const {
  for (const auto& [key, some] : stripes_)
    for (const auto& s : some) {
      uses[s.part.owner].used_bytes += s.part.bytes;
      uses[s.part.owner].replicas += s.part.at == 0;
    }
}

}  // namespace mooncaf
