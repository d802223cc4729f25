#include "storage/copy_survey.hpp"

namespace mooncaf {
namespace {

constexpr duration moment = std::chrono::seconds(5);  // others' blocks come and go, too

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
  for (std::size_t steps = 0; steps < steps_max && keys.size() + stride <= keys_max; steps += stride) {
    if (cursor_ == eviction_index::none) break;
    order.visit_cold(cursor_, stride, [&](eviction_index::handle h) { keys.push_back(order.key(h)); });
  }
  return keys;
}

void copy_survey::answer(eviction_index& order, std::span<const block_key> asked,
                         std::span<const block_key> kept_elsewhere) {
  auto next = kept_elsewhere.begin();
  for (const auto& key : asked) {
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
