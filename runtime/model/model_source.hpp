#pragma once
// Where the tensors of a model come from: one interface over the file formats.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpu/ggml_type.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

/// A tensor as its file stores it: rows contiguous, quantised along their columns.
struct source_tensor {
  ggml_type type = ggml_type::f32;
  std::size_t rows = 1;  ///< of all outer dimensions together; 1 for a vector
  std::size_t cols = 0;
  std::span<const std::byte> data;
  /// Added to each element of a gain: some families store a gain's difference from one.
  float added = 0;
  std::shared_ptr<const void>
      owner{};  ///< of `data`, where the source does not keep it; the reader does then
};

/// The tensors of one model, by the names that GGUF has for them ("blk.0.attn_q.weight"). Immutable.
class model_source {
 public:
  virtual ~model_source() = default;
  /// For error texts.
  virtual const std::string& name() const noexcept = 0;
  /// The shape that goes with the tensors, read and cross-checked.
  virtual result<model_config> config() const = 0;
  /// The same tensor as the file names it, for error texts.
  virtual std::string name_of(std::string_view name) const = 0;
  /// Whether `find` reads bytes of tensors, to make others of them.
  virtual bool unpacks() const noexcept { return false; }
  /// Nothing if there is no such tensor.
  /// @error `ec::unsupported` if it is stored in a way that is not read, naming it.
  virtual result<std::optional<source_tensor>> find(std::string_view name) const = 0;
};

}  // namespace mooncaf
