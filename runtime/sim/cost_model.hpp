#pragma once
// How long a modelled step or pass takes.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/sim/event_queue.hpp"
#include "runtime/sim/profile.hpp"

namespace mooncaf::sim {

/// Part of a prompt in one prefill step.
struct chunk_work {
  std::uint32_t start = 0;   ///< tokens before it
  std::uint32_t tokens = 0;  ///< new ones
  std::uint32_t loaded = 0;  ///< of earlier tokens: read from the cache for this chunk
};

/// @thread  Immutable.
class cost_model {
 public:
  explicit cost_model(const profile& p)
      : c_(p.costs), chunk_tokens_(std::max(p.chunk_tokens, 1u)), layers_(std::max(p.layers, 1u)) {}

  double prefill_constant() const noexcept { return c_.prefill_constant_s; }
  /// Seconds that a chunk adds to its step.
  double chunk(const chunk_work& w) const noexcept {
    const double n = w.tokens, p = w.start;
    return c_.prefill_token_s * n + c_.prefill_pair_s * (n * p + n * n / 2) +
           c_.prefill_cached_token_s * w.loaded;
  }
  /// A prompt alone on an idle instance, in chunks.
  double prefill(std::uint32_t prompt, std::uint32_t cached) const noexcept {
    double sum = 0;
    for (auto at = cached; at < prompt;) {
      const auto n = std::min(chunk_tokens_, prompt - at);
      sum += c_.prefill_constant_s + chunk({at, n, at == cached ? cached : 0});
      at += n;
    }
    return sum;
  }

  /// The first of a run of decode steps, and by how much every further one is longer: the context grows.
  double decode_step(std::size_t batch, std::uint64_t context) const noexcept {
    return c_.decode_constant_s + c_.decode_sequence_s * static_cast<double>(batch) +
           c_.decode_context_token_s * static_cast<double>(context);
  }
  double decode_growth(std::size_t batch) const noexcept {
    return c_.decode_context_token_s * static_cast<double>(batch);
  }

  /// How much longer a step takes while the other role computes on the same machine.
  double prefill_beside_decode() const noexcept { return c_.prefill_beside_decode; }
  double decode_beside_prefill() const noexcept { return c_.decode_beside_prefill; }

  std::uint32_t layers() const noexcept { return layers_; }

 private:
  step_costs c_;
  std::uint32_t chunk_tokens_;
  std::uint32_t layers_;
};

}  // namespace mooncaf::sim
