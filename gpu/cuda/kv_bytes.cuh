#pragma once
// KV as bytes: carried between the device's blocks and the host's, and checksummed.

#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/simt.hpp"

namespace mooncaf::cuda {

using namespace mooncaf::simt;

/// Words of 16 bytes that a thread has under way.
inline constexpr unsigned words_ahead = 4;

inline constexpr std::uint64_t prime32_1 = 0x9E3779B1, prime32_2 = 0x85EBCA77, prime32_3 = 0xC2B2AE3D,
                               prime64_1 = 0x9E3779B185EBCA87, prime64_2 = 0xC2B2AE3D27D4EB4F,
                               prime64_3 = 0x165667B19E3779F9, prime64_4 = 0x85EBCA77C2B2AE63,
                               prime64_5 = 0x27D4EB2F165667C5;
/// XXH3's stripes of 64 bytes, and how many of them are added up before the sums are scrambled.
inline constexpr unsigned stripe_words = 8, chunk_stripes = 16;
/// Chunks whose sums a block of threads makes before one warp goes through them.
inline constexpr unsigned checksum_warps = checksum_threads / warp_threads, warp_chunks = 4,
                          tile_chunks = checksum_warps * warp_chunks;

MOONCAF_DEVICE std::uint64_t word_at(const std::byte* at) {
  const words2 v = load8(at);
  return std::uint64_t{v.w[1]} << 32 | v.w[0];
}
MOONCAF_DEVICE std::uint64_t low_times_high(std::uint64_t x) { return (x & 0xFFFFFFFFu) * (x >> 32); }
/// Both halves of the product of 128 bits, one over the other.
MOONCAF_DEVICE std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t middle = (a0 * b0 >> 32) + (a1 * b0 & 0xFFFFFFFFu) + a0 * b1;
  return (a1 * b1 + (a1 * b0 >> 32) + (middle >> 32)) ^ (a * b);
}
MOONCAF_DEVICE std::uint64_t first_sum(unsigned i) {
  switch (i) {
    case 0:
      return prime32_3;
    case 1:
      return prime64_1;
    case 2:
      return prime64_2;
    case 3:
      return prime64_3;
    case 4:
      return prime64_4;
    case 5:
      return prime32_2;
    case 6:
      return prime64_5;
    default:
      return prime32_1;
  }
}

/// A block that is checksummed as it lies.
struct block_words {
  const std::byte* block;
  /// The word that lies `ahead` of word `first`.
  MOONCAF_DEVICE std::uint64_t take(unsigned first, unsigned ahead, bool) const {
    return word_at(block + std::size_t{first} * 8 + std::size_t{ahead} * 8);
  }
};
MOONCAF_DEVICE unsigned divided(unsigned n, const quotient& by) {
  return static_cast<unsigned>(std::uint64_t{n} * by.factor >> by.shift);
}
/// A block on its way to a page, where its words lie in the same order in one piece.
struct copied_words {
  const std::byte* block;
  std::byte* page;
  /// @param store  false: another lane does.
  MOONCAF_DEVICE std::uint64_t take(unsigned first, unsigned ahead, bool store) const {
    return carried(std::size_t{first} + ahead, std::size_t{first} + ahead, store);
  }
  MOONCAF_DEVICE std::uint64_t carried(std::size_t from, std::size_t to, bool store) const {
    const std::uint64_t value = word_at(block + from * 8);
    if (store) *reinterpret_cast<std::uint64_t*>(page + to * 8) = value;
    return value;
  }
};
/// … in pieces apart from each other.
struct words_in_pieces {
  copied_words all;
  const page_words& where;
  MOONCAF_DEVICE std::uint64_t take(unsigned first, unsigned ahead, bool store) const {
    const unsigned word = first + ahead;
    const unsigned piece = divided(word, where.piece);
    return all.carried(word, std::size_t{piece} * where.stride + (word - piece * where.piece.divisor), store);
  }
};
/// … token by token.
struct words_by_token {
  copied_words all;
  const page_words& where;
  MOONCAF_DEVICE std::uint64_t take(unsigned first, unsigned ahead, bool store) const {
    const unsigned word = first + ahead;
    const unsigned row = divided(word, where.row), token = divided(row, where.rows),
                   there = (row - token * where.rows.divisor) * where.tokens + token;
    return all.carried(std::size_t{there} * where.row.divisor + (word - row * where.row.divisor), word,
                       store);
  }
};

/// The share of `stripes` from word `first` on in sum i % 8, equal in the four lanes that have it. A lane takes
/// each fourth stripe.
template <class Words>
MOONCAF_DEVICE std::uint64_t stripe_sums(const checksum_params& p, const Words& words, unsigned first,
                                         unsigned stripes) {
  const unsigned lane = thread_index() % warp_threads, i = lane % stripe_words;
  std::uint64_t own = 0, others = 0;
  MOONCAF_UNROLL
  for (unsigned j = 0; j < chunk_stripes; j += 4) {
    const unsigned stripe = j + lane / stripe_words;
    if (stripe >= stripes) continue;
    const std::uint64_t word = words.take(first + lane, stripe_words * j, true);
    own += low_times_high(word ^ p.secret[stripe + i]);
    others += word;
  }
  own += shuffle_xor(others, 1);
  own += shuffle_xor(own, 8);
  return own + shuffle_xor(own, 16);
}

/// The checksum of a KV block, in the first warp. All warps make sums of chunks; the first goes through them, a
/// tile behind.
/// @param sums  [2, tile_chunks, stripe_words], shared; free again behind the next barrier.
template <class Words>
MOONCAF_DEVICE std::uint64_t checksum_of(const checksum_params& p, const Words& words, std::uint64_t* sums) {
  const unsigned warp = thread_index() / warp_threads, lane = thread_index() % warp_threads,
                 i = lane % stripe_words;
  constexpr unsigned chunk_words = stripe_words * chunk_stripes;
  // The last stripe is never part of these.
  const auto chunks = static_cast<unsigned>((p.bytes - 1) / (8 * chunk_words));
  std::uint64_t sum = first_sum(i);
  MOONCAF_ROLLED
  for (unsigned tile = 0; tile * tile_chunks < chunks; ++tile) {
    std::uint64_t* room = sums + tile % 2 * tile_chunks * stripe_words;
    MOONCAF_UNROLL
    for (unsigned c = 0; c < warp_chunks; ++c) {
      const unsigned chunk = tile * tile_chunks + warp * warp_chunks + c;
      if (chunk >= chunks) continue;
      const auto added = stripe_sums(p, words, chunk * chunk_words, chunk_stripes);
      if (lane < stripe_words) room[(warp * warp_chunks + c) * stripe_words + i] = added;
    }
    sync_block();
    if (warp != 0) continue;
    MOONCAF_ROLLED
    for (unsigned c = 0; c < tile_chunks && tile * tile_chunks + c < chunks; ++c) {
      sum += room[c * stripe_words + i];
      sum = ((sum ^ sum >> 47) ^ p.secret[16 + i]) * prime32_1;
    }
  }
  if (warp != 0) return 0;
  const unsigned behind = chunks * chunk_words;
  const auto rest = static_cast<unsigned>((p.bytes - 1) / 64) - chunks * chunk_stripes;
  sum += stripe_sums(p, words, behind, rest);
  const auto last = static_cast<unsigned>(p.bytes / 8) - stripe_words;
  const std::uint64_t word = words.take(last + i, 0, lane < stripe_words);
  sum += low_times_high(word ^ p.last[i]) + shuffle_xor(word, 1);
  // Pairs of sums are folded, and the four of them added.
  const std::uint64_t mixed = sum ^ p.merge[i], beside = shuffle_xor(mixed, 1);
  std::uint64_t hash = folded_product(mixed, beside);
  hash += shuffle_xor(hash, 2);
  hash += shuffle_xor(hash, 4);
  hash += p.bytes * prime64_1;
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9;
  return hash ^ hash >> 32;
}

}  // namespace mooncaf::cuda

/// grid: as many blocks as may copy. A block takes whole moves, its threads 16 bytes at a time.
MOONCAF_KERNEL(mooncaf_carry, mooncaf::cuda::carry_params, mooncaf::cuda::carry_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_ROLLED
  for (unsigned m = block_x(); m < p.count; m += p.blocks) {
    const piece_move& move = p.moves[m];
    const unsigned words = move.piece_bytes / 16, all = words * move.count;
    const auto place = [&](unsigned word, std::size_t pitch) {
      return std::size_t{word / words} * pitch + std::size_t{word % words} * 16;
    };
    MOONCAF_ROLLED
    for (unsigned first = thread_index(); first < all; first += words_ahead * carry_threads) {
      words4 held[words_ahead];
      MOONCAF_UNROLL
      for (unsigned j = 0; j < words_ahead; ++j)
        if (first + j * carry_threads < all)
          held[j] = load16(move.from + place(first + j * carry_threads, move.from_pitch));
      MOONCAF_UNROLL
      for (unsigned j = 0; j < words_ahead; ++j)
        if (first + j * carry_threads < all)
          store16(move.to + place(first + j * carry_threads, move.to_pitch), held[j]);
    }
  }
}

/// grid: KV blocks.
MOONCAF_KERNEL(mooncaf_checksum, mooncaf::cuda::checksum_params, mooncaf::cuda::checksum_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(std::uint64_t, sums, 2 * tile_chunks * stripe_words);
  const auto hash = checksum_of(p, block_words{p.blocks[block_x()]}, sums);
  if (thread_index() == 0) p.out[block_x()] = hash;
}

namespace mooncaf::cuda {

/// Blocks to pages. @param words_of  of a block and its page, in the page's order.
template <class WordsOf>
MOONCAF_DEVICE void gather_blocks(const gather_params& p, std::uint64_t* sums, const WordsOf& words_of) {
  MOONCAF_ROLLED
  for (unsigned b = block_x(); b < p.count; b += p.shares) {
    const auto hash = checksum_of(p.sums, words_of(copied_words{p.sums.blocks[b], p.pages[b]}), sums);
    if (thread_index() == 0) p.sums.out[b] = hash;
    sync_block();
  }
}

}  // namespace mooncaf::cuda

// grid of these: as many blocks as may copy. A block takes whole KV blocks.

MOONCAF_KERNEL(mooncaf_gather, mooncaf::cuda::gather_params, mooncaf::cuda::checksum_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(std::uint64_t, sums, 2 * tile_chunks * stripe_words);
  gather_blocks(p, sums, [](const copied_words& words) { return words; });
}

/// Pages in pieces apart from each other.
MOONCAF_KERNEL(mooncaf_gather_pieces, mooncaf::cuda::gather_params, mooncaf::cuda::checksum_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(std::uint64_t, sums, 2 * tile_chunks * stripe_words);
  gather_blocks(p, sums, [&](const copied_words& words) { return words_in_pieces{words, p.words}; });
}

/// Pages that are laid out token by token.
MOONCAF_KERNEL(mooncaf_gather_tokens, mooncaf::cuda::gather_params, mooncaf::cuda::checksum_threads) {
  using namespace mooncaf::cuda;
  MOONCAF_SHARED(std::uint64_t, sums, 2 * tile_chunks * stripe_words);
  gather_blocks(p, sums, [&](const copied_words& words) { return words_by_token{words, p.words}; });
}
