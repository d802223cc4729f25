#pragma once
// The tokenizer's parts out of a Hugging Face folder.

#include <string>
#include <string_view>

#include "runtime/base/result.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Contents of the folder's files; empty: there is none.
struct hf_text_files {
  std::string_view tokenizer;          ///< tokenizer.json
  std::string_view tokenizer_config;   ///< tokenizer_config.json
  std::string_view generation_config;  ///< generation_config.json
  std::string_view config;             ///< config.json
  std::string_view chat_template;      ///< chat_template.jinja
};

/// Reads vocabulary, merges, markers, how text is cut, the tokens that end an answer, and the chat template.
/// Strings are copied.
/// @param folder  for error texts.
/// @error `ec::corrupt` names file and field; `ec::unsupported` names the part of a tokenizer that is not
/// offered (an expression for cutting words, a normalizer, WordPiece, …).
result<tokenizer_vocab> vocab_from_hf(const hf_text_files& files, const std::string& folder);

}  // namespace mooncaf
