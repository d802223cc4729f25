#include "runtime/sim/learned_links.hpp"

#include "runtime/sched/intervals.hpp"

namespace mooncaf::sim {

namespace {

constexpr std::uint8_t only_path = 0;

}  // namespace

learned_links::learned_links(world& w) : w_(w) {
  const auto& machine = w.options.hardware;
  const transfer_price told{machine.nic_bytes_per_s * w.layout.pipeline(),
                            from_seconds(machine.network_latency_s)};
  for (std::uint32_t i = 0; i < w.layout.machines(); ++i) books_.emplace_back(told);
}

learned_links::ticket learned_links::moves(std::uint32_t learner, link_flow flow, std::uint32_t peer,
                                           double bytes, ticks begin, ticks end) {
  const auto entry = books_[learner].began(w_.layout.node_of(peer), flow, static_cast<std::uint64_t>(bytes));
  under_way_.push({end, begin, next_, learner, entry});
  return next_++;
}

duration learned_links::estimate(std::uint32_t learner, std::uint32_t peer, double bytes) {
  settle();
  return books_[learner].estimate(w_.layout.node_of(peer), only_path, static_cast<std::uint64_t>(bytes),
                                  w_.time.clock());
}

void learned_links::settle() {
  while (!under_way_.empty() && under_way_.top().end <= w_.time.now()) {
    const auto t = under_way_.top();
    under_way_.pop();
    const bool learn = broken_.erase(t.number) == 0;
    books_[t.learner].ended(t.entry, only_path, duration{t.end - t.begin}, learn,
                            time_point{duration{t.end}});
    if (learn) report(t);
  }
}

void learned_links::report(const under_way& t) {
  const auto pair = std::uint64_t{t.learner} << 32 | t.entry.peer.value;
  const auto [last, first] = reported_.try_emplace(pair, t.end);
  if (!first && t.end - last->second < report_interval.count()) return;
  last->second = t.end;
  const auto here = w_.layout.node_of(t.learner), there = t.entry.peer;
  const auto learned = books_[t.learner].view(there, only_path, time_point{duration{t.end}});
  if (learned && learned->samples > 0)
    w_.conductor.link_measured(here, there, learned->bytes_per_s, learned->latency);
}

void learned_links::forget(std::uint32_t machine) {
  for (std::uint32_t other = 0; other < books_.size(); ++other) {
    books_[other].forget(w_.layout.node_of(machine));
    books_[machine].forget(w_.layout.node_of(other));
  }
}

}  // namespace mooncaf::sim
