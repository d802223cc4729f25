#include "runtime/text/bpe_model.hpp"

#include <algorithm>
#include <bit>
#include <queue>

#include "runtime/text/byte_alphabet.hpp"

namespace mooncaf {

namespace {

/// Up to here a scan over all neighbours beats a heap: nothing to allocate, and all of it in a cache line or
/// two.
constexpr std::size_t short_word_bytes = 48;
constexpr std::uint32_t no_rank = ~std::uint32_t{0};

std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::string hex(unsigned byte) {
  constexpr char digits[] = "0123456789abcdef";
  return {'0', 'x', digits[byte >> 4 & 15], digits[byte & 15]};
}

/// Any text needs these; the rest (control characters, lead bytes of unassigned planes) some vocabularies
/// lack.
bool is_indispensable(unsigned byte) noexcept {
  return (byte >= 0x20 && byte <= 0x7E) || byte == '\n' || byte == '\t' || (byte >= 0x80 && byte <= 0xBF);
}

}  // namespace

bpe_model::bpe_model(const parts& from) : words_(from.pieces) {}

result<std::unique_ptr<const bpe_model>> bpe_model::make(const parts& from) {
  std::unique_ptr<bpe_model> model{new bpe_model(from)};
  if (auto ok = model->load_bytes(from); !ok) return fail(ok.error());
  if (auto ok = model->load_merges(from); !ok) return fail(ok.error());
  model->load_words(from);
  return std::unique_ptr<const bpe_model>(std::move(model));
}

result<void> bpe_model::load_bytes(const parts& from) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = from.names.find(byte_alphabet::text(static_cast<std::uint8_t>(byte)));
    if (byte_ids_[byte] >= 0) continue;
    if (is_indispensable(byte))
      return fail(ec::corrupt, "tokenizer vocabulary has no token for byte " + hex(byte) + " (\"" +
                                   byte_alphabet::text(static_cast<std::uint8_t>(byte)) + "\")");
  }
  return {};
}

result<void> bpe_model::load_merges(const parts& from) {
  const auto& texts = from.vocab.merges;
  merges_.resize(std::bit_ceil(texts.size() * 2 + 2));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const std::string_view text = texts[rank];
    const auto bad = [&](const std::string& what) {
      return fail(ec::corrupt,
                  "tokenizer merge " + std::to_string(rank) + " (\"" + std::string{text} + "\") " + what);
    };
    const std::size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size())
      return bad("is not two tokens with a space between");
    const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
    const std::int32_t left_id = from.names.find(left), right_id = from.names.find(right);
    const std::int32_t id = from.names.find(std::string{left} + std::string{right});
    if (left_id < 0 || right_id < 0) return bad("joins a token that the vocabulary does not have");
    if (id < 0) return bad("makes a token that the vocabulary does not have");
    merge& slot = merges_[probe(pair_of(left_id, right_id))];
    if (slot.id >= 0) return bad("repeats merge " + std::to_string(slot.rank));
    slot = {pair_of(left_id, right_id), static_cast<std::uint32_t>(rank), id};
  }
  return {};
}

void bpe_model::load_words(const parts& from) {
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < from.pieces.size(); ++id) {
    if (from.pieces[id].empty()) continue;
    if (!from.vocab.types.empty() && from.vocab.types[id] != token_type::normal) continue;
    if (!byte_alphabet::bytes(from.vocab.tokens[id])) continue;  // not byte-level, so no word spells it
    ids.clear();
    if (!from.ignore_merges) merge_bytes(from.pieces[id], ids);
    if (from.ignore_merges || (ids.size() == 1 && ids[0] == static_cast<std::int32_t>(id)))
      words_.add(static_cast<std::int32_t>(id));
  }
}

std::size_t bpe_model::probe(std::uint64_t pair) const noexcept {
  const std::size_t mask = merges_.size() - 1;
  // Fibonacci hashing; ids are small, so fold the high word in first.
  std::size_t at = ((pair ^ pair >> 29) * 0x9E3779B97F4A7C15ull >> 20) & mask;
  while (merges_[at].id >= 0 && merges_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

const bpe_model::merge* bpe_model::find(std::int32_t left, std::int32_t right) const noexcept {
  const merge& slot = merges_[probe(pair_of(left, right))];
  return slot.id >= 0 ? &slot : nullptr;
}

void bpe_model::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
  if (const std::int32_t id = words_.find(word); id >= 0) out.push_back(id);
  else merge_bytes(word, out);
}

void bpe_model::merge_bytes(std::string_view word, std::vector<std::int32_t>& out) const {
  const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (word.size() <= short_word_bytes) {
    std::array<std::int32_t, short_word_bytes> ids;
    std::size_t n = 0;
    for (char c : word)
      if (id_of(c) >= 0) ids[n++] = id_of(c);
    n = merge_short({ids.data(), n});
    out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    return;
  }
  std::vector<std::int32_t> ids;
  ids.reserve(word.size());
  for (char c : word)
    if (id_of(c) >= 0) ids.push_back(id_of(c));
  merge_long(ids, out);
}

std::size_t bpe_model::merge_short(std::span<std::int32_t> ids) const noexcept {
  struct candidate {
    std::uint32_t rank = no_rank;
    std::int32_t id = -1;
  };
  std::array<candidate, short_word_bytes> joins;  // joins[i]: of ids[i] with ids[i + 1]
  std::size_t n = ids.size();
  const auto look_up = [&](std::size_t i) {
    const merge* m = find(ids[i], ids[i + 1]);
    joins[i] = m ? candidate{m->rank, m->id} : candidate{};
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (joins[i].rank < joins[best].rank) best = i;
    if (joins[best].rank == no_rank) break;
    ids[best] = joins[best].id;
    --n;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              ids.begin() + static_cast<std::ptrdiff_t>(n) + 1,
              ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    for (std::size_t i = best + 1; i + 1 < n; ++i) joins[i] = joins[i + 1];
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  return n;
}

void bpe_model::merge_long(std::span<const std::int32_t> ids, std::vector<std::int32_t>& out) const {
  struct symbol {
    std::int32_t id;  ///< -1: joined into its left neighbour
    std::uint32_t previous, next;
  };
  struct join {
    std::uint32_t rank, left;
    std::int32_t left_id, right_id, id;
    bool operator<(
        const join& other) const noexcept {  // the heap's top is the lowest rank, then the leftmost
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  constexpr std::uint32_t none = ~std::uint32_t{0};
  std::vector<symbol> symbols(ids.size());
  std::vector<join> storage;
  storage.reserve(ids.size());
  std::priority_queue<join> queue(std::less<join>{}, std::move(storage));
  const auto offer = [&](std::uint32_t left) {
    const std::uint32_t right = symbols[left].next;
    if (right == none) return;
    if (const merge* m = find(symbols[left].id, symbols[right].id))
      queue.push({m->rank, left, symbols[left].id, symbols[right].id, m->id});
  };
  for (std::uint32_t i = 0; i < symbols.size(); ++i)
    symbols[i] = {ids[i], i == 0 ? none : i - 1, i + 1 == symbols.size() ? none : i + 1};
  for (std::uint32_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const join top = queue.top();
    queue.pop();
    symbol& left = symbols[top.left];
    if (left.id != top.left_id || left.next == none || symbols[left.next].id != top.right_id)
      continue;  // outdated
    symbol& right = symbols[left.next];
    left.id = top.id;
    left.next = right.next;
    right.id = -1;
    if (left.next != none) symbols[left.next].previous = top.left;
    if (left.previous != none) offer(left.previous);
    offer(top.left);
  }
  for (const symbol& s : symbols)
    if (s.id >= 0) out.push_back(s.id);
}

}  // namespace mooncaf
