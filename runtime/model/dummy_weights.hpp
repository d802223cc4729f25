#pragma once
// Random matrices in quantised form, for measuring without a model file.

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/ggml_type.hpp"

namespace mooncaf {

/// Fills `out` with a matrix whose entries have mean 0 and a standard deviation near 1/sqrt(cols), so that a
/// product keeps the size of its input. Quantised payloads are random bits; only the scales of each block are
/// chosen.
/// @param out   a whole number of blocks of `type`.
/// @param cols  row length, for the scale alone.
/// The bytes are a pure function of the arguments, on any machine.
void fill_dummy_weight(ggml_type type, std::size_t cols, std::uint64_t seed, std::span<std::byte> out);

}  // namespace mooncaf
