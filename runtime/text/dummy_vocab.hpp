#pragma once
// A vocabulary for models that were never trained.

#include <cstdint>

#include "runtime/base/result.hpp"
#include "runtime/text/tokenizer_vocab.hpp"

namespace mooncaf {

/// Least size: every byte, ChatML's three markers.
constexpr std::uint32_t smallest_dummy_vocab = 259;

/// One token per byte of text, ChatML's markers, and words (" w300", …) up to `size` that only a model says,
/// never a user. So prompts of n ASCII characters have n tokens, and every answer is printable text.
/// @error `ec::invalid_argument` below `smallest_dummy_vocab`.
result<tokenizer_vocab> dummy_vocab(std::uint32_t size);

}  // namespace mooncaf
