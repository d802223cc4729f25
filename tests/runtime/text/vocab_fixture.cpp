#include "tests/runtime/text/vocab_fixture.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/model/gguf.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/vocab_from_gguf.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::testing {

tokenizer_vocab tiny_vocab(const std::string& name) {
  std::ifstream in(std::string{MOONCAF_TEXT_GOLDEN} + "/" + name + ".json");
  REQUIRE_MESSAGE(in.good(), name);
  const auto json = nlohmann::json::parse(in);
  tokenizer_vocab vocab;
  vocab.kind = json["model"] == "llama" ? vocab_kind::sentencepiece : vocab_kind::byte_bpe;
  vocab.pre = json.value("pre", "");
  vocab.tokens = json["tokens"];
  for (const int type : json["types"]) vocab.types.push_back(static_cast<token_type>(type));
  vocab.merges = json.value("merges", std::vector<std::string>{});
  const auto scores = json.value("scores", std::vector<float>{});
  vocab.scores.assign(scores.begin(), scores.end());
  vocab.bos = json.value("bos", -1);
  vocab.eos = json.value("eos", -1);
  vocab.unknown = json.value("unknown", -1);
  vocab.add_space_prefix = json.value("add_space_prefix", false);
  return vocab;
}

tokenizer_vocab smollm2_vocab() {
  const char* path = std::getenv("MOONCAF_MODEL");
  REQUIRE_MESSAGE(path != nullptr,
                  "MOONCAF_MODEL is unset: run examples/fetch_model.sh and set it to the file it prints");
  const auto file = mapped_file::open(path);
  REQUIRE_MESSAGE(file.has_value(), (file ? "" : to_string(file.error())));
  const auto parsed = parse_gguf(file->bytes(), path);
  REQUIRE_MESSAGE(parsed.has_value(), (parsed ? "" : to_string(parsed.error())));
  auto vocab = vocab_from_gguf(*parsed);
  REQUIRE_MESSAGE(vocab.has_value(), (vocab ? "" : to_string(vocab.error())));
  return std::move(*vocab);
}

std::shared_ptr<const tokenizer> built(tokenizer_vocab vocab) {
  auto made = tokenizer::from_vocab(std::move(vocab));
  REQUIRE_MESSAGE(made.has_value(), (made ? "" : to_string(made.error())));
  return *made;
}

tokenizer_vocab byte_vocab() {
  tokenizer_vocab vocab;
  for (unsigned byte = 0; byte < 256; ++byte)
    vocab.tokens.push_back(byte_alphabet::text(static_cast<std::uint8_t>(byte)));
  vocab.tokens.insert(vocab.tokens.end(), {"ab", "abc", "<|end|>"});
  vocab.types.assign(vocab.tokens.size(), token_type::normal);
  vocab.types.back() = token_type::control;
  vocab.merges = {"a b", "ab c"};
  vocab.eos = 258;
  return vocab;
}

}  // namespace mooncaf::testing
