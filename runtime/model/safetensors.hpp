#pragma once
// safetensors, Hugging Face's file format for weights: a JSON directory, then the tensors' bytes.
//
// As the GGUF reader, the parser trusts nothing and copies no tensor: every offset, shape and product is
// checked against the bytes that are there.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// One tensor of the directory. Row-major, the last dimension varies fastest.
struct safetensors_tensor {
  std::string name;
  std::string dtype;                 ///< as the file writes it: "F32", "BF16", "I32", "F8_E4M3", …
  std::vector<std::uint64_t> shape;  ///< may be empty: one element
  std::span<const std::byte> data;
};

/// A parsed file. Views point into the bytes given to `parse_safetensors`. Immutable.
class safetensors_file {
 public:
  const std::string& name() const noexcept { return name_; }
  std::span<const safetensors_tensor> tensors() const noexcept { return tensors_; }  ///< by place in the file
  const safetensors_tensor* tensor(std::string_view name) const noexcept;            ///< null if absent

 private:
  friend result<safetensors_file> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);
  std::string name_;
  std::vector<safetensors_tensor> tensors_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// @param bytes  the whole file; must outlive the result and everything that keeps views of it.
/// @param name   path or label for error texts.
/// @error `ec::corrupt` naming file, tensor or offset, and what is wrong there; `ec::unsupported` for element
/// types whose size is not known.
/// @cost O(directory); tensor bytes are not touched.
/// @source The format's own description in the safetensors project.
result<safetensors_file> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

}  // namespace mooncaf
