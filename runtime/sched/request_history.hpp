#pragma once
// The requests of the last minutes as they came, whatever became of them: what admission `adaptive` plays again.

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "runtime/sched/placement.hpp"
#include "runtime/sched/scheduler_defaults.hpp"

namespace mooncaf {

/// A request as a trace would have it.
struct past_request {
  request_id id;
  time_point arrival{};
  std::uint32_t prompt_tokens = 0;
  std::uint32_t max_tokens = 0;
  std::uint32_t output_tokens = 0;  ///< of its answer; 0: not known
  time_point first_token{};         ///< zero: there was none
  std::uint8_t priority = 1;
  service_share share;
  std::size_t answer = 0;       ///< `answer_class`
  prefix_holder holder;         ///< where the most of its prompt was when it came
  std::vector<block_key> keys;  ///< of its full blocks
};

/// What is forgotten: older requests, and the oldest where there are more, or more blocks in their prompts.
struct history_limits {
  duration span = defaults::scheduler::shadow_memory;
  std::uint64_t requests = 2'000;
  std::uint64_t blocks = 1 << 20;  ///< 16 MiB of keys
};

/// @thread  Owned by the conductor; not synchronised.
class request_history {
 public:
  explicit request_history(const history_limits& limits) : limits_(limits) {}

  /// A request asks for a place; asking again changes nothing.
  void came(const schedule_request& request, const prefix_holder& holder, std::size_t answer, time_point now);
  bool knows(request_id id) const { return where_.contains(id); }
  /// Its answer has begun.
  void begun(request_id id, time_point now);
  /// Its answer had so many tokens.
  void answered(request_id id, std::uint32_t tokens, time_point now);

  std::size_t size() const noexcept { return all_.size(); }
  /// By arrival. An answer whose length is not known, as the request was refused or is under way, gets one that
  /// answers of its class have (`answer_lengths`).
  std::vector<past_request> recall(time_point now) const;

 private:
  void forget_first();
  past_request* find(request_id id);
  std::uint32_t tokens_by(const past_request& r, time_point now) const noexcept;

  history_limits limits_;
  std::deque<past_request> all_;
  std::uint64_t first_ = 0;  // number of the first one
  std::size_t blocks_ = 0;
  double tokens_ = 0, seconds_ = 0;                      // of answers, older ones fading
  std::unordered_map<request_id, std::uint64_t> where_;  // by number
};

}  // namespace mooncaf
