#include "runtime/text/unigram_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/base/utf8.hpp"
#include "runtime/text/sentencepiece_model.hpp"

namespace mooncaf {

namespace {
/// How much worse than the worst piece a character without one is; SentencePiece's constant.
constexpr double unknown_penalty = 10;
}  // namespace

result<std::unique_ptr<const unigram_model>> unigram_model::make(const tokenizer_vocab& vocab) {
  std::unique_ptr<unigram_model> model{new unigram_model(vocab)};
  if (auto ok = model->load(); !ok) return fail(ok.error());
  auto steps = text_steps::make(vocab.steps, vocab.words);
  if (!steps) return fail(steps.error());
  model->steps_ = std::move(*steps);
  return std::unique_ptr<const unigram_model>(std::move(model));
}

result<void> unigram_model::load() {
  if (vocab_.scores.empty() || vocab_.scores.size() > vocab_.tokens.size())
    return fail(ec::corrupt, "tokenizer has " + std::to_string(vocab_.scores.size()) + " scores for " +
                                 std::to_string(vocab_.tokens.size()) + " tokens");
  double worst = std::numeric_limits<double>::infinity();
  for (std::size_t id = 0; id < vocab_.scores.size(); ++id) {
    if (!std::isfinite(vocab_.scores[id]))
      return fail(ec::corrupt, "tokenizer score " + std::to_string(id) + " is not a number");
    worst = std::min(worst, vocab_.scores[id]);
  }
  unknown_score_ = worst - unknown_penalty;
  if (vocab_.unknown < 0) return fail(ec::corrupt, "tokenizer of kind Unigram names no unknown token");
  return load_pieces();
}

result<void> unigram_model::load_pieces() {
  byte_ids_.fill(-1);
  std::size_t bytes = 0;
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < vocab_.tokens.size(); ++id) {
    const token_type type = vocab_.types.empty() ? token_type::normal : vocab_.types[id];
    const bool text = type == token_type::normal || type == token_type::user_defined;
    // The text "<0x0A>" is a fallback token's too: so Hugging Face's library has it.
    if ((text || type == token_type::byte) && id < vocab_.scores.size() && !vocab_.tokens[id].empty())
      ids.push_back(static_cast<std::int32_t>(id));
    if (type != token_type::byte) continue;
    const auto piece = sentencepiece_model::piece_bytes(vocab_.tokens[id], type);
    if (piece.empty())
      return fail(ec::corrupt, "tokenizer token " + std::to_string(id) + " (\"" + vocab_.tokens[id] +
                                   "\") is of type byte but not written <0xHH>");
    auto& slot = byte_ids_[static_cast<unsigned char>(piece[0])];
    bytes += slot < 0;
    slot = static_cast<std::int32_t>(id);
  }
  if (bytes != 0 && bytes != byte_ids_.size())
    return fail(ec::corrupt, "tokenizer vocabulary has fallback tokens for " + std::to_string(bytes) +
                                 " bytes; there must be 256, or none");
  falls_back_ = bytes != 0;
  build(std::move(ids));
  return {};
}

void unigram_model::build(std::vector<std::int32_t> ids) {
  const auto text = [&](std::int32_t id) -> const std::string& {
    return vocab_.tokens[static_cast<std::size_t>(id)];
  };
  std::ranges::sort(ids, [&](auto a, auto b) { return text(a) < text(b); });
  /// The pieces [begin, end) of `ids` that share their first `depth` bytes are the ones below `at`.
  struct range {
    std::size_t at, begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<range> todo{{0, 0, ids.size(), 0}};
  for (std::size_t done = 0; done < todo.size(); ++done) {
    auto [at, begin, end, depth] = todo[done];
    if (begin < end && text(ids[begin]).size() == depth) nodes_[at].id = ids[begin++];
    nodes_[at].child = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = text(ids[begin])[depth];
      std::size_t stop = begin;
      while (stop < end && text(ids[stop])[depth] == byte) ++stop;
      todo.push_back({nodes_.size(), begin, stop, depth + 1});
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ++nodes_[at].children;
      begin = stop;
    }
  }
}

const unigram_model::node* unigram_model::step(const node& from, unsigned char byte) const noexcept {
  const auto* begin = nodes_.data() + from.child;
  const auto* end = begin + from.children;
  const auto* found = std::lower_bound(begin, end, byte, [](const node& n, auto b) { return n.byte < b; });
  return found != end && found->byte == byte ? found : nullptr;
}

void unigram_model::encode(std::string_view text, bool first, std::vector<std::int32_t>& out) const {
  steps_->each_word(text, first, [&](std::string_view word) { encode_word(word, out); });
}

void unigram_model::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  /// The best way to get to a place: by a piece (or the unknown token) that begins `length` bytes before it.
  struct best {
    double score = 0;
    std::uint32_t length = 0;  ///< 0: nothing ends here
    std::int32_t id = -1;
  };
  std::vector<best> ends(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    auto& there = ends[end];
    score += ends[begin].score;
    if (there.length == 0 || score > there.score)
      there = {score, static_cast<std::uint32_t>(end - begin), id};
  };
  for (std::size_t pos = 0; pos < word.size();) {
    std::size_t next = pos;
    utf8::next(word, next);
    bool alone = false;
    const node* at = nodes_.data();
    for (std::size_t end = pos; end < word.size();) {
      at = step(*at, static_cast<unsigned char>(word[end]));
      if (!at) break;
      ++end;
      if (at->id < 0) continue;
      offer(pos, end, vocab_.scores[static_cast<std::size_t>(at->id)], at->id);
      alone |= end == next;
    }
    if (!alone) offer(pos, next, unknown_score_, vocab_.unknown);
    pos = next;
  }
  // Backwards, then turned round.
  const auto begun = static_cast<std::ptrdiff_t>(out.size());
  bool after_unknown = false;
  for (std::size_t end = word.size(); end > 0; end -= ends[end].length) {
    const auto& piece = ends[end];
    const bool unknown = piece.id == vocab_.unknown;
    if (unknown && falls_back_)
      for (std::size_t i = 0; i < piece.length; ++i)
        out.push_back(byte_ids_[static_cast<unsigned char>(word[end - 1 - i])]);
    else if (!unknown || !after_unknown) out.push_back(piece.id);
    after_unknown = unknown;
  }
  std::reverse(out.begin() + begun, out.end());
}

}  // namespace mooncaf
