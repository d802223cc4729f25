#pragma once
// Matrices that a Hugging Face folder packs: GPTQ and AWQ in 4 bits, FP8 in blocks. They are unpacked to what
// devices take.

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/model_source.hpp"
#include "runtime/model/safetensors.hpp"

namespace mooncaf {

/// How the matrices of a folder are packed.
struct hf_packing {
  enum class form : std::uint8_t { none, gptq, awq, fp8, mxfp4 };
  form kind = form::none;
  std::uint32_t group = 0;         ///< columns under one scale, of GPTQ and AWQ; 0: all of them
  std::uint32_t zero_offset = 0;   ///< GPTQ's older files store zero points less one
  std::uint32_t block_rows = 128;  ///< rows and columns under one scale, of FP8
  std::uint32_t block_cols = 128;
};

/// Reads `quantization_config`, as far as it is there.
/// @error `ec::unsupported` for other ways of packing, naming those that are read.
result<hf_packing> packing_from_hf(const nlohmann::json& config, const std::string& name);

/// A matrix in a form that devices take, and its bytes.
struct unpacked_matrix {
  source_tensor tensor;  ///< `data` are the bytes
  std::vector<std::byte> bytes;
};

/// An element type that stands for itself, by the name that safetensors has for it.
std::optional<ggml_type> plain_type(std::string_view dtype) noexcept;

/// Gives a tensor of the folder by its own name, or null.
using tensor_lookup = std::function<const safetensors_tensor*(const std::string& name)>;

/// The matrix whose parts are named `module` + ".qweight" and so on; nothing if it is not packed. 4-bit ones
/// become Q4_0 where all zero points are 8, which is exact, else Q4_1, whose minimum is rounded to f16; FP8
/// becomes BF16. MXFP4 is for the experts of gpt-oss alone (hf_gpt_oss.hpp).
/// @error `ec::corrupt` for parts that are missing or do not fit together; `ec::unsupported` for columns out
/// of order (`desc_act`) and groups that are no multiple of 32.
result<std::optional<unpacked_matrix>> unpack_matrix(const hf_packing& packing, const std::string& module,
                                                     const tensor_lookup& find);

}  // namespace mooncaf
