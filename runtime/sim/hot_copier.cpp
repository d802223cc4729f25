#include "runtime/sim/hot_copier.hpp"

#include <utility>

namespace mooncaf::sim {

void hot_copier::look() {
  if (w_.options.hot_copy_share == 0) return;
  const auto now = w_.time.now();
  for (auto& copy : w_.conductor.copy_hot_blocks(w_.time.clock())) {
    const double bytes = static_cast<double>(w_.options.hardware.block_bytes() * copy.blocks.size());
    const auto from = w_.layout.machine_of(copy.source), to = w_.layout.machine_of(copy.target);
    const auto there = c_.links.transfer(from, to, bytes, now);
    c_.learned.moves(to, link_flow::in, from, bytes, now, there);
    w_.out.hot_copies += copy.blocks.size();
    w_.out.bytes_fetched += bytes;
    under_way_.emplace(made_, copy_under_way{std::move(copy), now});
    w_.time.add(there, event_kind::copy_arrived, made_++);
  }
}

void hot_copier::arrived(std::uint32_t number) {
  const auto [copy, begun] = std::move(under_way_.extract(number).mapped());
  const auto from = w_.layout.machine_of(copy.source), to = w_.layout.machine_of(copy.target);
  const auto& m = c_.machines;
  if (!m.computes(to) || m.died_since(from, begun) || m.died_since(to, begun)) return;
  c_.memories.of(to).copy(copy.blocks, static_cast<std::uint64_t>(w_.time.now()));
}

}  // namespace mooncaf::sim
