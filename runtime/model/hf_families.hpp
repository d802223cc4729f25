#pragma once
// Fields of `config.json` that a single family has.

#include <string_view>

#include "runtime/model/json_file.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

/// Latent attention and the mixtures of DeepSeek, over the sizes that all families share.
/// @param type  deepseek_v2 or deepseek_v3.
/// Errors stay in `read`: `ec::unsupported` for variants that no released model has.
void read_deepseek(json_reader& read, std::string_view type, model_config& c);

/// Sinks, biases and the mixtures of gpt-oss.
void read_gpt_oss(json_reader& read, model_config& c);

}  // namespace mooncaf
