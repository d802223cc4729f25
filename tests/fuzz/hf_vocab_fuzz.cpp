// Any bytes are a tokenizer.json to somebody: an error, or a tokenizer whose ids lie in its vocabulary.

#include <cstdlib>

#include "runtime/text/tokenizer.hpp"
#include "runtime/text/vocab_from_hf.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto vocab = vocab_from_hf(
      {.tokenizer = text, .tokenizer_config = R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})"},
      "fuzz");
  if (!vocab) return 0;
  const auto made = tokenizer::from_vocab(std::move(*vocab));
  if (!made) return 0;
  for (const auto how : {special_tokens::as_text, special_tokens::parse})
    for (const auto id : (*made)->encode_prompt("<s> a b\n\n cé e\u0301\r\n <|end|>  \xe2\x96\x81", how))
      if (id < 0 || id >= (*made)->vocab_size()) std::abort();
  return 0;
}
