// What a segment brings along from an earlier directory: the part of `object_table` that takes it in, or
// refuses it.

#include <algorithm>
#include <tuple>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

bool object_table::remount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes) {
  const bool taken =
      segments_.count(id) != 0 ||
      std::any_of(segments_.begin(), segments_.end(), [&](const auto& s) { return s.second.name == name; });
  if (id == 0 || taken) return false;
  const auto& s =
      segments_.emplace(id, segment{std::move(name), std::move(host), offset_allocator{bytes}}).first->second;
  total_bytes_ += s.space.total_bytes();
  segment_ids_.push_back(id);
  say_lent();
  return true;
}

bool object_table::recover(std::uint32_t id, segment_record&& r, time_point now) {
  const auto bytes_of = [](std::string_view name) { return split_name(name).key.size(); };
  if (r.published &&
      (bytes_of(r.key) == 0 || bytes_of(r.key) > key_bytes_max || bytes_of(r.group) > key_bytes_max ||
       r.size > r.object_size || r.at > r.object_size - r.size))
    return false;
  const auto extent = segments_.at(id).space.claim(r.offset, r.size);
  if (!extent) return false;
  const auto whose = owner(r.published ? split_name(r.key).tenant : std::string_view{});
  const held part{id,    *extent, offset_allocator::rounded(r.size), r.at, r.size, r.ticket, r.copy,
                  false, whose};
  take(part);
  next_ticket_ = std::max({next_ticket_, r.ticket + 1, r.version + 1});
  if (!r.published) {
    give_back(part, now + std::max(options_.lease, options_.quarantine), now);
    return true;
  }
  auto key = std::move(r.key);
  if (r.size == r.object_size) return take_in(std::move(key), r, {&part, 1}, now);
  stripes_[std::move(key)].push_back({part, std::move(r)});
  return true;
}

/// The first that is heard of an object of an earlier directory's.
void object_table::begin_again(entry& e, const segment_record& r, std::uint32_t owner, time_point lease_end,
                               time_point now) {
  auto& o = e.second;
  o.owner = owner;
  o.size = r.object_size;
  o.checksum = r.checksum;
  o.version = r.version;
  o.hard = r.hard_pin;
  o.lease_end = lease_end;
  o.soft_end = now + std::clamp(r.soft_pin_for, duration{}, options_.soft_pin_max);
  if (r.ttl.count() > 0 && r.ttl < time_point::max() - now) o.ttl_end = now + r.ttl;
  if (!r.group.empty()) join(e, r.group);
  o.place = order_.add(text_hash{}(e.first), static_cast<double>(r.worth), r.depth, o.owner);
  o.parent = r.parent;
  if (placed_.size() <= o.place) placed_.resize(o.place + 1);
  placed_[o.place] = &e;
  enter_chain(e);
  to_link_ = to_link_ || r.parent != 0;
}

/// A whole replica. @returns whether it agrees with what other segments said.
bool object_table::take_in(std::string&& name, const segment_record& r, std::span<const held> parts,
                           time_point now) {
  // The earlier directory may have granted a lease, and nobody knows of which.
  const auto read_until = now + options_.lease;
  // A million come in a second or two, of which growing by two each time took a sixth.
  if (const auto n = objects_.size(); n >= objects_.bucket_count()) objects_.reserve(4 * n);
  auto [at, fresh] = objects_.try_emplace(std::move(name));
  if (!fresh && at->second.version < r.version) {
    std::string key = at->first;
    erase(*at, read_until, now);
    at = objects_.try_emplace(std::move(key)).first;
  } else if (!fresh) {
    auto& o = at->second;
    const bool again = std::any_of(o.memory.begin(), o.memory.end(), [&](const held& h) {
      return std::any_of(parts.begin(), parts.end(), [&](const held& p) { return p.segment == h.segment; });
    });
    const bool replica = o.version == r.version;
    if (!replica || again || o.size != r.object_size || o.checksum != r.checksum) {
      for (const auto& part : parts) give_back(part, read_until, now);
      return !replica;
    }
    o.memory.insert(o.memory.end(), parts.begin(), parts.end());
    count_alone(o);
    offer(*at, now);
    seen_.recovered += parts.size();
    return true;
  }
  begin_again(*at, r, parts.front().owner, read_until, now);
  at->second.memory.assign(parts.begin(), parts.end());
  seen_.recovered += parts.size();
  show(*at, now);
  return true;
}

void object_table::end_recovery(time_point now) {
  for (auto& [key, some] : std::exchange(stripes_, {})) {
    std::sort(some.begin(), some.end(), [](const stripe& a, const stripe& b) {
      return std::tie(a.part.ticket, a.part.copy, a.part.at) <
             std::tie(b.part.ticket, b.part.copy, b.part.at);
    });
    for (std::size_t i = 0; i < some.size();) {
      const auto& first = some[i].record;
      std::vector<held> parts;
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
        for (const auto& part : parts) give_back(part, now + options_.lease, now);
    }
  }
}

/// Parents may have come after their children, from other segments.
void object_table::link_recovered() {
  to_link_ = false;
  std::unordered_map<std::uint64_t, eviction_order::handle> by_name;
  for (const auto& [key, o] : objects_) by_name.emplace(text_hash{}(key), o.place);
  for (const auto& [key, o] : objects_) {
    const auto parent = o.parent == 0 ? by_name.end() : by_name.find(o.parent);
    if (parent != by_name.end()) order_.link(o.place, parent->second);
  }
}

segment_record object_table::record_of(const object& o, const held& part, time_point now) const {
  segment_record r;
  r.ticket = part.ticket;
  r.offset = part.extent.offset;
  r.size = part.size;
  r.version = o.version;
  r.object_size = o.size;
  r.at = part.at;
  r.copy = part.copy;
  r.published = o.ticket == 0;
  r.hard_pin = o.hard;
  r.checksum = o.checksum;
  r.soft_pin_for = std::max(o.soft_end - now, duration{});
  if (o.ttl_end != time_point::max()) r.ttl = std::max(o.ttl_end - now, duration{1});
  r.parent = o.parent;
  r.depth = order_.depth(o.place);
  r.worth = static_cast<float>(order_.worth(o.place));
  return r;
}

}  // namespace mooncaf
