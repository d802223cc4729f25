// Replicas that are made because an object is read so often, and given up again: the part of `object_table`
// that counts reads.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// Below this part of the rate that made it, a replica goes.
constexpr double cold_share = 0.25;
/// One that found no room is not asked for again before that.
constexpr auto ask_again = std::chrono::seconds(10);
}  // namespace

void object_table::count_read(entry& e, time_point now) {
  auto& o = e.second;
  o.reads.note(now);
  if (now < o.hot_again || o.reads.per_s(now) < options_.hot_reads_per_s) return;
  o.hot_again = now + ask_again;
  const auto replicas = replica_count(o);
  const auto budget = static_cast<double>(total_bytes_) * options_.hot_share;
  if (replicas >= options_.hot_replicas || static_cast<double>(hot_bytes_ + o.size) > budget) return;
  hot_.push_back(e.first);
}

std::vector<std::string> object_table::take_hot() { return std::exchange(hot_, {}); }

std::size_t object_table::replica_count(const object& o) {
  return static_cast<std::size_t>(
      std::count_if(o.memory.begin(), o.memory.end(), [](const held& part) { return part.at == 0; }));
}

/// Gives up those of which a part has the property, but never the last. @returns whether there were any.
bool object_table::drop_replicas(object& o, const std::function<bool(const held&)>& of_these,
                                 time_point now) {
  const auto it = std::find_if(o.memory.begin(), o.memory.end(), of_these);
  if (it == o.memory.end() || replica_count(o) < 2) return false;
  const auto one = *it;
  for (const auto& part : o.memory)
    if (part.one_with(one)) give_back(part, o.lease_end, now);
  std::erase_if(o.memory, [&](const held& part) { return part.one_with(one); });
  return true;
}

bool object_table::drop_replica(std::string_view key, std::uint32_t in, time_point now) {
  auto* const e = visible(key, now);
  return e && drop_replicas(
                  e->second, [&](const held& part) { return part.segment == in; }, now);
}

/// Of the replicas that were made for readers, those of objects of which `goes` says so. Looks at so many,
/// and next time at others. @returns how many went.
std::size_t object_table::drop_hot_replicas(const std::function<bool(const object&)>& goes, std::size_t looks,
                                            std::size_t most, time_point now) {
  std::size_t dropped = 0;
  for (looks = std::min(looks, hot_replicas_.size()); looks > 0 && dropped < most; --looks) {
    auto one = std::move(hot_replicas_.front());
    hot_replicas_.pop_front();
    const auto is_it = [&](const held& part) { return part.ticket == one.second; };
    const auto found = objects_.find(one.first);
    if (found == objects_.end() || found->second.ticket != 0) continue;
    auto& o = found->second;
    if (std::none_of(o.memory.begin(), o.memory.end(), is_it)) continue;
    if (goes(o) && drop_replicas(o, is_it, now)) ++dropped;
    else hot_replicas_.push_back(std::move(one));
  }
  seen_.cooled += dropped;
  return dropped;
}

void object_table::cool_down(time_point now) {
  const auto cold = [&](const object& o) {
    return o.reads.per_s(now) < options_.hot_reads_per_s * cold_share;
  };
  drop_hot_replicas(cold, hot_replicas_.size(), hot_replicas_.size(), now);
}

}  // namespace mooncaf
