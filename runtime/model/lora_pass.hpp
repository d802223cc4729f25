#pragma once
// What adapters add to the matrix products of a forward pass, for the rows that want one.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/model/forward_pass.hpp"
#include "runtime/model/lora_adapter.hpp"

namespace mooncaf {

/// Used by one runner. Rows are gathered by adapter, multiplied, and added where they came from: a row's
/// bits depend on itself alone, and rows without an adapter are not touched.
class lora_pass {
 public:
  /// @param rank  of the adapters, at most.
  /// @error `ec::out_of_space`
  static result<std::unique_ptr<lora_pass>> make(device& dev, const model_config& config, std::uint32_t rank);

  /// Which rows of the pass to come want which adapter; `last` are the rows that want logits.
  void plan(std::span<const batch_item> items);

  /// Later calls are about `layer`, with all rows of the pass.
  void begin_layer(std::uint32_t layer) noexcept;
  /// From here on calls are about the rows that want logits.
  void narrow() noexcept { narrow_ = true; }
  /// From here on calls are about the rows from `first` on.
  void begin_tile(std::size_t first) noexcept { first_ = first; }

  /// out += the rows' adapters' share of the product of x with the matrix at `site`.
  void add(compute_queue& queue, lora_site site, tensor x, tensor out);

 private:
  struct group {
    const lora_adapter* adapter = nullptr;
    std::vector<std::uint32_t> rows, last_rows;  ///< ascending
  };
  lora_pass() = default;
  void add_rows(compute_queue& queue, const lora_adapter& adapter, lora_site site, tensor x, tensor out,
                std::span<const std::uint32_t> rows);

  std::unique_ptr<buffer> memory_;
  std::size_t widest_ = 0, rank_ = 0;
  std::vector<group> groups_;  ///< the first `used_` belong to the pass under way
  std::size_t used_ = 0;
  std::uint32_t layer_ = 0;
  bool narrow_ = false;
  std::size_t first_ = 0;
  std::vector<std::uint32_t> picked_;
  std::vector<float> scales_;
};

}  // namespace mooncaf
