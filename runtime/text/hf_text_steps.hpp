#pragma once
// The normalizer and pre-tokenizer of a tokenizer.json with a Unigram model.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/text/text_steps.hpp"

namespace mooncaf {

struct hf_steps {
  std::vector<text_step> steps;
  word_rule words;
  bool prefixes = false;  ///< Texts get a space before them, which decoding takes off.
};

/// @param root   the file.
/// @param label  its name, for error texts.
/// @error `ec::unsupported` names a part that is not offered; `ec::corrupt` one that is broken.
result<hf_steps> hf_text_steps(const nlohmann::json& root, const std::string& label);

}  // namespace mooncaf
