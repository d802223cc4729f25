#include "storage/objects/directory/directory_recovery.hpp"

#include <algorithm>

namespace mooncaf {

bool directory_recovery::admit(const store_wire::former_life& former,
                               const std::function<void(std::uint32_t)>& give_up) {
  if (serving_) return false;
  for (const auto f : former.fenced) give_up(f);
  std::vector<std::uint32_t> older;
  for (const auto& [segment, other] : came_back_) {
    if (other.served_by > former.served_by) return false;
    if (other.served_by < former.served_by) older.push_back(segment);
  }
  for (const auto segment : older) give_up(segment);
  const auto is_fenced = [&](std::uint32_t s) {
    return std::find(fenced_.begin(), fenced_.end(), s) != fenced_.end();
  };
  if (is_fenced(former.segment)) return false;
  for (const auto m : former.members)
    if (!is_fenced(m)) expected_.insert(m);
  return true;
}

void directory_recovery::begin_announcing(const store_wire::former_life& former) {
  announcing_.insert(former.segment);
  came_back_[former.segment] = {former.served_by, former.disk};
}

bool directory_recovery::is_continued(std::uint32_t beside, std::uint64_t disk) const {
  const auto found = came_back_.find(beside);
  return found != came_back_.end() && found->second.disk == disk;
}

bool directory_recovery::fence(std::uint32_t segment) {
  announcing_.erase(segment);
  came_back_.erase(segment);
  expected_.erase(segment);
  if (std::find(fenced_.begin(), fenced_.end(), segment) != fenced_.end()) return false;
  fenced_.push_back(segment);
  if (fenced_.size() > store_wire::former_max) fenced_.pop_front();
  return true;
}

bool directory_recovery::is_over(time_point now, const segment_holders& holders,
                                 const disk_book& disks) const {
  const bool none = came_back_.empty() && std::none_of(awaited_disks_.begin(), awaited_disks_.end(),
                                                       [&](auto number) { return disks.is_here(number); });
  if (now >= (none ? until_.first : until_.others)) return true;
  if (none || !announcing_.empty()) return false;
  for (const auto& [segment, life] : came_back_)
    if (life.disk != 0 && !disks.is_complete(life.disk)) return false;
  return std::all_of(awaited_disks_.begin(), awaited_disks_.end(),
                     [&](auto number) { return disks.is_complete(number); }) &&
         std::all_of(expected_.begin(), expected_.end(), [&](auto s) { return holders.is_mounted(s); });
}

std::vector<std::uint32_t> directory_recovery::end(const segment_holders& holders) {
  std::vector<std::uint32_t> missing;
  for (const auto segment : expected_)
    if (!holders.is_mounted(segment)) missing.push_back(segment);
  missing.insert(missing.end(), announcing_.begin(), announcing_.end());
  serving_ = true;
  announcing_.clear();
  expected_.clear();
  came_back_.clear();
  awaited_disks_.clear();
  return missing;
}

}  // namespace mooncaf
