#pragma once
// The experts of gpt-oss, which its folders keep together: all of a layer in one tensor, gates and ups by
// turns.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/model/hf_packed.hpp"

namespace mooncaf {

/// Which part of which expert is meant.
struct expert_part {
  std::string module;     ///< such as "model.layers.0.mlp.experts."
  std::string_view part;  ///< ffn_gate, ffn_up or ffn_down
  std::size_t expert = 0;
  bool bias = false;
};

/// The tensor's name where it is not packed, for error texts.
std::string name_of(const expert_part& p);

/// A matrix [features out, features in] in BF16, F16 or F32, or in MXFP4, as the folder has it; or a bias.
/// Owns its bytes. Nothing if there is no such tensor.
/// @error `ec::corrupt` for tensors that do not fit together; `ec::unsupported` for other element types.
result<std::optional<source_tensor>> read_expert(const expert_part& p, const tensor_lookup& find);

}  // namespace mooncaf
