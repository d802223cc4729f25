#pragma once
// A client's request inside the gateway: one or more generations, each with a sink that turns tokens into an
// answer.

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/request/messages.hpp"

namespace mooncaf {

/// The outcome of a generation, for usage figures and the page.
struct generation_report {
  std::uint32_t cached_tokens = 0;
  std::uint32_t output_tokens = 0;
  prefill_stats prefill;
  placement_msg placement;
  duration ttft{};
};

/// Where the tokens of one generation go. Called by the gateway alone, in order; ends with exactly one of
/// `finished` and `failed`.
class token_sink {
 public:
  virtual ~token_sink() = default;
  /// Before the first token, with `sampling_params::prompt_logprobs`: the prompt, and the log-probabilities
  /// of all its tokens but the first.
  virtual void prompt(std::span<const std::int32_t> tokens, std::span<const sampled_token> scores) = 0;
  /// Before the first token, with `sampling_params::pooling`: [dim].
  virtual void pooled(std::span<const float> /*values*/) {}
  /// One more token. @returns false if no more are wanted: a stop string was found, or the client is gone.
  virtual bool token(const sampled_token& token) = 0;
  /// The answer is complete. `reason` is `stop` if `token` returned false.
  virtual void finished(finish_reason reason, const generation_report& report) = 0;
  /// There will be no answer. @param retry_after  a hint for the client; zero: none.
  virtual void failed(const error& cause, std::chrono::seconds retry_after) = 0;
};

/// One answer to make.
struct generation {
  std::vector<std::int32_t> prompt;
  sampling_params sampling;
  std::string cache_salt;
  block_key adapter{};  ///< identity of `sampling.adapter`; zero: none. Blocks of different ones are apart.
  std::uint8_t priority = 1;
  std::uint64_t tenant = 0;  ///< 0: unknown
  service_share share;
  duration ttft_slo{};  ///< zero: the cluster's default
  duration tbt_slo{};
  std::uint64_t keeper = 0;  ///< the tenant for whom parts of the prompt are kept
  /// Tokens of the prompt that are to be kept for so long; the longest last.
  std::vector<std::pair<std::uint32_t, duration>> keep{};
  std::shared_ptr<token_sink> sink;
};

/// The generations of one HTTP request. Made on an I/O thread, then owned by the gateway.
struct client_request {
  std::string trace_id;     ///< the client's x-request-id, or ours
  std::string traceparent;  ///< the client's, of W3C Trace Context; empty: none
  std::string tenant;       ///< its name; empty: none
  time_point arrived;
  /// Generations with the same prompt run one after the other until the first has its first token, so that
  /// the others find the prompt in the cache.
  std::vector<generation> generations;
};

using client_request_ptr = std::shared_ptr<client_request>;

}  // namespace mooncaf
