#include "storage/files/part_schedule.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mooncaf {

part_schedule::part_schedule(std::size_t parts, std::size_t sources, std::uint64_t seed, bool all)
    : taken_(parts, !all), left_(all ? parts : 0), sources_(sources), random_(seed) {}

void part_schedule::want(std::size_t part) {
  taken_.at(part) = false;
  first_ = std::min(first_, part);
  ++left_;
}

std::size_t part_schedule::add_fetching() {
  sources_.emplace_back().fetches = true;
  alone_ = false;
  return sources_.size() - 1;
}

void part_schedule::holds(std::size_t source, std::span<const std::byte> map) {
  sources_.at(source).map.assign(map.begin(), map.end());
}

bool part_schedule::hopeless() const noexcept {
  return !finished() && std::ranges::all_of(sources_, [](const auto& s) { return s.dropped; });
}

bool part_schedule::stranded() const noexcept {
  return !finished() &&
         std::ranges::all_of(sources_, [](const auto& s) { return s.busy == 0 && (s.dropped || s.fetches); });
}

part_holding part_schedule::has(const source_state& s, std::size_t part) const {
  if (s.dropped) return part_holding::none;
  if (!s.fetches) return part_holding::here;
  return part < s.map.size() ? static_cast<part_holding>(s.map[part]) : part_holding::none;
}

/// Whether another host that fetches has the part, or will.
bool part_schedule::is_elsewhere(std::size_t part) const {
  return std::ranges::any_of(sources_,
                             [&](const auto& s) { return s.fetches && has(s, part) != part_holding::none; });
}

std::optional<std::size_t> part_schedule::least_busy_with(std::size_t part,
                                                          std::optional<std::size_t> not_this) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (i == not_this || has(sources_[i], part) != part_holding::here) continue;
    if (!best || sources_[i].busy < sources_[*best].busy) best = i;
  }
  return best;
}

std::optional<part_schedule::task> part_schedule::take_again() {
  for (auto i = again_.begin(); i != again_.end(); ++i) {
    auto from = least_busy_with(i->part, i->source);
    if (!from) from = least_busy_with(i->part, {});
    if (!from) continue;
    const task t{i->part, *from};
    again_.erase(i);
    return t;
  }
  return std::nullopt;
}

std::optional<std::size_t> part_schedule::wanted_of(const source_state& s) {
  while (first_ < taken_.size() && taken_[first_]) ++first_;
  std::optional<std::size_t> any;
  std::vector<std::size_t> rare;
  for (auto p = first_; p < taken_.size() && rare.size() < window; ++p) {
    if (taken_[p] || has(s, p) != part_holding::here) continue;
    if (alone_ || s.fetches) return p;
    if (!any) any = p;
    if (!is_elsewhere(p)) rare.push_back(p);
  }
  if (!rare.empty()) return rare[random_() % rare.size()];
  return s.busy == 0 ? any : std::nullopt;
}

std::optional<part_schedule::task> part_schedule::take() {
  if (auto t = take_again()) {
    ++sources_[t->source].busy;
    return t;
  }
  std::vector<std::size_t> order(sources_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return sources_[i].busy; });
  for (const auto i : order) {
    if (sources_[i].dropped) continue;
    const auto part = wanted_of(sources_[i]);
    if (!part) continue;
    taken_[*part] = true;
    ++sources_[i].busy;
    return task{*part, i};
  }
  return std::nullopt;
}

void part_schedule::done(const task& t) {
  auto& s = sources_.at(t.source);
  --s.busy;
  ++s.parts;
  s.failures = 0;
  --left_;
}

void part_schedule::failed(const task& t, std::string why) {
  auto& s = sources_.at(t.source);
  --s.busy;
  again_.push_back({t.part, t.source});
  if (s.dropped) return;
  s.why = std::move(why);
  s.dropped = ++s.failures >= failures_max;
}

void part_schedule::drop(std::size_t source, std::string why) {
  auto& s = sources_.at(source);
  if (std::exchange(s.dropped, true)) return;
  s.why = std::move(why);
}

}  // namespace mooncaf
