// Where an object's bytes go: the part of `object_table` that chooses between segments.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

std::uint32_t object_table::mount(std::string name, std::string host, std::uint64_t bytes) {
  for (const auto& [id, s] : segments_)
    if (s.name == name) return 0;
  const auto id = next_segment_++;
  const auto& s =
      segments_.emplace(id, segment{std::move(name), std::move(host), offset_allocator{bytes}, false})
          .first->second;
  total_bytes_ += s.space.total_bytes();
  segment_ids_.push_back(id);
  return id;
}

std::vector<segment_view> object_table::segments() const {
  std::vector<segment_view> all;
  for (const auto& [id, s] : segments_)
    all.push_back({id, s.name, s.host, s.space.total_bytes(), s.space.free_bytes(), s.draining});
  return all;
}

bool object_table::drain(std::string_view name, bool draining) {
  for (auto& [id, s] : segments_) {
    if (s.name != name) continue;
    s.draining = draining;
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
  return held{id, *extent, offset_allocator::rounded(size)};
}

bool object_table::fits_beside(const segment& s, std::uint32_t id, const std::vector<held>& others,
                               bool other_host) const {
  return !s.draining && std::none_of(others.begin(), others.end(), [&](const held& o) {
    return o.segment == id || (other_host && segments_.at(o.segment).host == s.host);
  });
}

// Of two drawn at random the emptier, by share: a new segment gets more than its part, but never everything.
std::optional<object_table::held> object_table::place_among(std::uint64_t size,
                                                            const std::vector<held>& others, bool other_host,
                                                            std::string_view host) {
  std::vector<std::uint32_t> fitting;
  for (const auto id : segment_ids_) {
    const auto& s = segments_.at(id);
    if ((host.empty() || s.host == host) && fits_beside(s, id, others, other_host)) fitting.push_back(id);
  }
  while (!fitting.empty()) {
    auto at = draw(fitting.size());
    if (fitting.size() > 1) {
      const auto other = draw(fitting.size());
      const auto share = [&](std::size_t i) {
        const auto& space = segments_.at(fitting[i]).space;
        return static_cast<double>(space.free_bytes()) / static_cast<double>(space.total_bytes());
      };
      if (share(other) > share(at)) at = other;
    }
    if (auto part = try_segment(fitting[at], size)) return part;
    fitting.erase(fitting.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return std::nullopt;
}

std::optional<object_table::held> object_table::place(std::uint64_t size, const std::vector<held>& others,
                                                      const put_policy& policy, std::string_view host) {
  for (const auto& name : policy.preferred) {
    for (const auto id : segment_ids_) {
      const auto& s = segments_.at(id);
      if (s.name != name || !fits_beside(s, id, others, false)) continue;
      if (auto part = try_segment(id, size)) return part;
    }
  }
  if (others.empty() && !host.empty())
    if (auto part = place_among(size, others, false, host)) return part;
  if (auto part = place_among(size, others, true, {})) return part;
  return others.empty() ? std::nullopt : place_among(size, others, false, {});
}

}  // namespace mooncaf
