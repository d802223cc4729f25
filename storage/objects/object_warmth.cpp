// Which objects are read most, and replicas that are made for that and given up again: the part of
// `object_table` that counts reads.

#include <algorithm>
#include <utility>

#include "storage/objects/object_table.hpp"

namespace mooncaf {

namespace {
/// Below this part of the rate that made it, a replica goes.
constexpr double cold_share = 0.25;
/// One that found no room is not asked for again before that.
constexpr auto ask_again = std::chrono::seconds(10);
/// Below this rate an object is not among the hottest: that is what one read counts for a minute later.
constexpr double forgotten_per_s = 1e-3;
}  // namespace

void object_table::count_read(entry& e, time_point now) {
  auto& o = e.second;
  o.reads.note(now);
  note_hottest(e, now);
  if (options_.hot_reads_per_s == 0 || now < o.hot_again || o.reads.per_s(now) < options_.hot_reads_per_s)
    return;
  o.hot_again = now + ask_again;
  const auto replicas = replica_count(o);
  const auto budget = static_cast<double>(total_bytes_) * options_.hot_share;
  if (replicas >= options_.hot_replicas || static_cast<double>(hot_bytes_ + o.size) > budget) return;
  hot_.push_back(e.first);
}

/// Who is read noticeably more than the coldest of the list comes into it: by one read, and by a tenth. So
/// what is read once, or as often as everything else, costs no more than this look.
void object_table::note_hottest(entry& e, time_point now) {
  auto& o = e.second;
  if (o.among_hottest) return;
  const bool full = hottest_.size() >= hottest_max;
  if (full && o.reads.per_s(now) <= 1.1 * coldest_of_them_.per_s(now) + decayed_rate::one_per_s) return;
  o.among_hottest = true;
  hottest_.push_back(e.first);
  if (hottest_.size() == 2 * hottest_max) keep_hottest(now);
}

/// Cuts the list. @returns what stays, the hottest first.
std::vector<std::pair<double, object_table::entry*>> object_table::keep_hottest(time_point now) {
  std::sort(hottest_.begin(), hottest_.end());
  hottest_.erase(std::unique(hottest_.begin(), hottest_.end()), hottest_.end());
  std::vector<std::pair<double, entry*>> all;
  for (const auto& key : hottest_) {
    const auto found = objects_.find(key);
    if (found == objects_.end() || !found->second.among_hottest) continue;
    found->second.among_hottest = false;
    all.emplace_back(found->second.reads.per_s(now), &*found);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second->first < b.second->first);
  });
  if (all.size() > hottest_max) all.resize(hottest_max);
  hottest_.clear();
  for (const auto& [rate, e] : all) {
    e->second.among_hottest = true;
    hottest_.push_back(e->first);
  }
  coldest_of_them_ = all.empty() ? decayed_rate{} : all.back().second->second.reads;
  return all;
}

std::vector<hot_object> object_table::hottest(time_point now) {
  std::vector<hot_object> told;
  for (const auto& [rate, e] : keep_hottest(now)) {
    const auto& o = e->second;
    if (rate < forgotten_per_s || o.ticket != 0 || o.ttl_end <= now) continue;
    told.push_back({e->first, o.size, static_cast<std::uint32_t>(replica_count(o)), rate});
  }
  return told;
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
    if (part.one_with(one)) give_back(part, protected_until(o), now);
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
