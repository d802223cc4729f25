#include "storage/copy_survey.hpp"

#include <bit>

namespace mooncaf {
namespace {

constexpr duration moment = std::chrono::seconds(5);  // others' blocks come and go, too

/// The block before this one, or itself, that draws its lot.
const block_key& lot_of(const prefix_tree::tier& order, prefix_tree::handle h) {
  const auto& tree = order.tree();
  const auto depth = tree.depth(h);
  const auto above = depth == 0 ? 0u : std::uint32_t{1} << ((std::bit_width(depth) - 1) & ~1);
  while (tree.depth(h) > above && tree.parent(h) != prefix_tree::none) h = tree.parent(h);
  return tree.key(h);
}

}  // namespace

std::vector<block_key> copy_survey::next(const prefix_tree::tier& order, std::uint64_t given_up,
                                         time_point now) {
  std::vector<block_key> keys;
  if (order.options().copy_age <= 1) return keys;
  if (cursor_ == prefix_tree::none) {
    if (given_up == given_up_ && now < round_ + moment) return keys;
    given_up_ = given_up;
    round_ = now;
    cursor_ = 0;
  }
  constexpr std::size_t stride = 64;
  for (std::size_t steps = 0; steps < steps_max && keys.size() + 2 * stride <= keys_max; steps += stride) {
    if (cursor_ == prefix_tree::none) break;
    order.visit_cold(cursor_, stride, [&](prefix_tree::handle h) {
      keys.push_back(order.tree().key(h));
      keys.push_back(lot_of(order, h));
    });
  }
  return keys;
}

void copy_survey::answer(prefix_tree::tier& order, std::span<const block_key> asked,
                         std::span<const block_key> kept_elsewhere) {
  auto next = kept_elsewhere.begin();
  for (std::size_t i = 0; i < asked.size(); i += 2) {
    const auto& key = asked[i];
    const bool elsewhere = next != kept_elsewhere.end() && *next == key;
    if (elsewhere) ++next;
    for (auto h = order.find(key); h != prefix_tree::none; h = order.tree().parent(h)) {
      if (order.children(h) > 1 || !order.here(h)) break;
      order.set_elsewhere(h, elsewhere);
    }
  }
}

}  // namespace mooncaf
