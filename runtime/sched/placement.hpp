#pragma once
// A question to the conductor, and its answer: where a request runs and which blocks it reuses, or why it may
// not.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/service_share.hpp"
#include "runtime/base/storage_tier.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

struct schedule_request {
  request_id id;                    ///< of the attempt: unique per try
  std::span<const block_key> keys;  ///< full blocks, prompt order
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;
  std::uint8_t priority = 1;  ///< 0 high, 1 normal, 2 low: higher classes may use more of the SLO's room
  duration ttft_slo{};        ///< zero: the cluster's
  duration tbt_slo{};
  /// Decode instances that earlier attempts failed on, e.g. as the prefill node cannot reach them: taken only
  /// if no other is live.
  std::span<const worker_id> avoid{};
  node_id gateway{};         ///< node of the gateway that has its client; zero: none, e.g. in a simulation
  time_point arrival{};      ///< at the gateway; zero: now. Time spent before counts towards the TTFT
  bool resumed = false;      ///< a worker was lost in mid-answer: it may wait, but is never refused
  std::uint64_t tenant = 0;  ///< that sent it, as a hash; 0: unknown
  service_share share;
};

/// A node that has leading blocks of a prompt in memory.
struct prefix_holder {
  node_id node;
  std::uint32_t blocks = 0;

  friend bool operator==(const prefix_holder&, const prefix_holder&) = default;
};

struct placement {
  /// Others that a fetch is shared with, at most.
  static constexpr std::size_t most_beside = 3;

  worker_id prefill;
  worker_id decode;
  node_id prefill_node;
  node_id decode_node;
  std::uint32_t local_blocks = 0;   ///< leading blocks at the prefill node
  node_id source;                   ///< node to fetch a longer prefix from; none: 0
  std::uint32_t source_blocks = 0;  ///< leading blocks there
  storage_tier source_tier = storage_tier::dram;
  /// Other nodes that have at least half of the fetched blocks, the least busy first: all of them send at
  /// once. The decision counts on the source alone.
  std::vector<prefix_holder> beside;
  duration predicted_ttft{};  ///< since arrival
  duration predicted_tbt{};
  bool replicate = false;  ///< keep the fetched blocks: a hot prefix gets a further holder
};

/// How far a request came before it was refused. The later, the more was wasted.
enum class reject_stage : std::uint8_t {
  placement,  ///< no instance could take it at all
  prefill,    ///< its TTFT would be missed
  decode,     ///< before prefill: its TBT would be missed, or the decode pool is full
  memory,     ///< before prefill: decode's memory will be full, or never holds it
  at_decode,  ///< after prefill, by the decode side: the prefill was wasted
  queue,      ///< not refused: it waits until there is room
};

constexpr std::string_view to_string(reject_stage stage) noexcept {
  switch (stage) {
    case reject_stage::placement:
      return "placement";
    case reject_stage::prefill:
      return "prefill";
    case reject_stage::decode:
      return "decode";
    case reject_stage::memory:
      return "memory";
    case reject_stage::at_decode:
      return "at decode";
    case reject_stage::queue:
      return "queue";
  }
  return "unknown";
}

/// Why a request was refused, and when another try makes sense.
struct rejection {
  error cause;  ///< `unavailable`, `overloaded`, `slo_unreachable` or `invalid_argument`
  duration retry_after{};
  reject_stage stage = reject_stage::placement;
};

}  // namespace mooncaf
