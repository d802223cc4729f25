// What an SSD brings along when it is back, or for the first time after a restart: the part of `object_table`
// that takes it in, or refuses it. A part of an object is kept for the others, which other SSDs may bring,
// for as long as nobody needs the room and the key has no other value.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

bool object_table::recover_on_disk(std::uint32_t id, segment_record&& r, bool stale, time_point now) {
  const auto& d = *segments_.at(id).ssd;
  seen_.disk_stale += stale;
  if (stale) forget_alone(r.key, r.version);  // the others of its object
  const auto bytes_of = [](std::string_view name) { return split_name(name).key.size(); };
  const bool whole = r.size == r.object_size;
  if (stale || !r.published || r.size == 0 || r.size > r.object_size || r.at > r.object_size - r.size ||
      (whole && r.copy != 0) || r.copy >= r.ticket || bytes_of(r.key) == 0 ||
      bytes_of(r.key) > key_bytes_max || bytes_of(r.group) > key_bytes_max || r.size > d.bytes - d.used ||
      r.ttl.count() < 0)
    return false;
  next_ticket_ = std::max({next_ticket_, r.ticket + 1, r.version + 1});
  const disk_part part{id, r.ticket, r.at, r.size, r.copy};
  if (whole) return take_in_on_disk(std::move(r.key), r, {&part, 1}, now);
  const auto key = std::exchange(r.key, {});
  return join_others(key, {part, std::move(r), owner(split_name(key).tenant), now}, now);
}

/// A replica. @returns whether there is no other value, or another replica on one of these SSDs.
bool object_table::take_in_on_disk(std::string&& key, const segment_record& r,
                                   std::span<const disk_part> parts, time_point now) {
  auto [at, fresh] = objects_.try_emplace(std::move(key));
  auto& o = at->second;
  const auto is_there = [&](const disk_part& had) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const disk_part& part) { return part.segment == had.segment; });
  };
  if (!fresh && (o.ticket != 0 || o.version != r.version || o.size != r.object_size ||
                 o.checksum != r.checksum || std::any_of(o.disks.begin(), o.disks.end(), is_there) ||
                 std::any_of(o.work.begin(), o.work.end(), is_there)))
    return false;
  ++seen_.disk_recovered;
  if (fresh) begin_again(*at, r, owner(split_name(at->first).tenant), now, now);
  put_on_disk(*at, parts);
  if (fresh) show(*at, now);
  return true;
}

/// What is complete with it is seen from now on. @returns whether it may be of use, or was.
bool object_table::join_others(const std::string& key, lone_part&& fresh, time_point now) {
  const auto there = objects_.find(key);
  if (there != objects_.end() && (there->second.ticket != 0 || !there->second.disks.empty() ||
                                  there->second.version != fresh.record.version))
    return false;
  const auto replica = fresh.part.replica();
  charge_disk(*segments_.at(fresh.part.segment).ssd, fresh.owner, fresh.part.size, true);
  ++alone_;
  segments_.at(fresh.part.segment).ssd->alone[key].push_back(std::move(fresh));
  std::vector<lone_part> all;
  for (const auto& [id, s] : segments_)
    if (s.ssd && s.ssd->alone.count(key) != 0)
      std::ranges::copy_if(s.ssd->alone.find(key)->second, std::back_inserter(all),
                           [&](const lone_part& one) { return one.part.replica() == replica; });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.part.at < b.part.at; });
  const auto& first = all.front();
  std::vector<disk_part> parts;
  std::uint64_t next = 0;
  bool agree = true;
  for (const auto& one : all) {
    const auto& r = one.record;
    agree = agree && r.version == first.record.version && r.object_size == first.record.object_size &&
            r.checksum == first.record.checksum && r.at >= next && one.part.number >= parts.size();
    if (agree && r.at > next) return true;  // one is away
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
  for (const auto& part : parts) leave_alone(part, key);
  const bool taken = agree && !expired && take_in_on_disk(std::string{key}, record, parts, now);
  for (const auto& part : parts)
    if (!taken && journal_) journal_->erased(part.segment, part.ticket, key);
  return true;
}

/// It is not one of those that wait for others any more.
void object_table::leave_alone(const disk_part& part, const std::string& key) {
  auto& d = *segments_.at(part.segment).ssd;
  const auto found = d.alone.find(key);
  const auto at = std::find_if(found->second.begin(), found->second.end(),
                               [&](const lone_part& one) { return one.part.ticket == part.ticket; });
  charge_disk(d, at->owner, at->part.size, false);
  --alone_;
  found->second.erase(at);
  if (found->second.empty()) d.alone.erase(found);
}

/// Those of this value and of earlier ones.
void object_table::forget_alone(std::string_view name, std::uint64_t version) {
  if (alone_ == 0) return;
  const std::string key{name};
  for (const auto& [id, s] : segments_) {
    if (!s.ssd || s.ssd->alone.count(key) == 0) continue;
    const auto some = s.ssd->alone.find(key)->second;
    for (const auto& one : some) {
      if (one.record.version > version) continue;
      leave_alone(one.part, key);
      if (journal_) journal_->erased(id, one.part.ticket, key);
    }
  }
}

void object_table::forget_alone_if(const std::function<bool(std::string_view)>& matches) {
  if (alone_ == 0) return;
  std::set<std::string> keys;
  for (const auto& [id, s] : segments_)
    if (s.ssd)
      for (const auto& [key, some] : s.ssd->alone) keys.insert(key);
  for (const auto& key : keys)
    if (matches(key)) forget_alone(key);
}

/// An SSD is going. What lies on others of an object that lay there, too, waits for it to be back.
/// @returns whether there was anything.
bool object_table::lose_on_disk(entry& e, std::uint32_t id, time_point now) {
  auto& o = e.second;
  const auto there = [&](const disk_part& part) { return part.segment == id; };
  const auto first = std::find_if(o.disks.begin(), o.disks.end(), there);
  if (first == o.disks.end()) return false;
  const auto replica = first->replica();
  std::vector<lone_part> others;
  for (const auto& part : o.disks) {
    if (part.replica() != replica) continue;
    take_off_disk(e, part);
    if (there(part)) continue;
    others.push_back({part, record_on_disk(o, part, now), o.owner, now});
    if (o.in) others.back().record.group = o.in->first;
  }
  std::erase_if(o.disks, [&](const disk_part& part) { return part.replica() == replica; });
  if (o.disks.empty()) o.transient = false;
  for (auto& one : others) {
    const auto part = one.part;
    if (!join_others(e.first, std::move(one), now) && journal_)
      journal_->erased(part.segment, part.ticket, e.first);
  }
  return true;
}

/// Of an SSD that is gone.
void object_table::count_out_alone(const disk_state& d) {
  for (const auto& [key, some] : d.alone)
    for (const auto& one : some) {
      touch(one.owner);
      owners_[one.owner].disk_bytes -= one.part.size;
      --alone_;
    }
}

void object_table::changed(std::string_view key) {
  forget_alone(key);
  if (journal_) journal_->changed(key);
}

}  // namespace mooncaf
