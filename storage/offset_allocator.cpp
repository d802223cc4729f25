#include "storage/offset_allocator.hpp"

#include <bit>
#include <cassert>

namespace mooncaf {

offset_allocator::offset_allocator(std::uint64_t bytes) : total_(bytes / grain_bytes), free_(total_) {
  for (auto& level : heads_) level.fill(none);
  if (total_ == 0) return;
  const auto whole = new_part();
  parts_[whole].grains = total_;
  last_ = whole;
  hang(whole);
}

// Sizes below `steps` have a class each; above, the highest bit gives the level, the four bits after it the
// step.
offset_allocator::size_class offset_allocator::class_of(std::uint64_t grains) noexcept {
  if (grains < steps) return {0, static_cast<unsigned>(grains)};
  const unsigned high = static_cast<unsigned>(std::bit_width(grains)) - 1;
  return {high - steps_log2 + 1, static_cast<unsigned>(grains >> (high - steps_log2)) & (steps - 1)};
}

std::uint32_t offset_allocator::find(std::uint64_t grains) const noexcept {
  // The first class with no run that is too short.
  if (grains >= steps) {
    const unsigned high = static_cast<unsigned>(std::bit_width(grains)) - 1;
    grains += (std::uint64_t{1} << (high - steps_log2)) - 1;
  }
  const auto wanted = class_of(grains);
  if (const auto fitting = step_bits_[wanted.level] & (~0u << wanted.step))
    return heads_[wanted.level][static_cast<unsigned>(std::countr_zero(fitting))];
  if (wanted.level + 1 >= levels) return none;
  const auto above = level_bits_ & (~std::uint64_t{0} << (wanted.level + 1));
  if (above == 0) return none;
  const auto level = static_cast<unsigned>(std::countr_zero(above));
  return heads_[level][static_cast<unsigned>(std::countr_zero(step_bits_[level]))];
}

// A span that is nearly full has its last fitting run here. A few looks keep the time bounded.
std::uint32_t offset_allocator::find_in_own_class(std::uint64_t grains) const noexcept {
  constexpr int looks = 8;
  const auto own = class_of(grains);
  auto at = heads_[own.level][own.step];
  for (int i = 0; i < looks && at != none; ++i, at = parts_[at].next_free)
    if (parts_[at].grains >= grains) return at;
  return none;
}

std::optional<offset_allocator::extent> offset_allocator::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > free_bytes()) return std::nullopt;
  const std::uint64_t grains = rounded(bytes) / grain_bytes;
  auto found = find(grains);
  if (found == none) found = find_in_own_class(grains);
  if (found == none) return std::nullopt;
  unhang(found);
  split(found, grains);
  parts_[found].used = true;
  free_ -= grains;
  return extent{parts_[found].begin * grain_bytes, found};
}

std::optional<offset_allocator::extent> offset_allocator::claim(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0 || offset % grain_bytes != 0 || last_ == none || parts_[last_].used ||
      bytes > total_bytes() || offset > total_bytes() - rounded(bytes) ||
      offset / grain_bytes < parts_[last_].begin)
    return std::nullopt;
  const auto gap = offset / grain_bytes - parts_[last_].begin;
  auto at = last_;
  unhang(at);
  if (gap > 0) {
    split(at, gap);
    hang(at);
    at = last_;
    unhang(at);
  }
  split(at, rounded(bytes) / grain_bytes);
  parts_[at].used = true;
  free_ -= parts_[at].grains;
  return extent{offset, at};
}

/// The grains of a part beyond the first so many become a free part behind it.
void offset_allocator::split(std::uint32_t index, std::uint64_t grains) {
  if (parts_[index].grains == grains) return;
  const auto rest = new_part();  // may move the parts
  auto &taken = parts_[index], &left = parts_[rest];
  left.begin = taken.begin + grains;
  left.grains = taken.grains - grains;
  left.before = index;
  left.after = taken.after;
  (left.after != none ? parts_[left.after].before : last_) = rest;
  taken.after = rest;
  taken.grains = grains;
  hang(rest);
}

void offset_allocator::release(std::uint32_t handle) {
  assert(handle < parts_.size() && parts_[handle].used);
  parts_[handle].used = false;
  free_ += parts_[handle].grains;
  if (const auto after = parts_[handle].after; after != none && !parts_[after].used) {
    unhang(after);
    absorb_next(handle);
  }
  if (const auto before = parts_[handle].before; before != none && !parts_[before].used) {
    unhang(before);
    absorb_next(before);
    handle = before;
  }
  hang(handle);
}

void offset_allocator::absorb_next(std::uint32_t index) {
  auto& into = parts_[index];
  const auto gone = into.after;
  into.grains += parts_[gone].grains;
  into.after = parts_[gone].after;
  (into.after != none ? parts_[into.after].before : last_) = index;
  spare_.push_back(gone);
}

void offset_allocator::hang(std::uint32_t index) {
  const auto [level, step] = class_of(parts_[index].grains);
  auto& head = heads_[level][step];
  parts_[index].previous_free = none;
  parts_[index].next_free = head;
  if (head != none) parts_[head].previous_free = index;
  head = index;
  level_bits_ |= std::uint64_t{1} << level;
  step_bits_[level] |= 1u << step;
}

void offset_allocator::unhang(std::uint32_t index) {
  const auto& p = parts_[index];
  const auto [level, step] = class_of(p.grains);
  if (p.next_free != none) parts_[p.next_free].previous_free = p.previous_free;
  if (p.previous_free != none) {
    parts_[p.previous_free].next_free = p.next_free;
    return;
  }
  heads_[level][step] = p.next_free;
  if (p.next_free != none) return;
  step_bits_[level] &= ~(1u << step);
  if (step_bits_[level] == 0) level_bits_ &= ~(std::uint64_t{1} << level);
}

std::uint32_t offset_allocator::new_part() {
  if (spare_.empty()) {
    parts_.emplace_back();
    return static_cast<std::uint32_t>(parts_.size() - 1);
  }
  const auto index = spare_.back();
  spare_.pop_back();
  parts_[index] = {};
  return index;
}

bool offset_allocator::consistent() const {
  std::uint64_t at = 0, free = 0, free_parts = 0, seen = 0, hanging = 0;
  if (total_ > 0) {
    // The part at offset 0 is never absorbed by another and keeps its place.
    for (std::uint32_t i = 0, before = none; i != none; before = i, i = parts_[i].after, ++seen) {
      const auto& p = parts_[i];
      if (p.begin != at || p.before != before || p.grains == 0) return false;
      if (!p.used && before != none && !parts_[before].used) return false;
      at += p.grains;
      free += p.used ? 0 : p.grains;
      free_parts += p.used ? 0 : 1;
    }
  }
  for (unsigned level = 0; level < levels; ++level) {
    if (((level_bits_ >> level) & 1) != (step_bits_[level] != 0)) return false;
    for (unsigned step = 0; step < steps; ++step) {
      if (((step_bits_[level] >> step) & 1) != (heads_[level][step] != none)) return false;
      for (auto i = heads_[level][step]; i != none; i = parts_[i].next_free, ++hanging) {
        const auto own = class_of(parts_[i].grains);
        if (parts_[i].used || own.level != level || own.step != step) return false;
      }
    }
  }
  return at == total_ && free == free_ && hanging == free_parts && seen + spare_.size() == parts_.size();
}

}  // namespace mooncaf
