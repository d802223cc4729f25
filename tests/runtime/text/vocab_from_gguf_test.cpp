#include "runtime/text/vocab_from_gguf.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "runtime/model/gguf.hpp"
#include "runtime/text/tokenizer.hpp"

using namespace mooncaf;

namespace {

/// Writes a GGUF file with metadata and no tensors.
class gguf_writer {
 public:
  gguf_writer& text(std::string_view key, std::string_view value) {
    start(key, 8);
    string(value);
    return *this;
  }
  gguf_writer& number(std::string_view key, std::uint32_t value) {
    start(key, 4);
    raw(value);
    return *this;
  }
  gguf_writer& boolean(std::string_view key, bool value) {
    start(key, 7);
    raw(static_cast<std::uint8_t>(value));
    return *this;
  }
  gguf_writer& strings(std::string_view key, const std::vector<std::string>& values) {
    start(key, 9);
    raw(std::uint32_t{8});
    raw(std::uint64_t{values.size()});
    for (const auto& v : values) string(v);
    return *this;
  }
  template <class T>
  gguf_writer& array(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    start(key, 9);
    raw(type);
    raw(std::uint64_t{values.size()});
    for (const T v : values) raw(v);
    return *this;
  }
  result<tokenizer_vocab> read() {
    std::string file = "GGUF";
    std::swap(file, body_);
    raw(std::uint32_t{3}), raw(std::uint64_t{0}), raw(count_);
    body_ += file;
    body_.resize((body_.size() + 63) / 32 * 32);
    const auto parsed = parse_gguf(std::as_bytes(std::span{body_}), "made.gguf");
    REQUIRE_MESSAGE(parsed.has_value(), (parsed ? "" : to_string(parsed.error())));
    return vocab_from_gguf(*parsed);
  }

 private:
  template <class T>
  void raw(T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    body_.append(bytes, sizeof value);
  }
  void string(std::string_view value) {
    raw(std::uint64_t{value.size()});
    body_ += value;
  }
  void start(std::string_view key, std::uint32_t type) {
    string(key);
    raw(type);
    ++count_;
  }

  std::string body_;
  std::uint64_t count_ = 0;
};

gguf_writer byte_level() {
  gguf_writer file;
  file.text("tokenizer.ggml.model", "gpt2").strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|end|>"});
  file.strings("tokenizer.ggml.merges", {"a b"})
      .array<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3});
  return file;
}

}  // namespace

TEST_CASE("a byte-level vocabulary is read with its ids, flags and template") {
  auto file = byte_level();
  file.text("tokenizer.ggml.pre", "qwen2")
      .number("tokenizer.ggml.eos_token_id", 3)
      .boolean("tokenizer.ggml.add_bos_token", true);
  file.number("tokenizer.ggml.bos_token_id", 0xFFFFFFFF).text("tokenizer.chat_template", "{{ x }}");
  const auto vocab = file.read();
  REQUIRE(vocab.has_value());
  CHECK(vocab->kind == vocab_kind::byte_bpe);
  CHECK(vocab->pre == "qwen2");
  CHECK(vocab->tokens == std::vector<std::string>{"a", "b", "ab", "<|end|>"});
  CHECK(vocab->types[3] == token_type::control);
  CHECK(vocab->merges == std::vector<std::string>{"a b"});
  CHECK(vocab->eos == 3);
  CHECK(vocab->bos == -1);  // all ones mean none
  CHECK(vocab->add_bos);
  CHECK(vocab->chat_template == "{{ x }}");
}

TEST_CASE("where the file is silent the family's habits hold") {
  CHECK(!byte_level().read()->add_bos);
  CHECK(byte_level().text("tokenizer.ggml.pre", "llama-bpe").read()->add_bos);
  gguf_writer spiece;
  spiece.text("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a"});
  spiece.array<float>("tokenizer.ggml.scores", 6, {-1.5f});
  const auto vocab = spiece.read();
  REQUIRE(vocab.has_value());
  CHECK(vocab->kind == vocab_kind::sentencepiece);
  CHECK(vocab->scores == std::vector<double>{-1.5f});
  CHECK(vocab->add_bos);
  CHECK(vocab->add_space_prefix);
}

TEST_CASE("what is missing, mistyped or of an unknown kind is named") {
  const auto check = [](result<tokenizer_vocab> vocab, ec code, std::string_view part) {
    REQUIRE(!vocab);
    CHECK(vocab.error() == code);
    INFO(vocab.error().detail);
    CHECK(vocab.error().detail.find(part) != std::string::npos);
    CHECK(vocab.error().detail.find("made.gguf") != std::string::npos);
  };
  check(gguf_writer{}.read(), ec::corrupt, "tokenizer.ggml.model");
  check(gguf_writer{}.text("tokenizer.ggml.model", "gpt2").read(), ec::corrupt, "tokenizer.ggml.tokens");
  check(gguf_writer{}.text("tokenizer.ggml.model", "t5").read(), ec::unsupported, "\"t5\"");
  check(byte_level().text("tokenizer.ggml.eos_token_id", "3").read(), ec::corrupt,
        "tokenizer.ggml.eos_token_id");
}

TEST_CASE("a type that no token can have is refused by the tokenizer with the token's id") {
  gguf_writer file;
  file.text("tokenizer.ggml.model", "gpt2")
      .strings("tokenizer.ggml.tokens", {"a"})
      .strings("tokenizer.ggml.merges", {});
  const auto vocab = file.array<std::int32_t>("tokenizer.ggml.token_type", 5, {-7}).read();
  REQUIRE(vocab.has_value());
  const auto made = tokenizer::from_vocab(*vocab);
  REQUIRE(!made);
  CHECK(made.error().detail.find("token 0 has type") != std::string::npos);
}
