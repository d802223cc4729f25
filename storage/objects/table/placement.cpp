#include "storage/objects/table/placement.hpp"

#include <algorithm>
#include <set>

#include "runtime/base/host_place.hpp"

namespace mooncaf {

std::uint64_t segment_placement::draw(std::uint64_t below) {  // splitmix64
  std::uint64_t z = (random_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) % below;
}

bool segment_placement::fits_beside(std::uint32_t id, const placement_wish& where, bool other_host) const {
  const auto& preferred = where.policy.preferred;
  if (where.policy.exactly &&
      std::find(preferred.begin(), preferred.end(), space_.name(id)) == preferred.end())
    return false;
  return !space_.draining(id) &&
         std::none_of(where.others.begin(), where.others.end(), [&](const memory_part& o) {
           return o.segment == id || (other_host && same_host(space_.host(o.segment), space_.host(id)));
         });
}

/// @param host  empty: any
std::vector<std::uint32_t> segment_placement::segments_for(const placement_wish& where, bool other_host,
                                                           std::string_view host) const {
  std::vector<std::uint32_t> fitting;
  for (const auto id : space_.ids())
    if ((host.empty() || same_host(space_.host(id), host)) && fits_beside(id, where, other_host))
      fitting.push_back(id);
  return fitting;
}

std::optional<memory_part> segment_placement::place_among(std::uint64_t size,
                                                          std::vector<std::uint32_t> fitting,
                                                          time_point now) {
  while (!fitting.empty()) {
    auto at = draw(fitting.size());
    if (fitting.size() > 1) {
      const auto other = draw(fitting.size());
      const auto how = [&](std::size_t i) { return space_.suits(fitting[i], now); };
      if (other != at && how(other) > how(at)) at = other;
    }
    if (auto part = space_.allocate(fitting[at], size)) return part;
    fitting.erase(fitting.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return std::nullopt;
}

std::optional<memory_part> segment_placement::place_in_one(std::uint64_t size, const placement_wish& where) {
  const bool first = where.others.empty();
  // A writer that did not say where its host stands is where the segments of its host are.
  const auto from = !first                             ? std::string_view{}
                    : !location_of(where.host).empty() ? where.host
                                                       : space_.host_like(where.host);
  std::vector<std::pair<std::size_t, std::uint32_t>> ranked;  // the least number is tried first
  for (const auto id : space_.ids()) {
    if (!fits_beside(id, where, false)) continue;
    std::size_t close = first && !from.empty() ? closeness(from, space_.host(id)) : 0;
    for (const auto& o : where.others)
      close = std::max(close, closeness(space_.host(o.segment), space_.host(id)));
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

// As few parts as will do, all of one length but the last. The loop ends after twice as many tries as there
// may be parts.
std::vector<memory_part> segment_placement::stripe_among(std::uint64_t size,
                                                         const std::vector<std::uint32_t>& fitting,
                                                         time_point now) {
  std::uint64_t free = 0;
  for (const auto id : fitting) free += space_.free_bytes(id);
  if (free < offset_allocator::rounded(size)) return {};
  for (std::uint64_t n = 2; n <= stripes_max; n *= 2) {
    const auto length = (size / n + stripe_bytes_min) / stripe_bytes_min * stripe_bytes_min;
    if (length >= size) break;
    std::vector<memory_part> parts;
    std::uint64_t at = 0;
    while (at < size) {
      auto part = place_among(std::min(length, size - at), fitting, now);
      if (!part) break;
      part->at = at;
      at += part->size;
      parts.push_back(*part);
    }
    if (at == size) return parts;
    for (const auto& part : parts) space_.release(part);
  }
  return {};
}

/// An object with all stripes in one segment can be saved to the SSD beside it.
std::vector<memory_part> segment_placement::stripe_in_one(std::uint64_t size, const placement_wish& where,
                                                          bool other_host, std::string_view host) {
  for (const auto id : segments_for(where, other_host, host))
    if (space_.ssd_beside(id) != 0)
      if (auto parts = stripe_among(size, {id}, where.now); !parts.empty()) return parts;
  return stripe_among(size, segments_for(where, other_host, host), where.now);
}

std::vector<memory_part> segment_placement::place_in_stripes(std::uint64_t size,
                                                             const placement_wish& where) {
  if (where.others.empty() && !where.host.empty())
    if (auto parts = stripe_in_one(size, where, false, where.host); !parts.empty()) return parts;
  if (where.policy.replicas != 1) {  // a replica on one host leaves the other hosts to the other replicas
    std::set<std::string_view> hosts;
    for (const auto id : space_.ids()) hosts.insert(host_name(space_.host(id)));
    for (const auto host : hosts)
      if (auto parts = stripe_in_one(size, where, true, host); !parts.empty()) return parts;
  }
  if (auto parts = stripe_in_one(size, where, true, {}); !parts.empty()) return parts;
  if (where.others.empty()) return {};
  return stripe_in_one(size, where, false, {});
}

std::vector<memory_part> segment_placement::place(std::uint64_t size, const placement_wish& where) {
  for (const auto& name : where.policy.preferred) {
    const auto id = space_.named(name);
    if (id == 0 || !fits_beside(id, where, false)) continue;
    if (const auto part = space_.allocate(id, size)) return {*part};
  }
  if (const auto part = place_in_one(size, where)) return {*part};
  return place_in_stripes(size, where);
}

std::vector<memory_part> segment_placement::place_in(std::uint32_t segment, std::uint64_t size) {
  if (const auto part = space_.allocate(segment, size)) return {*part};
  return stripe_among(size, {segment}, {});  // among one there is no choice by load
}

}  // namespace mooncaf
