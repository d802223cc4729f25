#include "storage/copy_survey.hpp"

#include <bit>

namespace mooncaf {
namespace {

constexpr duration moment = std::chrono::seconds(5);  // others' blocks come and go, too

/// The block before this one, or itself, that draws its lot.
const block_key& lot_of(const eviction_index& order, eviction_index::handle h) {
  const auto depth = order.depth(h);
  const auto above = depth == 0 ? 0u : std::uint32_t{1} << ((std::bit_width(depth) - 1) & ~1);
  while (order.depth(h) > above && order.parent(h) != eviction_index::none) h = order.parent(h);
  return order.key(h);
}

}  // namespace

std::vector<block_key> copy_survey::next(const eviction_index& order, std::uint64_t given_up,
                                         time_point now) {
  std::vector<block_key> keys;
  if (order.options().copy_age <= 1) return keys;
  if (cursor_ == eviction_index::none) {
    if (given_up == given_up_ && now < round_ + moment) return keys;
    given_up_ = given_up;
    round_ = now;
    cursor_ = 0;
  }
  constexpr std::size_t stride = 64;
  for (std::size_t steps = 0; steps < steps_max && keys.size() + 2 * stride <= keys_max; steps += stride) {
    if (cursor_ == eviction_index::none) break;
    order.visit_cold(cursor_, stride, [&](eviction_index::handle h) {
      keys.push_back(order.key(h));
      keys.push_back(lot_of(order, h));
    });
  }
  return keys;
}

void copy_survey::answer(eviction_index& order, std::span<const block_key> asked,
                         std::span<const block_key> kept_elsewhere) {
  auto next = kept_elsewhere.begin();
  for (std::size_t i = 0; i < asked.size(); i += 2) {
    const auto& key = asked[i];
    const bool elsewhere = next != kept_elsewhere.end() && *next == key;
    if (elsewhere) ++next;
    const auto kind = elsewhere ? copy_kind::elsewhere : copy_kind::alone;
    for (auto h = order.find(key); h != eviction_index::none; h = order.parent(h)) {
      if (order.children(h) > 1 || !order.resident(h)) break;
      if (order.copy(h) != copy_kind::comes_again) order.set_copy(h, kind);
    }
  }
}

}  // namespace mooncaf
