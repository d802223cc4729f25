#include "storage/objects/table/disk_work.hpp"

#include <algorithm>

#include "storage/objects/table/stored_object.hpp"

namespace mooncaf {

void disk_work::add_save(stored_object& o, const disk_part& part) {
  o.work.parts_.push_back(part);
  all_[{part.segment, part.ticket}] = {&o};
}

void disk_work::begin_load(stored_object& o, std::span<const disk_part> replica,
                           std::vector<std::vector<memory_part>>&& rooms) {
  o.work.parts_.assign(replica.begin(), replica.end());
  for (std::size_t i = 0; i < replica.size(); ++i)
    all_[{replica[i].segment, replica[i].ticket}] = {&o, true, std::move(rooms[i])};
}

void disk_work::set_going(stored_object& o, std::uint64_t bytes) {
  const auto was = std::exchange(o.work.going_, bytes);
  if (was == bytes) return;
  quotas_.more(o.owner, &tenant_use::leaving_bytes, bytes - was);
  if ((was != 0) != (bytes != 0))
    quotas_.more(o.owner, &tenant_use::leaving, bytes != 0 ? 1 : ~std::uint64_t{0});
}

std::optional<disk_work::report> disk_work::done(std::uint32_t disk, std::uint64_t ticket, bool good) {
  const auto found = all_.find({disk, ticket});
  if (found == all_.end() || found->second.ended != outcome::none) return std::nullopt;
  auto& work = found->second;
  report r{work.loads, work.of, {}, false};
  if (!work.of) {
    r.room = std::move(work.room);
    all_.erase(found);
    return r;
  }
  work.ended = good ? outcome::good : outcome::bad;
  r.complete = !good || std::ranges::all_of(work.of->work.parts_, [&](const disk_part& part) {
    return all_.at({part.segment, part.ticket}).ended == outcome::good;
  });
  return r;
}

std::vector<disk_work::finished> disk_work::finish(stored_object& o) {
  std::vector<finished> parts;
  for (const auto& part : std::exchange(o.work.parts_, {})) {
    const auto found = all_.find({part.segment, part.ticket});
    auto& work = found->second;
    if (work.loads && work.ended == outcome::none) {
      work.of = nullptr;
      continue;
    }
    parts.push_back({part, work.loads, work.ended == outcome::bad, std::move(work.room)});
    all_.erase(found);
  }
  return parts;
}

disk_work::broken_off disk_work::break_off(const std::function<bool(std::uint32_t)>& of_these) {
  broken_off b;
  for (auto at = all_.begin(); at != all_.end();) {
    auto& [which, work] = *at;
    if (!of_these(which.first)) {
      ++at;
      continue;
    }
    for (const auto& part : std::exchange(work.room, {})) b.room.push_back(part);
    work.ended = outcome::bad;
    if (work.of) b.objects.push_back(work.of);
    at = work.of ? std::next(at) : all_.erase(at);
  }
  return b;
}

bool disk_work::is_saving(std::uint32_t owner) const {
  return std::ranges::any_of(
      all_, [&](const auto& at) { return !at.second.loads && at.second.of && at.second.of->owner == owner; });
}

std::vector<disk_work::part_view> disk_work::all() const {
  std::vector<part_view> views;
  for (const auto& [which, work] : all_)
    views.push_back({which.first, which.second, work.of, work.loads, work.room});
  return views;
}

}  // namespace mooncaf
