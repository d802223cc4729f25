#pragma once
// Parts of a file's tensor: some of its rows, as they are or turned into columns.

#include <cstddef>

#include "runtime/model/model_source.hpp"

namespace mooncaf {

/// Rows [first, first + count) of a tensor that has all its bytes; a view of them.
source_tensor rows_of(const source_tensor& t, std::size_t first, std::size_t count) noexcept;

/// A matrix that owns its bytes, which are `bytes`, and to be filled in.
source_tensor made_tensor(ggml_type type, std::size_t rows, std::size_t cols, std::byte*& bytes);

/// All rows with elements of F32; the tensor itself if it has those.
source_tensor as_f32(const source_tensor& t);

/// The same rows as columns: [t.cols, count]. Plain elements stay what they are, quantised ones become F32.
source_tensor turned_rows(const source_tensor& t, std::size_t first, std::size_t count);

}  // namespace mooncaf
