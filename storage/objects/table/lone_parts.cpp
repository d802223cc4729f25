#include "storage/objects/table/lone_parts.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace mooncaf {

void lone_parts::add(std::string_view key, lone_part&& one) {
  const auto id = one.part.segment;
  disks_.charge(id, one.owner, one.part.size);
  all_[id][std::string{key}].push_back(std::move(one));
}

std::vector<lone_part> lone_parts::of_replica(std::string_view key, std::uint64_t replica) const {
  std::vector<lone_part> parts;
  for (const auto& [id, by_key] : all_)
    if (const auto found = by_key.find(key); found != by_key.end())
      std::ranges::copy_if(found->second, std::back_inserter(parts),
                           [&](const lone_part& one) { return one.part.replica() == replica; });
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.part.at < b.part.at; });
  return parts;
}

void lone_parts::take_out(std::string_view key, const disk_part& part) {
  const auto on = all_.find(part.segment);
  const auto found = on->second.find(key);
  const auto at = std::find_if(found->second.begin(), found->second.end(),
                               [&](const lone_part& one) { return one.part.ticket == part.ticket; });
  disks_.uncharge(part.segment, at->owner, at->part.size);
  found->second.erase(at);
  if (found->second.empty()) on->second.erase(found);
  if (on->second.empty()) all_.erase(on);
}

void lone_parts::forget(std::string_view name, std::uint64_t version) {
  if (all_.empty()) return;
  const std::string key{name};  // `name` may point into an erased part
  std::vector<disk_part> going;
  for (const auto& [id, by_key] : all_)
    if (const auto found = by_key.find(key); found != by_key.end())
      for (const auto& one : found->second)
        if (one.record.version <= version) going.push_back(one.part);
  for (const auto& part : going) {
    take_out(key, part);
    if (journal_) journal_->erased(part.segment, part.ticket, key);
  }
}

void lone_parts::forget_if(const std::function<bool(std::string_view)>& matches) {
  if (all_.empty()) return;
  std::set<std::string> keys;
  for (const auto& [id, by_key] : all_)
    for (const auto& [key, some] : by_key) keys.insert(key);
  for (const auto& key : keys)
    if (matches(key)) forget(key);
}

bool lone_parts::forget_one_on(std::uint32_t disk) {
  const auto on = all_.find(disk);
  if (on == all_.end()) return false;
  forget(on->second.begin()->first);
  return true;
}

void lone_parts::drop_disk(std::uint32_t disk) {
  const auto on = all_.extract(disk);
  if (!on) return;
  for (const auto& [key, some] : on.mapped())
    for (const auto& one : some) disks_.uncharge(disk, one.owner, one.part.size);
}

void lone_parts::each(const std::function<void(const lone_part&)>& visit) const {
  for (const auto& [id, by_key] : all_)
    for (const auto& [key, some] : by_key)
      for (const auto& one : some) visit(one);
}

}  // namespace mooncaf
