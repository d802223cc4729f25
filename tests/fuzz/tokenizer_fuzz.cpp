// Any bytes are a prompt, and any bytes a vocabulary: encoding gives ids of the vocabulary that decode to the
// same text, all at once or token by token; a vocabulary is refused or works.

#include <cstdio>
#include <cstdlib>

#include "runtime/base/utf8.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/incremental_decoder.hpp"
#include "runtime/text/pretokenizer.hpp"
#include "runtime/text/tokenizer.hpp"

using namespace mooncaf;

namespace {

tokenizer_vocab byte_level(std::string pre) {
  tokenizer_vocab vocab;
  vocab.pre = std::move(pre);
  for (unsigned byte = 0; byte < 256; ++byte)
    vocab.tokens.push_back(byte_alphabet::text(static_cast<std::uint8_t>(byte)));
  vocab.tokens.insert(vocab.tokens.end(),
                      {"ab", "abc", "aa", "aaaa", "\u0120\u0120", "\u0120a", "<|im_end|>", "<think>"});
  vocab.merges = {"a b", "ab c", "a a", "aa aa", "\u0120 \u0120", "\u0120 a"};
  vocab.types.assign(vocab.tokens.size(), token_type::normal);
  vocab.types[vocab.types.size() - 2] = token_type::control;
  vocab.types.back() = token_type::user_defined;
  return vocab;
}

tokenizer_vocab sentencepiece() {
  tokenizer_vocab vocab;
  vocab.kind = vocab_kind::sentencepiece;
  vocab.add_space_prefix = true;
  vocab.tokens = {"<unk>", "<s>", "</s>"};
  vocab.types = {token_type::unknown, token_type::control, token_type::control};
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab.tokens.emplace_back(name);
    vocab.types.push_back(token_type::byte);
  }
  for (const char* piece : {"a", "b", "aa", "ab", "aab", "\u2581", "\u2581a", "\u2581\u2581", "s>"}) {
    vocab.tokens.emplace_back(piece);
    vocab.types.push_back(token_type::normal);
  }
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i) vocab.scores.push_back(-static_cast<float>(i));
  return vocab;
}

std::shared_ptr<const tokenizer> built(tokenizer_vocab vocab) {
  auto made = tokenizer::from_vocab(std::move(vocab));
  if (!made) std::abort();
  return *made;
}

void check_text(const std::shared_ptr<const tokenizer>& tok, std::string_view text, special_tokens how) {
  const auto ids = tok->encode(text, how);
  incremental_decoder stream(tok, special_text::show, stream_start::begins_text);
  std::string joined;
  for (const auto id : ids) {
    if (id < 0 || id >= tok->vocab_size()) std::abort();
    if (how == special_tokens::as_text && tok->is_special(id)) std::abort();
    joined += stream.push(id);
  }
  joined += stream.finish();
  if (joined != tok->decode(ids, special_text::show) || !utf8::is_well_formed(joined)) std::abort();
}

void check_vocab(std::string_view text) {
  // Lines: tokens, an empty line, merges.
  tokenizer_vocab vocab = byte_level("gpt-2");
  bool merges = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line{text.substr(begin, end - begin)};
    begin = end + 1;
    if (line.empty()) {
      merges = true;
    } else if (merges) {
      vocab.merges.push_back(line);
    } else {
      vocab.tokens.push_back(line);
      vocab.types.push_back(static_cast<token_type>(line[0] & 7));
    }
  }
  const auto made = tokenizer::from_vocab(std::move(vocab));
  if (!made && made.error().detail.empty()) std::abort();
  if (made) check_text(*made, text, special_tokens::parse);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::shared_ptr<const tokenizer> all[] = {
      built(byte_level("gpt-2")), built(byte_level("smollm")), built(byte_level("llama-bpe")),
      built(byte_level("qwen2")), built(sentencepiece())};
  if (size == 0) return 0;
  const std::string_view text{reinterpret_cast<const char*>(data) + 1, size - 1};
  if (data[0] % 8 == 7) {
    check_vocab(text);
    return 0;
  }
  const std::size_t which = data[0] % 8 % std::size(all);
  check_text(all[which], text, data[0] & 64 ? special_tokens::parse : special_tokens::as_text);
  if (which == 3) return 0;  // Qwen's normalises
  std::string expected = utf8::to_well_formed(text);
  if (which == 4)  // SentencePiece writes a space as U+2581
    for (std::size_t at; (at = expected.find("\u2581")) != std::string::npos;) expected.replace(at, 3, " ");
  if (all[which]->decode(all[which]->encode(text), special_text::show) != expected) std::abort();
  return 0;
}
