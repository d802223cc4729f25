#pragma once
// How a model's makers want its tokens drawn where a request does not say.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Initial values are the APIs' defaults. Ranges are as in `sampling_params`.
struct generation_defaults {
  float temperature = 1.0f;
  std::int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
};

/// Reads a generation_config.json. `do_sample` plays no part, as servers always sample.
/// @param text   the file; empty: there is none.
/// @param label  its name, for error texts.
/// @error `ec::corrupt` names the field that is no number of its range.
result<generation_defaults> generation_defaults_from_hf(std::string_view text, const std::string& label);

/// For logs: the values that differ from the APIs' defaults, as "temperature 0.7, top_p 0.8", or an empty
/// text.
std::string to_string(const generation_defaults& d);

}  // namespace mooncaf
