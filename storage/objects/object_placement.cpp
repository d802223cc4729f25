// Where an object's bytes go: the part of `object_table` that chooses between segments.

#include <algorithm>
#include <utility>

#include "runtime/base/host_place.hpp"
#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// A put that finds no room sets so much more free than it needs: the next ones need not wait.
constexpr std::uint64_t saved_ahead = 32 * MiB;
/// Bytes a second that a segment takes and gives without anybody's noticing: below that its load counts
/// little.
constexpr double easy_load = 64.0 * MiB;
}  // namespace

std::uint32_t object_table::mount(std::string name, std::string host, std::uint64_t bytes) {
  for (const auto& [id, s] : segments_)
    if (s.name == name) return 0;
  const auto id = next_segment_++;
  const auto& s =
      segments_.emplace(id, segment{std::move(name), std::move(host), offset_allocator{bytes}}).first->second;
  total_bytes_ += s.space.total_bytes();
  segment_ids_.push_back(id);
  say_lent();
  return id;
}

std::vector<segment_view> object_table::segments(std::uint32_t owner) const {
  std::vector<segment_view> all;
  for (const auto& [id, s] : segments_) {
    const auto total = s.ssd ? s.ssd->bytes : s.usable_bytes();
    const auto free = s.ssd ? total - s.ssd->used : s.space.free_bytes();
    const auto own = owner < s.used_by.size() ? s.used_by[owner] : 0;
    all.push_back({id, s.name, s.host, total, owner == 0 ? free : total - own, s.draining,
                   s.ssd ? medium::ssd : medium::dram, owner == 0 ? s.withheld_room : 0});
  }
  return all;
}

bool object_table::drain(std::string_view name, bool draining) {
  for (auto& [id, s] : segments_) {
    if (s.name != name) continue;
    s.draining = draining;
    if (const auto ssd = segments_.find(s.disk_beside); ssd != segments_.end())
      ssd->second.draining = draining;
    return true;
  }
  return false;
}

std::uint64_t object_table::draw(std::uint64_t below) {  // splitmix64
  std::uint64_t z = (random_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % below;
}

std::optional<object_table::held> object_table::try_segment(std::uint32_t id, std::uint64_t size) {
  const auto extent = segments_.at(id).space.allocate(size);
  if (!extent) return std::nullopt;
  held part;
  part.segment = id;
  part.extent = *extent;
  part.bytes = offset_allocator::rounded(size);
  part.size = size;
  return part;
}

bool object_table::fits_beside(const segment& s, std::uint32_t id, const wish& where, bool other_host) const {
  const auto& preferred = where.policy.preferred;
  if (where.policy.exactly && std::find(preferred.begin(), preferred.end(), s.name) == preferred.end())
    return false;
  return !s.draining && !s.ssd && std::none_of(where.others.begin(), where.others.end(), [&](const held& o) {
    return o.segment == id || (other_host && same_host(segments_.at(o.segment).host, s.host));
  });
}

/// @param host  empty: any
std::vector<std::uint32_t> object_table::segments_for(const wish& where, bool other_host,
                                                      std::string_view host) const {
  std::vector<std::uint32_t> fitting;
  for (const auto id : segment_ids_) {
    const auto& s = segments_.at(id);
    if ((host.empty() || same_host(s.host, host)) && fits_beside(s, id, where, other_host))
      fitting.push_back(id);
  }
  return fitting;
}

void object_table::note_read(const object& o) {
  const auto replicas = std::max<std::size_t>(replica_count(o), 1);
  for (const auto& part : o.memory) segments_.find(part.segment)->second.moved += part.size / replicas;
}

/// The larger the better: what is free of it, over what has been read and written there lately.
double object_table::suits(segment& s, time_point now) {
  s.load.note(now, static_cast<double>(std::exchange(s.moved, 0)));
  const auto free = static_cast<double>(s.space.free_bytes()) /
                    static_cast<double>(std::max<std::uint64_t>(s.usable_bytes(), 1));
  return free / (easy_load + s.load.per_s(now));
}

// Of two drawn at random the better: a new segment gets more than its part, but never everything.
std::optional<object_table::held> object_table::place_among(std::uint64_t size,
                                                            std::vector<std::uint32_t> fitting,
                                                            time_point now) {
  while (!fitting.empty()) {
    auto at = draw(fitting.size());
    if (fitting.size() > 1) {
      const auto other = draw(fitting.size());
      const auto how = [&](std::size_t i) { return suits(segments_.at(fitting[i]), now); };
      if (other != at && how(other) > how(at)) at = other;
    }
    if (auto part = try_segment(fitting[at], size)) return part;
    fitting.erase(fitting.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return std::nullopt;
}

/// Where a writer stands who did not say it: where the segments of its host stand.
std::string_view object_table::place_of(std::string_view host) const {
  if (!location_of(host).empty()) return host;
  for (const auto& [id, s] : segments_)
    if (same_host(s.host, host)) return s.host;
  return host;
}

/// The first replica near its writer, the others as far as can be from those before.
std::optional<object_table::held> object_table::place_in_one(std::uint64_t size, const wish& where) {
  const bool first = where.others.empty();
  const auto from = first ? place_of(where.host) : std::string_view{};
  std::vector<std::pair<std::size_t, std::uint32_t>> ranked;  // what is least is tried first
  for (const auto id : segment_ids_) {
    const auto& s = segments_.at(id);
    if (!fits_beside(s, id, where, false)) continue;
    std::size_t close = first && !from.empty() ? closeness(from, s.host) : 0;
    for (const auto& o : where.others)
      close = std::max(close, closeness(segments_.at(o.segment).host, s.host));
    ranked.emplace_back(first ? on_one_host - close : close, id);
  }
  std::sort(ranked.begin(), ranked.end());
  for (auto next = ranked.begin(); next != ranked.end();) {
    std::vector<std::uint32_t> alike;
    for (const auto rank = next->first; next != ranked.end() && next->first == rank; ++next)
      alike.push_back(next->second);
    if (auto part = place_among(size, std::move(alike), where.now)) return part;
  }
  return std::nullopt;
}

// In as few parts as will do, all of one length but the last. So many tries at most as there may be parts,
// twice over.
std::vector<object_table::held> object_table::stripe_among(std::uint64_t size,
                                                           const std::vector<std::uint32_t>& fitting,
                                                           time_point now) {
  std::uint64_t free = 0;
  for (const auto id : fitting) free += segments_.at(id).space.free_bytes();
  if (free < offset_allocator::rounded(size)) return {};
  for (std::uint64_t n = 2; n <= stripes_max; n *= 2) {
    const auto length = (size / n + stripe_bytes_min) / stripe_bytes_min * stripe_bytes_min;
    if (length >= size) break;
    std::vector<held> parts;
    std::uint64_t at = 0;
    while (at < size) {
      auto part = place_among(std::min(length, size - at), fitting, now);
      if (!part) break;
      part->at = at;
      at += part->size;
      parts.push_back(*part);
    }
    if (at == size) return parts;
    for (const auto& part : parts) segments_.at(part.segment).space.release(part.extent.handle);
  }
  return {};
}

/// What lies in one segment can be saved to the SSD beside it.
std::vector<object_table::held> object_table::stripe_in_one(std::uint64_t size, const wish& where,
                                                            bool other_host, std::string_view host) {
  for (const auto id : segments_for(where, other_host, host))
    if (segments_.at(id).disk_beside != 0)
      if (auto parts = stripe_among(size, {id}, where.now); !parts.empty()) return parts;
  return stripe_among(size, segments_for(where, other_host, host), where.now);
}

std::vector<object_table::held> object_table::place_in_stripes(std::uint64_t size, const wish& where) {
  if (where.others.empty() && !where.host.empty())
    if (auto parts = stripe_in_one(size, where, false, where.host); !parts.empty()) return parts;
  if (where.policy.replicas != 1) {  // what lies on one host leaves the others to the other replicas
    std::set<std::string_view> hosts;
    for (const auto& [id, s] : segments_) hosts.insert(host_name(s.host));
    for (const auto host : hosts)
      if (auto parts = stripe_in_one(size, where, true, host); !parts.empty()) return parts;
  }
  if (auto parts = stripe_in_one(size, where, true, {}); !parts.empty()) return parts;
  if (where.others.empty()) return {};
  return stripe_in_one(size, where, false, {});
}

/// One replica, in one part if any segment has room for it. @returns nothing where there is none.
std::vector<object_table::held> object_table::place(std::uint64_t size, const wish& where) {
  for (const auto& name : where.policy.preferred) {
    for (const auto id : segment_ids_) {
      const auto& s = segments_.at(id);
      if (s.name != name || !fits_beside(s, id, where, false)) continue;
      if (const auto part = try_segment(id, size)) return {*part};
    }
  }
  if (const auto part = place_in_one(size, where)) return {*part};
  return place_in_stripes(size, where);
}

std::vector<object_table::held> object_table::place_all(std::uint64_t size, std::size_t copies,
                                                        const wish& where, bool others_make_way,
                                                        bool& coming) {
  const auto now = where.now;
  std::uint64_t room = 0;
  for (const auto& [id, s] : segments_) room += s.draining ? 0 : s.usable_bytes();
  std::vector<held> memory, others = where.others;
  if (room < size) return memory;
  const wish beside{where.policy, where.host, others, where.now};
  for (std::uint32_t copy = 0; copy < std::min<std::size_t>(copies, segments_.size()); ++copy) {
    auto parts = place(size, beside);
    // For the first copy others make way; for a further one, only what is free.
    const bool others_go = memory.empty() && others_make_way;
    for (auto made = way::made; parts.empty() && others_go && made != way::none && made != way::late;) {
      const bool enough =
          !where.policy.lossy && leaving_bytes_ > size + std::min(saved_ahead, total_bytes_ / 8);
      made = enough ? way::late : evict_one(now, where.policy.lossy, {{}, 0, true});
      coming = coming || made == way::coming || made == way::late;
      parts = place(size, beside);
    }
    if (parts.empty()) break;
    for (auto& part : parts) {
      part.copy = copy;
      segments_.at(part.segment).moved += part.size;
    }
    memory.insert(memory.end(), parts.begin(), parts.end());
    others.insert(others.end(), parts.begin(), parts.end());
  }
  coming = memory.empty() && others_make_way && (coming || leaving_bytes_ > 0);
  return memory;
}

}  // namespace mooncaf
