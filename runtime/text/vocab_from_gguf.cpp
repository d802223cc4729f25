#include "runtime/text/vocab_from_gguf.hpp"

#include <limits>
#include <utility>

#include "runtime/model/gguf.hpp"

namespace mooncaf {

namespace {

/// Reads one file, keeping the first error; later reads then give empty values.
class reader {
 public:
  explicit reader(const gguf_file& file) : file_(file) {}

  std::string text(std::string_view key, std::string_view fallback) {
    return std::string{take(file_.text(key, fallback), fallback)};
  }
  bool boolean(std::string_view key, bool fallback) { return take(file_.boolean(key, fallback), fallback); }
  std::int32_t id(std::string_view key) {
    constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t value = take(file_.unsigned_integer(key, none), none);
    // Some converters write 4294967295 for "none".
    if (value >= std::numeric_limits<std::uint32_t>::max()) return -1;
    return value > std::numeric_limits<std::int32_t>::max() ? std::numeric_limits<std::int32_t>::max()
                                                            : static_cast<std::int32_t>(value);
  }
  std::vector<std::string> strings(std::string_view key) {
    const auto views = take(file_.strings(key), {});
    return {views.begin(), views.end()};
  }
  std::vector<double> floats(std::string_view key) {
    const std::vector<float> values = take(file_.floats(key), {});
    return {values.begin(), values.end()};
  }
  std::vector<token_type> types(std::string_view key) {
    std::vector<token_type> out;
    if (!file_.has(key)) return out;
    const std::vector<std::int64_t> values = take(file_.integers(key), {});
    out.reserve(values.size());
    // 0 is no type; from_vocab names the token that has it.
    for (const std::int64_t v : values) out.push_back(static_cast<token_type>(v < 0 || v > 255 ? 0 : v));
    return out;
  }

  const result<void>& status() const noexcept { return status_; }

 private:
  template <class T>
  T take(result<T> value, std::type_identity_t<T> fallback) {
    if (value) return std::move(*value);
    // A file without a field that a tokenizer needs is a broken one, however the field came to be missing.
    if (status_) status_ = fail(ec::corrupt, value.error().detail);
    return fallback;
  }

  const gguf_file& file_;
  result<void> status_;
};

}  // namespace

result<tokenizer_vocab> vocab_from_gguf(const gguf_file& file) {
  reader from(file);
  tokenizer_vocab vocab;
  const auto model = file.text("tokenizer.ggml.model");
  if (!model) return fail(ec::corrupt, model.error().detail);
  if (*model != "gpt2" && *model != "llama")
    return fail(ec::unsupported,
                file.name() + ": tokenizer.ggml.model is \"" + std::string{*model} +
                    "\"; mooncaf reads \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece)");
  const bool spiece = *model == "llama";
  vocab.kind = spiece ? vocab_kind::sentencepiece : vocab_kind::byte_bpe;
  vocab.pre = from.text("tokenizer.ggml.pre", "default");
  vocab.tokens = from.strings("tokenizer.ggml.tokens");
  vocab.types = from.types("tokenizer.ggml.token_type");
  if (spiece) vocab.scores = from.floats("tokenizer.ggml.scores");
  else vocab.merges = from.strings("tokenizer.ggml.merges");
  vocab.bos = from.id("tokenizer.ggml.bos_token_id");
  vocab.eos = from.id("tokenizer.ggml.eos_token_id");
  vocab.eot = from.id("tokenizer.ggml.eot_token_id");
  vocab.unknown = from.id("tokenizer.ggml.unknown_token_id");
  // Where a file is silent, the family's habit counts: Llama's prompts begin with bos, GPT-2's and Qwen's do
  // not.
  const bool llama3 = vocab.pre == "llama-bpe" || vocab.pre == "llama3" || vocab.pre == "llama-v3";
  vocab.add_bos = from.boolean("tokenizer.ggml.add_bos_token", spiece || llama3);
  vocab.add_eos = from.boolean("tokenizer.ggml.add_eos_token", false);
  vocab.add_space_prefix = spiece && from.boolean("tokenizer.ggml.add_space_prefix", true);
  vocab.chat_template = from.text("tokenizer.chat_template", "");
  if (!from.status()) return fail(from.status().error());
  return vocab;
}

}  // namespace mooncaf
