#pragma once
// Devices and models that profiles can be computed for, with the source of each number.

#include <cstdint>
#include <span>
#include <string_view>

namespace mooncaf::sim {

/// A format of weights, and of products where a device can.
enum class number_format : std::uint8_t { bf16, fp8, fp4, int4 };

/// One device. Peaks are the vendor's, without sparsity; shares tell how much of them measured kernels reach.
struct accelerator {
  std::string_view name;
  double flops_16, flops_8, flops_4;  ///< dense, a second; 0: cannot
  double memory_bytes_per_s;
  double memory_bytes;
  double matmul_16, matmul_8, matmul_4;  ///< share of the peak in matrix products of thousands of rows
  double memory_share;                   ///< … of the bandwidth, reading weights in products of few rows
  double attention_share;                ///< … of `flops_16`, attention of a long prompt
  double kv_share;                       ///< … of the bandwidth, attention of a decode batch
  double kernel_s;                       ///< from one kernel to the next inside a captured graph
  double step_s;                         ///< between two steps: scheduling, sampling
  double link_bytes_per_s;               ///< of an all-reduce's traffic, between devices of a machine
  double link_latency_s;                 ///< of a small all-reduce
  double nic_bytes_per_s;                ///< of a machine's network, for each device of it, each direction
  double host_bytes;                     ///< memory of the machine for KV, for each device of it
};

/// Shape of a model.
struct language_model {
  std::string_view name;
  std::uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
  /// Mixture of experts; 0 experts: none. The first `dense_layers` have `ffn` instead.
  std::uint32_t experts = 0, experts_used = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;
  /// Latent attention; 0: keys and values of `kv_heads`.
  std::uint32_t latent = 0, rope = 0, query_rank = 0, nope_dim = 0, value_dim = 0;
};

std::span<const accelerator> accelerators();
std::span<const language_model> language_models();

}  // namespace mooncaf::sim
