#include "storage/memory_boundary.hpp"

namespace mooncaf {

std::uint64_t memory_boundary::slab_for(std::uint64_t shared) noexcept {
  constexpr std::uint64_t page = 2 * MiB, longest = 256 * MiB;
  return std::clamp(shared / 64 / page * page, page, longest);
}

/// Whether the giver should give a slab to the other side, which needs one.
bool memory_boundary::gives(side giver, const boundary_report& from,
                            const boundary_report& to) const noexcept {
  constexpr double colder_by = 1.1;
  if (has_[at(giver)] < slab_ || from.bytes <= slab_) return false;
  if (from.idle_bytes >= 2 * slab_) return true;
  if (!from.coldest || !to.coldest) return false;
  const auto slab = static_cast<double>(slab_);
  const auto as_number = [](duration d) { return std::chrono::duration<double>(d).count(); };
  const auto then = as_number(*from.coldest) * (1 - slab / static_cast<double>(from.bytes));
  const auto theirs = as_number(*to.coldest) * (1 + slab / static_cast<double>(std::max(to.bytes, slab_)));
  return then > theirs * colder_by;
}

void memory_boundary::start(side giver, time_point now) {
  constexpr std::uint32_t steady = 4;
  if (other(giver) == towards_) {
    if (++in_a_row_ >= steady) turn_ = {};
  } else {
    turn_ = std::clamp(2 * turn_, turn_min, turn_max);
    in_a_row_ = 1;
  }
  towards_ = other(giver);
  has_[at(giver)] -= slab_;
  giver_ = giver;
  asked_ = now;
}

bool memory_boundary::look(const boundary_report& blocks, const boundary_report& objects, time_point now) {
  const boundary_report* const said[2] = {&blocks, &objects};
  bool needs[2];
  for (const auto s : {side::blocks, side::objects}) {
    auto& before = taken_[at(s)];
    needs[at(s)] = before && said[at(s)]->taken_bytes > *before && said[at(s)]->idle_bytes < slab_;
    if (!in_flight()) before = said[at(s)]->taken_bytes;
  }
  if (in_flight()) {
    const auto from = *giver_;
    const bool done = said[at(from)]->withheld_bytes >= withheld_from(from);
    if (!done && now - asked_ < patience) return false;
    giver_.reset();
    auto& gets = has_[at(done ? other(from) : from)];
    gets += slab_;
    moved_[at(other(from))] += done;
    return true;
  }
  for (const auto giver : {side::blocks, side::objects}) {
    const auto taker = other(giver);
    if (!needs[at(taker)] || (taker != towards_ && now - asked_ < turn_)) continue;
    if (!gives(giver, *said[at(giver)], *said[at(taker)])) continue;
    start(giver, now);
    return true;
  }
  return false;
}

}  // namespace mooncaf
