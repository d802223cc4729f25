#include "runtime/text/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "runtime/base/utf8.hpp"
#include "runtime/text/bpe_model.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/pretokenizer.hpp"
#include "runtime/text/sentencepiece_model.hpp"
#include "runtime/text/special_matcher.hpp"
#include "runtime/text/string_index.hpp"
#include "runtime/text/unigram_model.hpp"

namespace mooncaf {

namespace {

/// Tokens that end an answer in some family, whatever a file names as its `eos`.
constexpr std::array<std::string_view, 9> end_markers = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>",      "<|end_of_text|>", "<|eom_id|>",
    "<|end|>",    "<EOT>",         "<|end_of_turn|>", "<end_of_turn>"};
/// Files made by old converters call their markers normal text; a user must not be able to write them all the
/// same.
constexpr std::array<std::string_view, 5> other_markers = {"<|im_start|>", "<|start_header_id|>",
                                                           "<|end_header_id|>", "<|begin_of_text|>", "<s>"};

bool is_end_marker(std::string_view text) {
  return std::find(end_markers.begin(), end_markers.end(), text) != end_markers.end();
}
bool is_marker(std::string_view text) {
  return is_end_marker(text) ||
         std::find(other_markers.begin(), other_markers.end(), text) != other_markers.end();
}

result<void> check_id(std::string_view name, std::int32_t id, std::size_t size) {
  if (id >= -1 && id < static_cast<std::int64_t>(size)) return {};
  return fail(ec::corrupt, "tokenizer " + std::string{name} + " id " + std::to_string(id) +
                               " is outside the vocabulary of " + std::to_string(size) + " tokens");
}

}  // namespace

struct tokenizer::impl {
  explicit impl(tokenizer_vocab from) : vocab(std::move(from)), names(vocab.tokens) {}

  tokenizer_vocab vocab;
  string_index names;
  std::vector<std::string> pieces;
  special_matcher specials;
  std::vector<std::int32_t> eog;
  std::unique_ptr<const bpe_model> bpe;  ///< one of the three models is set
  std::unique_ptr<const sentencepiece_model> spiece;
  std::unique_ptr<const unigram_model> unigram;
  pretokenizer_kind pre = pretokenizer_kind::gpt2;

  result<void> load();
  result<void> check() const;
  result<void> load_names();
  void load_types();
  void load_pieces();
  /// @param first  nothing of the text stands before it.
  void encode_fragment(std::string_view text, bool first, std::vector<std::int32_t>& out) const;
  /// Where the text goes on behind marker `id`, which ends at `end`.
  std::size_t behind(std::int32_t id, std::string_view text, std::size_t end) const;
  std::vector<std::int32_t> encode(std::string_view text, special_tokens how, bool first) const;
};

result<void> tokenizer::impl::check() const {
  const std::size_t n = vocab.tokens.size();
  if (n == 0) return fail(ec::corrupt, "tokenizer vocabulary is empty");
  if (n > std::numeric_limits<std::int32_t>::max() / 4)
    return fail(ec::corrupt, "tokenizer vocabulary of " + std::to_string(n) + " tokens is too large");
  if (!vocab.types.empty() && vocab.types.size() != n)
    return fail(ec::corrupt, "tokenizer has " + std::to_string(vocab.types.size()) + " types for " +
                                 std::to_string(n) + " tokens");
  for (std::size_t id = 0; id < vocab.types.size(); ++id) {
    if (vocab.types[id] < token_type::normal || vocab.types[id] > token_type::byte)
      return fail(ec::corrupt, "tokenizer token " + std::to_string(id) + " has type " +
                                   std::to_string(static_cast<int>(vocab.types[id])) + ", outside 1 to 6");
  }
  for (const auto& [name, id] : {std::pair<std::string_view, std::int32_t>{"bos", vocab.bos},
                                 {"eos", vocab.eos},
                                 {"eot", vocab.eot},
                                 {"unknown", vocab.unknown}}) {
    if (auto ok = check_id(name, id, n); !ok) return ok;
  }
  for (const auto id : vocab.ends)
    if (auto ok = check_id("end", id, n); !ok) return ok;
  return {};
}

result<void> tokenizer::impl::load_names() {
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.types[id] == token_type::unused) continue;
    const std::int32_t same = names.add(static_cast<std::int32_t>(id));
    if (same >= 0)
      return fail(ec::corrupt, "tokenizer token " + std::to_string(id) + " (\"" + vocab.tokens[id] +
                                   "\") repeats token " + std::to_string(same));
  }
  return {};
}

void tokenizer::impl::load_types() {
  const auto make_control = [&](std::int32_t id) {
    if (id >= 0) vocab.types[static_cast<std::size_t>(id)] = token_type::control;
  };
  make_control(vocab.bos);
  make_control(vocab.eos);
  make_control(vocab.eot);
  for (const auto id : vocab.ends) make_control(id);
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    const auto signed_id = static_cast<std::int32_t>(id);
    if (vocab.types[id] == token_type::unused) continue;
    if (is_marker(vocab.tokens[id])) make_control(signed_id);
    if (is_end_marker(vocab.tokens[id]) || signed_id == vocab.eos || signed_id == vocab.eot ||
        std::ranges::find(vocab.ends, signed_id) != vocab.ends.end())
      eog.push_back(signed_id);
  }
}

void tokenizer::impl::load_pieces() {
  pieces.reserve(vocab.tokens.size());
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string& token = vocab.tokens[id];
    const token_type type = vocab.types[id];
    const bool literal = type == token_type::control || type == token_type::user_defined;
    if (vocab.kind != vocab_kind::byte_bpe)
      pieces.push_back(type == token_type::control ? token : sentencepiece_model::piece_bytes(token, type));
    else pieces.push_back(literal ? token : byte_alphabet::bytes(token).value_or(token));
    // Unigram's texts are searched before their spaces become marks.
    if (literal)
      specials.add(vocab.kind == vocab_kind::unigram ? token : pieces.back(), static_cast<std::int32_t>(id),
                   type == token_type::control);
  }
}

result<void> tokenizer::impl::load() {
  if (auto ok = check(); !ok) return ok;
  vocab.types.resize(vocab.tokens.size(), token_type::normal);
  if (auto ok = load_names(); !ok) return ok;
  load_types();
  load_pieces();
  if (vocab.kind == vocab_kind::sentencepiece) {
    auto made = sentencepiece_model::make(vocab);
    if (!made) return fail(made.error());
    spiece = std::move(*made);
    vocab.merges.clear();  // the model's table holds the merges
    vocab.merges.shrink_to_fit();
    return {};
  }
  if (vocab.kind == vocab_kind::unigram) {
    auto made = unigram_model::make(vocab);
    if (!made) return fail(made.error());
    unigram = std::move(*made);
    vocab.steps.clear();  // the model holds the steps
    return {};
  }
  const auto kind = pretokenizer_by_name(vocab.pre);
  if (!kind) return fail(kind.error());
  pre = *kind;
  const bool taken_whole = pre == pretokenizer_kind::llama3 || pre == pretokenizer_kind::tekken;
  auto made = bpe_model::make({vocab, names, pieces, vocab.ignore_merges.value_or(taken_whole)});
  if (!made) return fail(made.error());
  bpe = std::move(*made);
  vocab.merges.clear();  // the model's table holds the merges
  vocab.merges.shrink_to_fit();
  return {};
}

std::size_t tokenizer::impl::behind(std::int32_t id, std::string_view text, std::size_t end) const {
  if (std::ranges::find(vocab.takes_space, id) == vocab.takes_space.end()) return end;
  return std::min(text.find_first_not_of(" \t\n\v\f\r", end), text.size());
}

void tokenizer::impl::encode_fragment(std::string_view text, bool first,
                                      std::vector<std::int32_t>& out) const {
  if (unigram) return unigram->encode(text, first, out);
  if (spiece) {
    const bool spaced = text.starts_with(' ') || text.starts_with("\xE2\x96\x81");
    const bool wanted = !vocab.prefix_at_start_only || (first && !spaced);
    return spiece->encode(text, vocab.add_space_prefix && wanted, out);
  }
  std::string normalised;
  if (wants_nfc(pre) && utf8::ascii_prefix(text) != text.size()) text = normalised = to_nfc(text);
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t end = word_end(pre, text, pos);
    bpe->encode_word(text.substr(pos, end - pos), out);
    pos = end;
  }
}

tokenizer::tokenizer(std::unique_ptr<const impl> parts) : impl_(std::move(parts)) {}
tokenizer::~tokenizer() = default;

result<std::shared_ptr<const tokenizer>> tokenizer::from_vocab(tokenizer_vocab vocab) {
  auto parts = std::make_unique<impl>(std::move(vocab));
  if (auto ok = parts->load(); !ok) return fail(ok.error());
  return std::shared_ptr<const tokenizer>(new tokenizer(std::move(parts)));
}

std::vector<std::int32_t> tokenizer::encode(std::string_view text, special_tokens how) const {
  return impl_->encode(text, how, true);
}

std::vector<std::int32_t> tokenizer::impl::encode(std::string_view text, special_tokens how,
                                                  bool first) const {
  std::string repaired;
  if (!utf8::is_well_formed(text)) text = repaired = utf8::to_well_formed(text);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3 + 4);
  const bool control = how == special_tokens::parse;
  for (std::size_t pos = 0; pos < text.size();) {
    const auto special = specials.find(text, pos, control);
    const std::size_t end = special.length > 0 ? special.begin : text.size();
    if (end > pos) encode_fragment(text.substr(pos, end - pos), first && pos == 0, ids);
    pos = end + special.length;
    if (special.length == 0) break;
    ids.push_back(special.id);
    pos = behind(special.id, text, pos);
  }
  return ids;
}

std::vector<std::int32_t> tokenizer::encode_prompt(std::string_view text, special_tokens how) const {
  std::vector<std::int32_t> ids = encode(text, how);
  const bool has_bos = how == special_tokens::parse && !ids.empty() && ids.front() == impl_->vocab.bos;
  if (add_bos() && !has_bos) ids.insert(ids.begin(), impl_->vocab.bos);
  if (impl_->vocab.add_eos && impl_->vocab.eos >= 0) ids.push_back(impl_->vocab.eos);
  return ids;
}

std::vector<std::int32_t> tokenizer::encode_composed(
    std::string_view text, std::span<const std::pair<std::size_t, std::size_t>> own) const {
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  const auto encode_to = [&](std::size_t end) {
    // Words may span our parts and others' parts, as they do in a text that was rendered first.
    const auto part = impl_->encode(text.substr(done, end - done), special_tokens::as_text, done == 0);
    ids.insert(ids.end(), part.begin(), part.end());
  };
  for (const auto& [begin, end] : own) {
    const auto ours = text.substr(0, end);
    for (std::size_t pos = std::max(begin, done); pos < end;) {
      const auto special = impl_->specials.find(ours, pos, true);
      if (special.length == 0) break;
      pos = special.begin + special.length;
      if (!is_special(special.id)) continue;  // text in any mode
      encode_to(special.begin);
      ids.push_back(special.id);
      done = pos = impl_->behind(special.id, text, pos);
    }
  }
  encode_to(text.size());
  return ids;
}

std::string tokenizer::decode(std::span<const std::int32_t> ids, special_text how) const {
  std::string text;
  bool strip_space = adds_space_prefix();
  for (const std::int32_t id : ids) {
    const bool special = is_special(id);
    if (special && how == special_text::hide) continue;
    std::string_view bytes = piece(id);
    if (strip_space && !bytes.empty() && !special) {
      if (bytes.front() == ' ') bytes.remove_prefix(1);
      strip_space = false;
    }
    text += bytes;
  }
  return utf8::is_well_formed(text) ? text : utf8::to_well_formed(text);
}

std::string_view tokenizer::piece(std::int32_t id) const noexcept {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->pieces[static_cast<std::size_t>(id)];
}

std::int32_t tokenizer::vocab_size() const noexcept {
  return static_cast<std::int32_t>(impl_->vocab.tokens.size());
}
std::int32_t tokenizer::bos() const noexcept { return impl_->vocab.bos; }
std::int32_t tokenizer::eos() const noexcept { return impl_->vocab.eos; }
bool tokenizer::add_bos() const noexcept { return impl_->vocab.add_bos && impl_->vocab.bos >= 0; }
bool tokenizer::adds_space_prefix() const noexcept {
  return impl_->vocab.kind != vocab_kind::byte_bpe && impl_->vocab.add_space_prefix;
}
std::span<const std::int32_t> tokenizer::eog_ids() const noexcept { return impl_->eog; }
bool tokenizer::is_special(std::int32_t id) const noexcept {
  if (id < 0 || id >= vocab_size()) return false;
  const token_type type = impl_->vocab.types[static_cast<std::size_t>(id)];
  return type == token_type::control || type == token_type::unknown || type == token_type::unused;
}

std::optional<std::int32_t> tokenizer::find(std::string_view text) const {
  const std::int32_t id = impl_->names.find(text);
  if (id < 0) return std::nullopt;
  return id;
}

const std::string& tokenizer::chat_template_text() const noexcept { return impl_->vocab.chat_template; }

}  // namespace mooncaf
