#pragma once
// How the numbers of a key or a value lie, for kernels of every kind of device: `kv_dtype` says it of both.

#include <cstdint>

namespace mooncaf {

enum class kv_form : std::uint32_t { f16, f32, int8, int4 };

}  // namespace mooncaf
