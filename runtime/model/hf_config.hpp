#pragma once
// The shape of a model out of Hugging Face's `config.json`.

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

/// Reads and cross-checks the shape. Models that see, too, are taken for their language part
/// (`text_config`).
/// @param name  of the file, for error texts.
/// @error `ec::unsupported` for families and variants that are not offered, naming those that are;
///        `ec::corrupt` for missing or contradictory fields, naming file, field and value.
result<model_config> config_from_hf(const nlohmann::json& file, const std::string& name);

}  // namespace mooncaf
