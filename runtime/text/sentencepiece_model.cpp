#include "runtime/text/sentencepiece_model.hpp"

#include <charconv>
#include <cmath>
#include <queue>

#include "runtime/base/utf8.hpp"
#include "runtime/text/text_steps.hpp"

namespace mooncaf {

namespace {

/// "<0x0A>" to 10; -1 for anything else.
int byte_of(std::string_view token) noexcept {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token.back() != '>') return -1;
  unsigned value = 0;
  const char* end = token.data() + 5;
  const auto read = std::from_chars(token.data() + 3, end, value, 16);
  return read.ec == std::errc{} && read.ptr == end ? static_cast<int>(value) : -1;
}

struct symbol {
  std::uint32_t begin, length;  ///< of the text; length 0: joined into its left neighbour
  std::int32_t id;              ///< -1: no piece
  std::int32_t previous, next;  ///< -1: none
};

struct join {
  float score;
  std::int32_t left;
  std::uint32_t length;  ///< of both symbols together, to notice that one has grown since
  bool operator<(
      const join& other) const noexcept {  // the heap's top is the highest score, then the leftmost
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

result<std::unique_ptr<const sentencepiece_model>> sentencepiece_model::make(const tokenizer_vocab& vocab) {
  std::unique_ptr<sentencepiece_model> model{new sentencepiece_model(vocab)};
  if (auto ok = model->load(); !ok) return fail(ok.error());
  return std::unique_ptr<const sentencepiece_model>(std::move(model));
}

result<void> sentencepiece_model::load_scores() {
  if (vocab_.scores.size() != vocab_.tokens.size())
    return fail(ec::corrupt, "tokenizer has " + std::to_string(vocab_.scores.size()) + " scores for " +
                                 std::to_string(vocab_.tokens.size()) + " tokens");
  for (std::size_t id = 0; id < vocab_.scores.size(); ++id)
    if (std::isnan(vocab_.scores[id]))
      return fail(ec::corrupt, "tokenizer score " + std::to_string(id) + " is not a number");
  return {};
}

result<void> sentencepiece_model::load_merges() {
  for (std::size_t rank = 0; rank < vocab_.merges.size(); ++rank) {
    const std::string_view merge = vocab_.merges[rank];
    const auto space = merge.find(' ');
    if (space == std::string_view::npos)
      return fail(ec::corrupt, "tokenizer merge " + std::to_string(rank) + " (\"" +
                                   std::string{merge.substr(0, 80)} + "\") is not two tokens");
    const auto left = pieces_.find(merge.substr(0, space)), right = pieces_.find(merge.substr(space + 1));
    if (left < 0 || right < 0) continue;  // of markers, which no text becomes
    ranks_.emplace(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right),
                   static_cast<std::uint32_t>(rank));
  }
  return {};
}

/// The score of joining two pieces; nothing if they are not joined.
std::optional<float> sentencepiece_model::score_of(std::int32_t left, std::int32_t right,
                                                   std::int32_t both) const {
  if (both < 0) return std::nullopt;
  if (!vocab_.scores.empty()) return static_cast<float>(vocab_.scores[static_cast<std::size_t>(both)]);
  if (left < 0 || right < 0) return std::nullopt;
  const auto found = ranks_.find(static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
  if (found == ranks_.end()) return std::nullopt;
  return -static_cast<float>(found->second);  // exact below 2^24, and no vocabulary has as many
}

result<void> sentencepiece_model::load() {
  const bool by_merges = vocab_.scores.empty() && !vocab_.merges.empty();
  if (!by_merges)
    if (auto done = load_scores(); !done) return done;
  byte_ids_.fill(-1);
  std::size_t bytes = 0;
  for (std::size_t id = 0; id < vocab_.tokens.size(); ++id) {
    const token_type type = vocab_.types.empty() ? token_type::normal : vocab_.types[id];
    if (type == token_type::byte) {
      const int byte = byte_of(vocab_.tokens[id]);
      if (byte < 0)
        return fail(ec::corrupt, "tokenizer token " + std::to_string(id) + " (\"" + vocab_.tokens[id] +
                                     "\") is of type byte but not written <0xHH>");
      bytes += byte_ids_[static_cast<std::size_t>(byte)] < 0;
      byte_ids_[static_cast<std::size_t>(byte)] = static_cast<std::int32_t>(id);
    } else if ((type == token_type::normal || type == token_type::user_defined) &&
               !vocab_.tokens[id].empty()) {
      pieces_.add(static_cast<std::int32_t>(id));
    }
  }
  if (bytes != 0 && bytes != 256)
    return fail(ec::corrupt, "tokenizer vocabulary has fallback tokens for " + std::to_string(bytes) +
                                 " bytes; there must be 256, or none");
  return by_merges ? load_merges() : result<void>{};
}

void sentencepiece_model::encode(std::string_view text, bool prefix, std::vector<std::int32_t>& out) const {
  if (text.empty()) return;
  std::string marked;
  marked.reserve(text.size() + text.size() / 4);
  if (prefix) marked += space_mark;
  for (char c : text) {
    if (c == ' ') marked += space_mark;
    else marked += c;
  }
  merge(marked, out);
}

void sentencepiece_model::merge(std::string_view text, std::vector<std::int32_t>& out) const {
  std::vector<symbol> symbols;
  symbols.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    utf8::next(text, pos);
    const auto index = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(pos - begin),
                       pieces_.find(text.substr(begin, pos - begin)), index - 1, index + 1});
  }
  symbols.back().next = -1;
  const auto at = [&](std::int32_t i) -> symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<join> queue;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const auto& right = at(at(left).next);
    const std::uint32_t length = at(left).length + right.length;
    const std::int32_t id = pieces_.find(text.substr(at(left).begin, length));
    if (const auto score = score_of(at(left).id, right.id, id)) queue.push({*score, left, length});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) offer(i);
  while (!queue.empty()) {
    const join top = queue.top();
    queue.pop();
    symbol& left = at(top.left);
    if (left.length == 0 || left.next < 0 || left.length + at(left.next).length != top.length)
      continue;  // outdated
    symbol& right = at(left.next);
    left.length = top.length;
    left.id = pieces_.find(text.substr(left.begin, left.length));
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) at(left.next).previous = top.left;
    offer(left.previous);
    offer(top.left);
  }
  bool after_unknown = false;
  for (std::int32_t i = 0; i >= 0; i = at(i).next) {
    const std::string_view piece = text.substr(at(i).begin, at(i).length);
    const std::int32_t id = at(i).id;
    if (id >= 0) out.push_back(id);
    else if (byte_ids_[0] >= 0) fall_back(piece, out);
    else if (vocab_.unknown >= 0 && !after_unknown) out.push_back(vocab_.unknown);
    after_unknown = id < 0;
  }
}

void sentencepiece_model::fall_back(std::string_view character, std::vector<std::int32_t>& out) const {
  for (char c : character) out.push_back(byte_ids_[static_cast<unsigned char>(c)]);
}

std::string sentencepiece_model::piece_bytes(std::string_view token, token_type type) {
  if (type == token_type::byte) {
    const int byte = byte_of(token);
    return byte < 0 ? std::string{} : std::string(1, static_cast<char>(byte));
  }
  std::string out;
  for (std::size_t pos = 0; pos < token.size();) {
    if (token.substr(pos, space_mark.size()) == space_mark) {
      out += ' ';
      pos += space_mark.size();
    } else {
      out += token[pos++];
    }
  }
  return out;
}

}  // namespace mooncaf
