#include "runtime/sched/waiting_line.hpp"

#include <algorithm>
#include <tuple>

namespace mooncaf {

schedule_request waiting_request::view() const {
  auto viewed = what;
  viewed.keys = keys;
  viewed.avoid = avoid;
  return viewed;
}

void waiting_line::put(waiting_request& w) {
  ++size_;
  of_[w.what.share.owner].emplace(w.came(), &w);
}

void waiting_line::take_out(const waiting_request& w) {
  const auto own = of_.find(w.what.share.owner);
  own->second.erase(w.came());
  if (own->second.empty()) of_.erase(own);
  --size_;
}

waiting_line::seat waiting_line::first_seat() const { return earliest().came(); }

waiting_line::seat waiting_line::last_seat() const {
  const auto latest = [](const auto& o) { return o.second.rbegin()->first; };
  return latest(*std::ranges::max_element(of_, {}, latest));
}

waiting_request& waiting_line::earliest() const {
  const auto first = [](const auto& o) { return o.second.begin()->first; };
  return *std::ranges::min_element(of_, {}, first)->second.begin()->second;
}

waiting_request& waiting_line::next(const service_levels& levels) const {
  const auto turn = [&](const auto& o) { return std::pair{levels.level(o.first), o.second.begin()->first}; };
  return *std::ranges::min_element(of_, {}, turn)->second.begin()->second;
}

waiting_request& waiting_line::last(const service_levels& levels) const {
  const auto burden = [&](const auto& o) {
    return std::pair{static_cast<double>(o.second.size()) / levels.weight(o.first), o.second.rbegin()->first};
  };
  return *std::ranges::max_element(of_, {}, burden)->second.rbegin()->second;
}

std::vector<waiting_line::seated> waiting_line::in_order(const service_levels& levels) const {
  std::vector<seated> out;
  out.reserve(size_);
  for (const auto& [_, requests] : of_) out.insert(out.end(), requests.begin(), requests.end());
  if (of_.size() < 2) return out;
  // Each turn moves its owner's level on by what it costs.
  std::vector<std::tuple<double, seat, waiting_request*>> turns;
  turns.reserve(size_);
  for (const auto& [owner, requests] : of_) {
    double level = levels.level(owner);
    for (const auto& [seat, w] : requests) {
      turns.emplace_back(level, seat, w);
      level += w->cost / levels.weight(owner);
    }
  }
  std::ranges::sort(turns);
  std::ranges::sort(out);
  for (std::size_t i = 0; i < out.size(); ++i) out[i].second = std::get<2>(turns[i]);
  return out;
}

}  // namespace mooncaf
