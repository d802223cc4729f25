#pragma once
// The tokenizer's parts out of a GGUF file's metadata.

#include "runtime/base/result.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

class gguf_file;

/// Reads the `tokenizer.*` keys. Strings are copied, so the file may go away afterwards.
/// @error `ec::corrupt` names a missing key or one of the wrong type; `ec::unsupported` a
/// `tokenizer.ggml.model` other than "gpt2" and "llama".
result<tokenizer_vocab> vocab_from_gguf(const gguf_file& file);

}  // namespace mooncaf
