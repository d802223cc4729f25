#include "storage/files/part_schedule.hpp"

#include <algorithm>
#include <utility>

namespace mooncaf {

part_schedule::part_schedule(std::size_t parts, std::size_t sources)
    : parts_(parts), left_(parts), sources_(sources) {}

bool part_schedule::hopeless() const noexcept {
  return !finished() && std::ranges::all_of(sources_, [](const auto& s) { return s.dropped; });
}

std::optional<std::size_t> part_schedule::least_busy(std::optional<std::size_t> not_this) const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].dropped || i == not_this) continue;
    if (!best || sources_[i].busy < sources_[*best].busy) best = i;
  }
  return best;
}

std::optional<part_schedule::task> part_schedule::take() {
  task t;
  std::optional<std::size_t> from;
  if (!again_.empty()) {
    const auto [part, source] = again_.front();
    from = least_busy(source);
    if (!from) from = least_busy({});
    if (!from) return std::nullopt;
    again_.pop_front();
    t.part = part;
  } else {
    from = least_busy({});
    if (!from || next_ == parts_) return std::nullopt;
    t.part = next_++;
  }
  t.source = *from;
  ++sources_[t.source].busy;
  return t;
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
