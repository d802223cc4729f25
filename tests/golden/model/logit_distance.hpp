#pragma once
// How far our logits of a golden model are from the reference's.

#include <cmath>

#include "tests/golden/model/golden_file.hpp"
#include "tests/runtime/model/model_fixture.hpp"

namespace mooncaf::testing {

struct golden_distance {
  double worst = 0;         ///< over all logits of all positions shown
  bool same_greedy = true;  ///< the best token is the reference's at each of them
};

inline golden_distance distance_to(device& dev, const std::shared_ptr<const model>& m,
                                   const golden_case& golden, kv_dtype dtype) {
  runner_options options;
  options.layout = m->layout(32, dtype);
  const auto longest = static_cast<std::uint32_t>(golden.ids.size());
  if (!dev.info().host_memory)
    options.device_blocks = unwrap(device_kv::make(
        dev, options.layout, options.layout.blocks_for(longest) * options.layout.block_bytes(), longest));
  const auto runner = unwrap(model_runner::make(m, dev, options));
  golden_distance out;
  for (const auto& [position, expected] : golden.at) {
    const kv_space kv(options.layout, position + 1);
    const auto logits = feed(*runner, kv, std::span(golden.ids).first(position + 1), 48);
    if (logits.size() != expected.size()) throw std::runtime_error(golden.name + ": another vocabulary");
    for (std::size_t i = 0; i < logits.size(); ++i)
      out.worst = std::max(out.worst, std::abs(static_cast<double>(logits[i]) - expected[i]));
    const auto best = static_cast<std::size_t>(std::ranges::max_element(expected) - expected.begin());
    out.same_greedy = out.same_greedy && argmax(logits) == best;
  }
  return out;
}

}  // namespace mooncaf::testing
