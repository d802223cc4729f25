#include "storage/objects/table/object_warmth.hpp"

#include <algorithm>

#include "storage/objects/table/object_index.hpp"

namespace mooncaf {

namespace {
/// Below this part of the rate that made it, a replica goes.
constexpr double cold_share = 0.25;
/// A replica that found no room is not asked for again before that.
constexpr auto ask_again = std::chrono::seconds(10);
}  // namespace

void object_warmth::read(stored_object& o, double room_for_readers, time_point now) {
  auto& s = o.warmth;
  s.reads_.note(now);
  note_hottest(o, now);
  if (hot_per_s_ == 0 || now < s.again_ || s.reads_.per_s(now) < hot_per_s_) return;
  s.again_ = now + ask_again;
  if (replica_count(o.memory) >= replicas_max_ || static_cast<double>(o.size) > room_for_readers) return;
  hot_.push_back(*o.key);
}

void object_warmth::like(stored_object& o, const stored_object& other) { o.warmth = other.warmth; }

/// An object that is read noticeably more than the coldest of the list comes into it: by one read, and by a
/// tenth. So an object read once, or as often as all others, costs no more than this look.
void object_warmth::note_hottest(stored_object& o, time_point now) {
  auto& s = o.warmth;
  if (s.listed_) return;
  const bool full = hottest_.size() >= hottest_objects_max;
  if (full && s.reads_.per_s(now) <= 1.1 * coldest_of_them_.per_s(now) + decayed_rate::one_per_s) return;
  s.listed_ = true;
  hottest_.push_back(*o.key);
  if (hottest_.size() == 2 * hottest_objects_max) hottest(now);
}

std::vector<std::pair<double, stored_object*>> object_warmth::hottest(time_point now) {
  std::sort(hottest_.begin(), hottest_.end());
  hottest_.erase(std::unique(hottest_.begin(), hottest_.end()), hottest_.end());
  std::vector<std::pair<double, stored_object*>> all;
  for (const auto& key : hottest_) {
    auto* const o = index_.find(key);
    if (!o || !std::exchange(o->warmth.listed_, false)) continue;
    all.emplace_back(o->warmth.reads_.per_s(now), o);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && *a.second->key < *b.second->key);
  });
  if (all.size() > hottest_objects_max) all.resize(hottest_objects_max);
  hottest_.clear();
  for (const auto& [rate, o] : all) {
    o->warmth.listed_ = true;
    hottest_.push_back(*o->key);
  }
  coldest_of_them_ = all.empty() ? decayed_rate{} : all.back().second->warmth.reads_;
  return all;
}

void object_warmth::made_for_readers(const stored_object& o, std::uint64_t ticket) {
  made_.emplace_back(*o.key, ticket);
}

std::optional<object_warmth::made_replica> object_warmth::next_made() {
  const auto one = std::move(made_.front());
  made_.pop_front();
  auto* const o = index_.find(one.first);
  if (!o || !o->published()) return std::nullopt;
  const auto is_it = [&](const memory_part& part) { return part.ticket == one.second; };
  if (std::none_of(o->memory.begin(), o->memory.end(), is_it)) return std::nullopt;
  return made_replica{o, one.second};
}

bool object_warmth::is_cold(const stored_object& o, time_point now) const {
  return o.warmth.reads_.per_s(now) < hot_per_s_ * cold_share;
}

}  // namespace mooncaf
