#pragma once
// The state machines of the product serve requests in a cluster in which nothing goes wrong.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/sched/admission_queue.hpp"
#include "tests/campaign/steady_pace.hpp"

namespace mooncaf::campaign {

struct steady_request {
  time_point when{};
  std::vector<std::int32_t> prompt;
  std::uint32_t answer = 1;      ///< tokens that come
  std::uint32_t max_tokens = 1;  ///< … that it asks for
  std::uint8_t priority = 1;
  service_share share{};
};

struct steady_cluster {
  steady_pace pace;  ///< the answers are filled in
  conductor_options core;
  admission_queue_options queue;
  std::size_t prefill = 1, decode = 1;  ///< nodes, each with one instance
  std::size_t slots = 1;                ///< of the memory of each
};

struct steady_outcome {
  std::string journal;  ///< of the conductor
  std::uint64_t finished = 0, failed = 0;
};

/// When requests may come at the earliest: the nodes know each other.
inline constexpr time_point steady_begin{std::chrono::seconds(1002)};

steady_outcome serve(const steady_cluster& what, std::span<const steady_request> requests);

}  // namespace mooncaf::campaign
