#include "runtime/sched/prefix_turns.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace mooncaf {

namespace {

/// A key stands for all blocks up to its own, so equal ones end where the first differs.
std::uint32_t shared(std::span<const block_key> a, std::span<const block_key> b) {
  std::size_t low = 0, high = std::min(a.size(), b.size());
  while (low < high) {
    const auto middle = (low + high) / 2;
    if (a[middle] == b[middle]) low = middle + 1;
    else high = middle;
  }
  return static_cast<std::uint32_t>(low);
}

}  // namespace

bool prefix_turns::wait(entry& e, std::uint64_t owner) {
  e.behind.reset();
  e.until = 0;
  std::uint32_t there = 0;  // of its blocks, as far as is known here
  // Strictly ahead, so that no two wait for each other.
  const auto turn = [](std::uint64_t id, const prompt& p) { return std::tuple{p.priority, p.deadline, id}; };
  for (const auto other : alike(e)) {
    if (other == owner) continue;
    const auto& before = all_.at(other);
    const auto blocks = shared(e.own.keys, before.own.keys);
    there = std::max(there, std::min(blocks, before.there));
    if (blocks <= e.until || before.loads || turn(other, before.own) > turn(owner, e.own)) continue;
    e.behind = other;
    e.until = blocks;
  }
  if (e.until < there + least_) e.behind.reset();
  return e.behind.has_value();
}

bool prefix_turns::comes(std::uint64_t owner, prompt p) {
  if (p.keys.empty()) return false;
  auto& e = all_[owner];
  e.own = std::move(p);
  auto& others = alike_[e.own.keys.front()];
  others.push_back(owner);
  return others.size() > 1 && wait(e, owner);
}

void prefix_turns::there(std::uint64_t owner, std::uint32_t blocks) {
  const auto i = all_.find(owner);
  if (i == all_.end()) return;
  i->second.there = std::max(i->second.there, blocks);
  for (const auto other : alike(i->second)) {
    auto& e = all_.at(other);
    if (e.behind != owner || e.until > i->second.there) continue;
    e.behind.reset();
    ready_.push_back(other);
  }
}

void prefix_turns::pass_on(std::uint64_t owner, const std::vector<std::uint64_t>& others) {
  for (const auto other : others)
    if (auto& e = all_.at(other); e.behind == owner && !wait(e, other)) ready_.push_back(other);
}

void prefix_turns::loads(std::uint64_t owner, bool now) {
  const auto i = all_.find(owner);
  if (i == all_.end() || std::exchange(i->second.loads, now) == now || !now) return;
  pass_on(owner, alike(i->second));
}

void prefix_turns::ends(std::uint64_t owner) {
  const auto i = all_.find(owner);
  if (i == all_.end()) return;
  const auto others = alike_.find(i->second.own.keys.front());
  all_.erase(i);
  std::erase(ready_, owner);
  std::erase(others->second, owner);
  if (others->second.empty()) alike_.erase(others);
  else pass_on(owner, others->second);
}

std::vector<std::uint64_t> prefix_turns::take_ready() { return std::exchange(ready_, {}); }

}  // namespace mooncaf
