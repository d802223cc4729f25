// Memory that blocks share with something else: the part of `tiered_store` that does without some of it, and
// says how cold the remaining blocks have become.

#include <algorithm>

#include "storage/tiered_store.hpp"

namespace mooncaf {

std::vector<std::uint32_t> tiered_store::withhold(std::size_t slots, std::size_t most) {
  const auto lock = locked();
  const auto has = store_.withheld();
  if (has >= slots) {
    store_.give_back(has - slots);
    return {};
  }
  const auto wanted = std::min(slots - has, most);
  const bool ahead = options_.ssd && writes_on_eviction(options_.write);
  const auto spare = ahead ? std::min(store_.free_slots(), options_.free_ahead) : 0;
  make_room_without_loss(wanted + spare);
  auto taken = store_.withhold(wanted, spare);
  evict_ahead();
  return taken;
}

boundary_report tiered_store::boundary() const {
  const auto lock = locked();
  const auto n = store_.integrity();
  const auto block = store_.block_bytes();
  const bool ahead = options_.ssd && writes_on_eviction(options_.write);
  boundary_report r;
  r.withheld_bytes = n.withheld * block;
  r.bytes = (n.total - n.withheld) * block;
  r.idle_bytes = (n.free - (ahead ? std::min(n.free, options_.free_ahead) : 0)) * block;
  r.taken_bytes = (store_.stats().commits + stats_.promotions) * block;
  if (const auto used = store_.coldest_use()) r.coldest = used_.age(*used, now_);
  return r;
}

}  // namespace mooncaf
