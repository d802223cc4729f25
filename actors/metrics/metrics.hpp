#pragma once
// The metrics that Prometheus scrapes from one process: the values of the series that runtime/base/series.hpp
// lists.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/series.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// @thread Safe. Recording is a few atomic operations.
class metrics {
 public:
  /// @param model  label `model_name` of every series.
  explicit metrics(const std::string& model);
  ~metrics();

  // ---- requests, at the gateway ----
  void first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  void token_gap(duration gap);
  /// The conductor answered where a request goes, or that it is refused, so long after it was asked; its wait
  /// for a place is part of it.
  void placed(duration elapsed);
  void tokens_generated(std::uint32_t count);
  /// @param outcome  "finished", "failed", "cancelled" or "rejected".
  /// @param tenant  empty: none.
  void request_over(const std::string& outcome, const std::string& tenant, duration elapsed);
  /// A request has ended that had a first token. @param tenant  empty: none, and not counted here.
  void tokens_of_tenant(const std::string& tenant, std::uint32_t prompt, std::uint32_t cached,
                        std::uint32_t output);
  /// Prompt tokens that were computed for a request that decode refused.
  void prefill_wasted(std::uint32_t tokens);
  /// A worker's device failed. @param role  "prefill" or "decode".
  void device_failed(const std::string& role);

  /// A figure that was counted elsewhere: a gauge has this value; a counter grows by what the total grew
  /// since the last call, and not at all if it fell (a peer left, and its share with it).
  /// @param labels  values of the series' labels, in their order.
  void set(series of, double value, const std::vector<std::string>& labels = {});

  /// Everything in Prometheus's text format.
  std::string text() const;

 private:
  struct registered;
  std::unique_ptr<registered> r_;
};

}  // namespace mooncaf
