#include "storage/objects/table/segment_space.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/host_place.hpp"

namespace mooncaf {

namespace {
constexpr std::uint64_t page = 4 * KiB;
/// Shorter runs would lose too much at their ends, which are no whole pages.
constexpr std::uint64_t shortest_run = 64 * KiB;
/// Bytes a second that a segment takes and gives easily: below that its load counts little.
constexpr double easy_load = 64.0 * MiB;

withheld_run pages_in(std::uint64_t offset, std::uint64_t bytes) {
  const auto begin = (offset + page - 1) / page * page;
  return {begin, (offset + bytes) / page * page - begin};
}
}  // namespace

// ---- segments ---------------------------------------------------------------------------------------------

void segment_space::mount(std::uint32_t id, std::string name, std::string host, std::uint64_t bytes) {
  const auto& s =
      segments_.emplace(id, segment{std::move(name), std::move(host), offset_allocator{bytes}}).first->second;
  total_bytes_ += s.space.total_bytes();
  ids_.push_back(id);
}

void segment_space::unmount(std::uint32_t id) {
  for (auto at = rests_.begin(); at != rests_.end();) {
    const auto& part = at->second;
    if (part.segment != id) {
      ++at;
      continue;
    }
    quotas_.less(part.owner, &tenant_use::resting_bytes, part.bytes);
    count_out(part);
    at = rests_.erase(at);
  }
  total_bytes_ -= usable_bytes(id);
  segments_.erase(id);
  std::erase(ids_, id);
}

std::uint32_t segment_space::named(std::string_view name) const {
  for (const auto& [id, s] : segments_)
    if (s.name == name) return id;
  return 0;
}

std::string_view segment_space::host_like(std::string_view host) const {
  for (const auto& [id, s] : segments_)
    if (same_host(s.host, host)) return s.host;
  return host;
}

std::uint32_t segment_space::ssd_beside(std::uint32_t id) const {
  const auto found = segments_.find(id);
  return found == segments_.end() ? 0 : found->second.ssd_beside;
}

segment_view segment_space::view(std::uint32_t id, std::uint32_t owner) const {
  const auto& s = segments_.at(id);
  const auto own = owner < s.used_by.size() ? s.used_by[owner] : 0;
  return {id,
          s.name,
          s.host,
          s.usable_bytes(),
          owner == 0 ? s.space.free_bytes() : s.usable_bytes() - own,
          s.draining,
          storage_tier::dram,
          owner == 0 ? s.withheld_room : 0};
}

std::uint64_t segment_space::usable_bytes(std::uint32_t id) const {
  const auto found = segments_.find(id);
  return found == segments_.end() ? 0 : found->second.usable_bytes();
}

// ---- parts ------------------------------------------------------------------------------------------------

std::optional<memory_part> segment_space::allocate(std::uint32_t id, std::uint64_t size) {
  const auto extent = segments_.at(id).space.allocate(size);
  if (!extent) return std::nullopt;
  memory_part part;
  part.segment = id;
  part.extent = *extent;
  part.bytes = offset_allocator::rounded(size);
  part.size = size;
  return part;
}

std::optional<memory_part> segment_space::claim(std::uint32_t id, std::uint64_t offset, std::uint64_t size) {
  const auto extent = segments_.at(id).space.claim(offset, size);
  if (!extent) return std::nullopt;
  memory_part part;
  part.segment = id;
  part.extent = *extent;
  part.bytes = offset_allocator::rounded(size);
  part.size = size;
  return part;
}

void segment_space::release(const memory_part& part) {
  segments_.at(part.segment).space.release(part.extent.handle);
}

void segment_space::take(const memory_part& part) {
  if (part.at == 0) quotas_.more(part.owner, &tenant_use::replicas);  // counted by its first stripe
  quotas_.more(part.owner, &tenant_use::used_bytes, part.bytes);
  taken_bytes_ += part.bytes;
  bytes_for_readers_ += part.for_readers ? part.bytes : 0;
  auto& by = segments_.at(part.segment).used_by;
  if (by.size() <= part.owner) by.resize(part.owner + 1);
  by[part.owner] += part.bytes;
}

void segment_space::count_out(const memory_part& part) {
  quotas_.less(part.owner, &tenant_use::used_bytes, part.bytes);
  segments_.at(part.segment).used_by[part.owner] -= part.bytes;
}

void segment_space::give_back(const memory_part& part, time_point free_at, time_point now) {
  if (part.at == 0) quotas_.less(part.owner, &tenant_use::replicas);
  bytes_for_readers_ -= part.for_readers ? part.bytes : 0;
  if (journal_)
    journal_->freed(part.segment, part.ticket, part.extent.offset, std::max(free_at - now, duration{}));
  if (free_at > now) {
    rests_.insert({free_at, part});
    quotas_.more(part.owner, &tenant_use::resting_bytes, part.bytes);
    return;
  }
  count_out(part);
  release(part);
}

void segment_space::lose(const memory_part& part) {
  if (part.at == 0) quotas_.less(part.owner, &tenant_use::replicas);
  bytes_for_readers_ -= part.for_readers ? part.bytes : 0;
  count_out(part);
}

void segment_space::lose_room(const memory_part& part) {
  lose(part);
  release(part);
}

void segment_space::end_rests(time_point now) {
  while (!rests_.empty() && rests_.begin()->first <= now) {
    const auto part = rests_.begin()->second;
    rests_.erase(rests_.begin());
    quotas_.less(part.owner, &tenant_use::resting_bytes, part.bytes);
    count_out(part);
    release(part);
  }
}

double segment_space::suits(std::uint32_t id, time_point now) {
  auto& s = segments_.at(id);
  s.load.note(now, static_cast<double>(std::exchange(s.moved, 0)));
  const auto free = static_cast<double>(s.space.free_bytes()) /
                    static_cast<double>(std::max<std::uint64_t>(s.usable_bytes(), 1));
  return free / (easy_load + s.load.per_s(now));
}

// ---- memory that its holder takes back --------------------------------------------------------------------

bool segment_space::withhold_run(std::uint32_t id, std::uint64_t bytes) {
  auto& s = segments_.at(id);
  const auto most = std::clamp((bytes + page - 1) / page * page, shortest_run, longest_run);
  for (auto wanted = most;; wanted = std::max(wanted / 2, shortest_run)) {
    for (const auto room :
         {wanted, wanted + page}) {  // the longer has so many whole pages wherever it begins
      const auto extent = s.space.allocate(room);
      if (!extent) continue;
      const auto pages = pages_in(extent->offset, room);
      if (pages.bytes < wanted) {
        s.space.release(extent->handle);
        continue;
      }
      s.withheld.push_back({pages, extent->handle, room});
      s.withheld_bytes += pages.bytes;
      s.withheld_room += room;
      total_bytes_ -= room;
      return true;
    }
    if (wanted == shortest_run) return false;
  }
}

void segment_space::give_back_withheld(std::uint32_t id, std::uint64_t bytes) {
  auto& s = segments_.at(id);
  while (!s.withheld.empty() && s.withheld_bytes - s.withheld.back().pages.bytes >= bytes) {
    const auto& last = s.withheld.back();
    s.space.release(last.handle);
    s.withheld_bytes -= last.pages.bytes;
    s.withheld_room -= last.room;
    total_bytes_ += last.room;
    s.withheld.pop_back();
  }
  s.withheld_told = std::min(s.withheld_told, s.withheld.size());
}

std::vector<withheld_run> segment_space::take_withheld(std::uint32_t id) {
  std::vector<withheld_run> fresh;
  auto& s = segments_.at(id);
  for (; s.withheld_told < s.withheld.size(); ++s.withheld_told)
    fresh.push_back(s.withheld[s.withheld_told].pages);
  return fresh;
}

bool segment_space::consistent(std::vector<tenant_use>& uses) const {
  for (const auto& [at, part] : rests_) {
    uses[part.owner].resting_bytes += part.bytes;
    uses[part.owner].used_bytes += part.bytes;
  }
  std::uint64_t total = 0, free = 0, used = 0;
  for (const auto& [id, s] : segments_) {
    if (!s.space.consistent()) return false;
    std::uint64_t room = 0, pages = 0;
    for (const auto& w : s.withheld) {
      room += w.room;
      pages += w.pages.bytes;
    }
    if (room != s.withheld_room || pages != s.withheld_bytes || s.withheld_told > s.withheld.size())
      return false;
    total += s.usable_bytes();
    free += s.space.free_bytes();
    for (const auto n : s.used_by) used += n;
  }
  return total == total_bytes_ && used == quotas_.use().used_bytes && free == total - used;
}

}  // namespace mooncaf
