#pragma once
// Vocabularies for tests: the tiny ones beside the golden file, and the real model's.

#include <memory>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.hpp"

namespace mooncaf::testing {

/// @param name  "tiny_gpt2", "tiny_llama3", "tiny_qwen2" or "tiny_spm". Fails the test if it cannot be read.
tokenizer_vocab tiny_vocab(const std::string& name);

/// SmolLM2's, from the file that MOONCAF_MODEL names. Fails the test, naming the fetch script, if that is
/// unset.
tokenizer_vocab smollm2_vocab();

/// Builds a tokenizer that must build.
std::shared_ptr<const tokenizer> built(tokenizer_vocab vocab);

/// A byte-level vocabulary of all bytes, "ab", "abc" and <|end|>; small enough to break on purpose.
tokenizer_vocab byte_vocab();

}  // namespace mooncaf::testing
