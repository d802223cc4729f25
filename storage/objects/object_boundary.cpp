// What a lender takes back of a segment for something else, and gives again: the part of `object_table` that
// keeps objects out of it. Nothing is moved for it: the memory that is taken lies wherever it was free, or
// became free when those objects left that were to leave next anyway.

#include <algorithm>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
constexpr std::uint64_t page = 4 * KiB;
/// Runs that are taken: shorter ones would lose too much at their ends, which are no whole pages.
constexpr std::uint64_t longest_run = 2 * MiB, shortest_run = 64 * KiB;

withheld_run pages_in(std::uint64_t offset, std::uint64_t bytes) {
  const auto begin = (offset + page - 1) / page * page;
  return {begin, (offset + bytes) / page * page - begin};
}
}  // namespace

/// Takes one free run. @returns false if there is none.
bool object_table::withhold_some(segment& s, std::uint64_t bytes) {
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

/// Whatever of it is not needed for so many bytes.
void object_table::give_back_withheld(segment& s, std::uint64_t bytes) {
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

std::optional<boundary_report> object_table::withhold(std::uint32_t id, std::uint64_t bytes, time_point now) {
  const auto found = segments_.find(id);
  if (found == segments_.end() || found->second.ssd) return std::nullopt;
  auto& s = found->second;
  settle(now);
  give_back_withheld(s, bytes);
  const auto at_work = [&] { return static_cast<double>(used_bytes_ - quarantined_bytes_ - leaving_bytes_); };
  const auto share = [&](double part, double more) {
    return (static_cast<double>(total_bytes_) - more) * part;
  };
  const auto missing = [&] { return bytes - std::min(bytes, s.withheld_bytes); };
  // What is small and scattered may leave no run that is long enough: not all that is there goes for it at
  // once.
  const auto before = at_work();
  const auto enough = [&] { return before - at_work() > 2.0 * static_cast<double>(missing() + longest_run); };
  for (auto made = way::made; missing() > 0;) {
    const bool full = at_work() > share(options_.high_watermark, static_cast<double>(missing()));
    if (!full && withhold_some(s, missing())) continue;
    const bool leaving = leaving_bytes_ > missing() + longest_run;  // to SSD: there will be room
    if (leaving || enough() || made == way::none || made == way::late) break;
    made = evict_one(now, false, {{}, id});
    if (full && (made == way::none || made == way::late) && withhold_some(s, missing())) made = way::made;
  }
  boundary_report r;
  r.withheld_bytes = s.withheld_bytes;
  r.bytes = s.usable_bytes();
  const auto idle = share(options_.low_watermark, 0) - at_work();
  r.idle_bytes = std::min(idle > 0 ? static_cast<std::uint64_t>(idle) : 0, s.space.free_bytes());
  r.taken_bytes = taken_bytes_;
  if (const auto next = victim({{}, id}, now); next != eviction_order::none)
    r.coldest = now - placed_[next]->second.used;
  return r;
}

std::vector<withheld_run> object_table::take_withheld(std::uint32_t id) {
  std::vector<withheld_run> fresh;
  const auto found = segments_.find(id);
  if (found == segments_.end()) return fresh;
  auto& s = found->second;
  for (; s.withheld_told < s.withheld.size(); ++s.withheld_told)
    fresh.push_back(s.withheld[s.withheld_told].pages);
  return fresh;
}

}  // namespace mooncaf
