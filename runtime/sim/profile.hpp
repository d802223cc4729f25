#pragma once
// A node's abilities with a model: the numbers that a simulation runs on.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/block_parts.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf::sim {

/// A prefill step of chunks (n new tokens behind p others, of which c are read from the cache):
///   constant + Σ per_token·n + per_pair·(n·p + n²/2) + per_cached_token·c
/// A decode step: constant + per_sequence·batch + per_context_token·context.
/// @source  F25, section 4.1, has the prefill form; the cached term is the gathering of cached KV.
struct step_costs {
  double prefill_constant_s = 1e-3;
  double prefill_token_s = 1e-4;
  double prefill_pair_s = 0;
  double prefill_cached_token_s = 0;
  double decode_constant_s = 1e-3;
  double decode_sequence_s = 1e-3;
  double decode_context_token_s = 0;
  /// Prefill instance i and decode instance i on one machine slow each other: how much longer a step of one
  /// takes while the other computes, too. 1: each has a machine of its own.
  double prefill_beside_decode = 1;
  double decode_beside_prefill = 1;

  friend bool operator==(const step_costs&, const step_costs&) = default;
};

/// A node (one instance runs on it) with the model that it serves.
struct profile {
  std::string name;
  std::string model;  ///< that it serves, as the catalogue calls it; empty: not known
  std::uint32_t layers = 80;
  std::uint64_t kv_bytes_per_token = 327'680;
  std::uint32_t block_tokens = 512;
  step_costs costs;
  std::uint32_t chunk_tokens = 8192;           ///< of a prefill step
  std::uint32_t max_batch = 128;               ///< of a decode step
  std::uint64_t device_kv_tokens = 1'000'000;  ///< that a device's own memory holds, and a batch may have
  /// Each way between a device's memory (L1) and its node's (L2). 0: KV is computed where it lies, nothing
  /// moves.
  double device_link_bytes_per_s = 0;
  double nic_bytes_per_s = 100e9;         ///< each direction
  double network_latency_s = 5e-6;        ///< of a transfer
  double ssd_bytes_per_s = 6e9;           ///< read
  std::uint64_t dram_tokens = 3'000'000;  ///< of KV in a node's memory
  std::uint64_t ssd_tokens = 0;           ///< … on its disk

  std::uint64_t block_bytes() const noexcept { return kv_bytes_per_token * block_tokens; }
  /// Runs of layers in which a disk gives a block back, as a server keeps them.
  std::uint32_t disk_parts() const noexcept {
    const auto all = std::max(layers, 1u);
    const auto part = layers_per_part(block_bytes() / all, all);
    return (all + part - 1) / part;
  }
  friend bool operator==(const profile&, const profile&) = default;
};

/// Whether both serve the same model: by its name where both have it, else by its KV's shape. The bits of
/// weights and KV may differ.
bool serve_one_model(const profile& a, const profile& b);

/// Names of the profiles that come with the program.
std::vector<std::string> builtin_profiles();
/// @param name  of a built-in one. @error `ec::not_found` with the names that there are.
result<profile> builtin_profile(std::string_view name, std::vector<std::string>* assumed = nullptr);
/// @param text  TOML. Unknown keys, wrong types and values out of range are refused.
/// @param assumed  gets the defaults of numbers that the text leaves out, "SECTION.KEY = VALUE" each.
/// @error `ec::invalid_argument`, "FILE:LINE: …".
result<profile> parse_profile(std::string_view text, std::string_view file,
                              std::vector<std::string>* assumed = nullptr);
/// A built-in profile by its name, or a file with a name that ends in `.toml`.
/// @error As the two above; `ec::io_error` if the file cannot be read.
result<profile> load_profile(const std::string& name, std::vector<std::string>* assumed = nullptr);
/// Calls visit("SECTION_KEY", number) for everything that a profile's file holds, in its units.
void visit_numbers(const profile& p, const std::function<void(const std::string&, double)>& visit);
/// TOML that `parse_profile` reads back to the same profile.
std::string to_toml(const profile& p);

/// The costs as measurements, as instances report them when they register.
/// @param stages  nodes that share the layers (a pipeline group).
std::vector<timing_point> prefill_samples(const profile& p, std::uint32_t stages = 1);
std::vector<timing_point> decode_samples(const profile& p);

/// The costs that explain measurements best: passes of (new tokens, cached tokens), steps of (batch,
/// context). Reading cached KV is not told apart from attending to it.
step_costs fit_costs(std::span<const timing_point> passes, std::span<const timing_point> steps);

/// How far costs are from the measurements that they were fitted to.
struct fit_error {
  double prefill_mean = 0, prefill_most = 0;  ///< |fitted / measured - 1|
  double decode_mean = 0, decode_most = 0;
};
fit_error error_of(const step_costs& costs, std::span<const timing_point> passes,
                   std::span<const timing_point> steps);

}  // namespace mooncaf::sim
