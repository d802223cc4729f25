#pragma once
// Parts of a file's tensor: some of its rows, as they are or turned into columns.

#include <cstddef>
#include <memory>

#include "runtime/model/model_source.hpp"

namespace mooncaf {

/// Rows [first, first + count) of a tensor that has all its bytes; a view of them.
source_tensor rows_of(const source_tensor& t, std::size_t first, std::size_t count) noexcept;

/// A matrix and the bytes that it is a view of.
struct owned_tensor {
  source_tensor tensor;
  std::unique_ptr<std::byte[]> bytes;
};

/// The same rows as columns: [t.cols, count]. Plain elements stay what they are, quantised ones become F32.
owned_tensor turned_rows(const source_tensor& t, std::size_t first, std::size_t count);

}  // namespace mooncaf
