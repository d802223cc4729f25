#include "runtime/text/dummy_vocab.hpp"

#include <string>

#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/chat_template.hpp"

namespace mooncaf {

result<tokenizer_vocab> dummy_vocab(std::uint32_t size) {
  if (size < smallest_dummy_vocab) {
    return fail(ec::invalid_argument, "a dummy model's vocabulary of " + std::to_string(size) +
                                          " tokens cannot write text; give it vocab=" +
                                          std::to_string(smallest_dummy_vocab) + " or more");
  }
  tokenizer_vocab v;
  v.tokens.reserve(size);
  for (int byte = 0; byte < 256; ++byte)
    v.tokens.push_back(byte_alphabet::text(static_cast<std::uint8_t>(byte)));
  v.types.assign(size, token_type::normal);
  for (const auto* marker : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    v.types[v.tokens.size()] = token_type::control;
    v.tokens.emplace_back(marker);
  }
  v.bos = v.eos = 256;
  v.eot = 258;
  while (v.tokens.size() < size) {
    v.tokens.push_back(byte_alphabet::text(' ') + "w" + std::to_string(v.tokens.size()));
  }
  v.chat_template = builtin_chat_template("chatml", false);
  return v;
}

}  // namespace mooncaf
