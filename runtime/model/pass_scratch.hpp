#pragma once
// Activations of a forward pass on the device, and copies of some of them in the host's memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/expert_choice.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

/// The feed-forward part works on this many tokens at a time: its activations are several times wider than
/// the rest, and a tile of them stays in the cache between its three products. Rows are independent, so
/// nothing else changes.
constexpr std::size_t ffn_tile_tokens = 512;

/// Rows whose logits are shown one after the other are computed so many at a time, at all ranks of a group alike.
constexpr std::size_t rows_shown_at_once = 16;

/// Owns one piece of device memory, sized once and divided into the tensors below. Each function gives the
/// first `rows` rows of its tensor; the columns of some differ from use to use. One thread at a time.
class pass_scratch {
 public:
  struct limits {
    std::size_t tokens = 1;      ///< of one pass
    std::size_t logit_rows = 1;  ///< items of one pass that want logits
    bool logits = true;          ///< they are computed here, not in the host's memory
    std::uint32_t ranks = 1;     ///< of a tensor group: rows have the heads of all
    bool whole_experts = false;  ///< its ranks have some experts each
  };
  /// @error `ec::out_of_space`.
  static result<std::unique_ptr<pass_scratch>> make(device& dev, const model_config& c, const limits& most);

  /// [rows, dim]: the residual stream.
  tensor x(std::size_t rows) const noexcept { return view(x_, rows, dim_); }
  /// Normalised input, [rows, dim], and attention's output, [rows, q_dim].
  tensor h(std::size_t rows, std::size_t cols) const noexcept { return view(h_, rows, cols); }
  /// Queries, [rows, q_dim], and then the sum to add to the residual stream, [rows, dim].
  tensor q(std::size_t rows, std::size_t cols) const noexcept { return view(q_, rows, cols); }
  /// [rows, kv_dim]; values only without latent attention.
  tensor k(std::size_t rows) const noexcept { return view(k_, rows, kv_dim_); }
  tensor v(std::size_t rows) const noexcept { return view(v_, rows, kv_dim_); }
  /// With latent attention: all heads' queries, [rows, n_heads · query_dim], or values, [rows, n_heads ·
  /// value_dim].
  tensor heads(std::size_t rows, std::size_t cols) const noexcept { return view(heads_, rows, cols); }
  /// Of a tile of the feed-forward part, [rows, its width].
  tensor gate(std::size_t rows, std::size_t cols) const noexcept { return view(gate_, rows, cols); }
  tensor up(std::size_t rows, std::size_t cols) const noexcept { return view(up_, rows, cols); }
  /// [rows, dim]: the rows of a tile that one expert takes.
  tensor picked(std::size_t rows) const noexcept { return view(picked_, rows, dim_); }
  /// [rows, dim]: what a tile's experts have made of the rows that each takes, one expert behind the other.
  tensor mixed(std::size_t rows) const noexcept { return view(mixed_, rows, dim_); }
  /// [rows, n_experts]: the router's scores of a tile.
  tensor scores(std::size_t rows) const noexcept { return view(scores_, rows, n_experts_); }
  /// [rows, 1]: scores of a tile's shared part, where a family has them.
  tensor shares(std::size_t rows) const noexcept { return view(shares_, rows, 1); }
  /// [rows, dim]: the residual stream of the rows that want logits.
  tensor last(std::size_t rows) const noexcept { return view(last_, rows, dim_); }
  /// [rows, vocab_size]; only with `limits::logits`.
  tensor logits(std::size_t rows) const noexcept { return view(logits_, rows, vocab_size_); }

  // In the host's memory: numbers that are downloaded, uploaded or decided in the middle of a pass.
  expert_choice experts;                  ///< where a tile's rows go
  std::vector<float> seen_scores;         ///< [ffn tile, n_experts], in a mixture
  std::vector<float> seen_shares;         ///< of the tile under way, with a weighted shared part
  std::vector<std::uint32_t> tile_rows;   ///< 0, 1, … ffn tile, likewise
  std::vector<std::uint32_t> every_head;  ///< 0, 1, … tokens · n_heads, with latent attention
  /// Rows under way between ranks of devices that the host does not reach; pinned, if the device can.
  std::shared_ptr<std::vector<float>> swapped;

 private:
  pass_scratch() = default;
  tensor view(std::size_t offset, std::size_t rows, std::size_t cols) const noexcept {
    return {memory_->data() + offset, rows, cols, cols};
  }

  std::unique_ptr<buffer> memory_;
  std::size_t dim_ = 0, kv_dim_ = 0, n_experts_ = 0, vocab_size_ = 0;
  // Offsets into `memory_`, in floats.
  std::size_t x_ = 0, h_ = 0, q_ = 0, k_ = 0, v_ = 0, heads_ = 0, gate_ = 0, up_ = 0;
  std::size_t picked_ = 0, mixed_ = 0, scores_ = 0, shares_ = 0, last_ = 0, logits_ = 0;
};

}  // namespace mooncaf
