#include "storage/float_packing.hpp"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>

namespace mooncaf::float_packing {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are taken as they lie in memory");

constexpr std::size_t chunk_numbers = 8192, group = 32;
constexpr std::size_t exponents = 7, chunk_head = exponents + 2;
constexpr std::uint16_t as_it_was = 0xFFFF;
constexpr std::uint8_t other = 7;  ///< code of an exponent that has none
/// Odd, so that a sample has numbers of every channel, wherever channels lie.
constexpr std::size_t sample_step = 17;

using book = std::array<std::uint8_t, exponents>;

// A number as its exponent and the rest: a byte, and bits that fill planes. Of a byte pair: `high` is the second one.

struct bf16 {
  static constexpr std::byte kind{1};
  static constexpr std::size_t planes = 0;
  static constexpr std::uint8_t exponent(std::uint16_t x) noexcept {
    return static_cast<std::uint8_t>(x >> 7);
  }
  static constexpr std::uint8_t rest(std::uint16_t x) noexcept {
    return static_cast<std::uint8_t>((x & 0x7F) | (x >> 8 & 0x80));
  }
  static constexpr std::uint32_t bit(std::uint16_t, std::size_t) noexcept { return 0; }
  static constexpr std::uint16_t number(std::uint8_t e, std::uint8_t rest, std::uint32_t) noexcept {
    return static_cast<std::uint16_t>((rest & 0x80) << 8 | e << 7 | (rest & 0x7F));
  }
};

struct f16 {
  static constexpr std::byte kind{2};
  static constexpr std::size_t planes = 3;  ///< mantissa's two highest bits, sign
  static constexpr std::uint8_t exponent(std::uint16_t x) noexcept {
    return static_cast<std::uint8_t>(x >> 10 & 31);
  }
  static constexpr std::uint8_t rest(std::uint16_t x) noexcept { return static_cast<std::uint8_t>(x); }
  static constexpr std::uint32_t bit(std::uint16_t x, std::size_t plane) noexcept {
    return x >> (plane == 2 ? 15 : 8 + plane) & 1u;
  }
  static constexpr std::uint16_t number(std::uint8_t e, std::uint8_t rest, std::uint32_t bits) noexcept {
    return static_cast<std::uint16_t>((bits & 4) << 13 | (e & 31) << 10 | (bits & 3) << 8 | rest);
  }
};

/// Bytes of a chunk before its other exponents.
template <class Float>
constexpr std::size_t fixed_bytes(std::size_t numbers) {
  return chunk_head + numbers + (Float::planes + 3) * numbers / 8;
}

std::uint16_t number_at(const std::byte* at) noexcept {
  std::uint16_t x;
  std::memcpy(&x, at, sizeof x);
  return x;
}

/// Of 32 numbers: the rest, and masks with number i's bit at i.
struct coded_group {
  std::array<std::uint32_t, 3> code{}, plane{};
  std::uint32_t others() const noexcept { return code[0] & code[1] & code[2]; }
};
using group_exponents = std::array<std::uint8_t, group>;

/// Where a chunk's parts lie, and what goes there group by group.
template <class Float, class Byte>
struct chunk_parts {
  Byte *rest, *planes, *codes, *others;
  std::size_t numbers, others_used = 0;

  chunk_parts(Byte* at, std::size_t n)
      : rest(at + chunk_head),
        planes(rest + n),
        codes(planes + Float::planes * n / 8),
        others(codes + 3 * n / 8),
        numbers(n) {}
  Byte* plane(std::size_t p, std::size_t i) const { return planes + (p * numbers + i) / 8; }
  Byte* code(std::size_t c, std::size_t i) const { return codes + (c * numbers + i) / 8; }

  /// @returns false: there would be more than `most` other exponents.
  bool put(std::size_t i, const coded_group& coded, const group_exponents& exponent, std::size_t most) {
    for (std::size_t p = 0; p < Float::planes; ++p) std::memcpy(plane(p, i), &coded.plane[p], group / 8);
    for (std::size_t c = 0; c < 3; ++c) std::memcpy(code(c, i), &coded.code[c], group / 8);
    auto rare = coded.others();
    if (others_used + static_cast<std::size_t>(std::popcount(rare)) > most) return false;
    for (; rare != 0; rare &= rare - 1)
      others[others_used++] = std::byte{exponent[static_cast<std::size_t>(std::countr_zero(rare))]};
    return true;
  }
  coded_group get(std::size_t i) const {
    coded_group coded;
    for (std::size_t p = 0; p < Float::planes; ++p) std::memcpy(&coded.plane[p], plane(p, i), group / 8);
    for (std::size_t c = 0; c < 3; ++c) std::memcpy(&coded.code[c], code(c, i), group / 8);
    return coded;
  }
  /// Puts in the exponents that have no code. @returns false: there are less than `most`.
  bool patch(const coded_group& coded, group_exponents& exponent, std::size_t most) {
    auto rare = coded.others();
    if (others_used + static_cast<std::size_t>(std::popcount(rare)) > most) return false;
    for (; rare != 0; rare &= rare - 1)
      exponent[static_cast<std::size_t>(std::countr_zero(rare))] =
          std::to_integer<std::uint8_t>(others[others_used++]);
    return true;
  }
};

// ---- lanes: how groups are coded, with the instructions of any processor or of a newer one. Each has its own loop, since a
// function can be inlined only into one of the same instructions.

template <class Float>
class plain_lane {
 public:
  explicit plain_lane(const book& b) : known_(b) {
    code_of_.fill(other);
    for (std::uint8_t i = 0; i < exponents; ++i) code_of_[b[i]] = i;
  }
  bool encode(const std::byte* from, chunk_parts<Float, std::byte>& to, std::size_t most) const {
    group_exponents e;
    for (std::size_t i = 0; i < to.numbers; i += group)
      if (!to.put(i, encode_group(from + 2 * i, to.rest + i, e), e, most)) return false;
    return true;
  }
  bool decode(chunk_parts<Float, const std::byte>& from, std::size_t most, std::byte* to) const {
    group_exponents e;
    for (std::size_t i = 0; i < from.numbers; i += group) {
      const auto coded = from.get(i);
      for (std::size_t k = 0; k < group; ++k) {
        const auto code = bits_of(coded.code, k);
        e[k] = code == other ? 0 : known_[code];
      }
      if (!from.patch(coded, e, most)) return false;
      for (std::size_t k = 0; k < group; ++k) {
        const auto rest = std::to_integer<std::uint8_t>(from.rest[i + k]);
        const auto x = Float::number(e[k], rest, bits_of(coded.plane, k));
        std::memcpy(to + 2 * (i + k), &x, sizeof x);
      }
    }
    return true;
  }

 private:
  static std::uint32_t bits_of(const std::array<std::uint32_t, 3>& masks, std::size_t i) {
    return (masks[0] >> i & 1) | (masks[1] >> i & 1) << 1 | (masks[2] >> i & 1) << 2;
  }
  coded_group encode_group(const std::byte* from, std::byte* rest, group_exponents& e) const {
    coded_group out;
    for (std::size_t i = 0; i < group; ++i) {
      const auto x = number_at(from + 2 * i);
      rest[i] = std::byte{Float::rest(x)};
      e[i] = Float::exponent(x);
      for (std::size_t b = 0; b < 3; ++b) {
        out.code[b] |= (code_of_[e[i]] >> b & 1u) << i;
        if (b < Float::planes) out.plane[b] |= Float::bit(x, b) << i;
      }
    }
    return out;
  }

  std::array<std::uint8_t, 256> code_of_;
  book known_;
};

#define MOONCAF_AVX2 __attribute__((target("avx2")))

MOONCAF_AVX2 inline __m256i load(const void* at) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}
MOONCAF_AVX2 inline void store(void* at, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(at), x); }
MOONCAF_AVX2 inline __m256i all(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
/// Bits of `x` that `mask` has.
MOONCAF_AVX2 inline __m256i of(__m256i x, int mask) { return _mm256_and_si256(x, all(mask)); }
MOONCAF_AVX2 inline __m256i either(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
MOONCAF_AVX2 inline __m256i either(__m256i a, __m256i b, __m256i c) { return either(either(a, b), c); }
MOONCAF_AVX2 inline std::uint32_t highest_bits(__m256i x) {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(x));
}
/// Packs pairs of bytes of two registers, each below 256.
MOONCAF_AVX2 inline __m256i narrow(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xD8);
}
/// A byte of ones for each bit that is set.
MOONCAF_AVX2 inline __m256i spread(std::uint32_t mask) {
  const auto which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const auto bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const auto bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(mask)), which);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

template <class Float>
class avx2_lane {
 public:
  explicit avx2_lane(const book& b) { std::ranges::copy(b, known_.begin()); }

  MOONCAF_AVX2 bool encode(const std::byte* from, chunk_parts<Float, std::byte>& to, std::size_t most) const {
    group_exponents e;
    for (std::size_t i = 0; i < to.numbers; i += group)
      if (!to.put(i, encode_group(from + 2 * i, to.rest + i, e), e, most)) return false;
    return true;
  }
  MOONCAF_AVX2 bool decode(chunk_parts<Float, const std::byte>& from, std::size_t most, std::byte* to) const {
    group_exponents e;
    const auto table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(known_.data())));
    for (std::size_t i = 0; i < from.numbers; i += group) {
      const auto coded = from.get(i);
      const auto code =
          either(of(spread(coded.code[0]), 1), of(spread(coded.code[1]), 2), of(spread(coded.code[2]), 4));
      store(e.data(), _mm256_shuffle_epi8(table, code));
      if (!from.patch(coded, e, most)) return false;
      decode_group(coded, load(e.data()), load(from.rest + i), to + 2 * i);
    }
    return true;
  }

 private:
  MOONCAF_AVX2 coded_group encode_group(const std::byte* from, std::byte* rest,
                                        group_exponents& exponent) const {
    const auto first = load(from), second = load(from + 32), byte = _mm256_set1_epi16(0xFF);
    const auto low = narrow(_mm256_and_si256(first, byte), _mm256_and_si256(second, byte));
    const auto high = narrow(_mm256_srli_epi16(first, 8), _mm256_srli_epi16(second, 8));
    coded_group out;
    __m256i e;
    if constexpr (Float::planes == 0) {
      e = either(_mm256_add_epi8(high, high), of(_mm256_srli_epi16(low, 7), 1));
      store(rest, either(of(low, 0x7F), of(high, 0x80)));
    } else {
      e = of(_mm256_srli_epi16(high, 2), 31);
      store(rest, low);
      out.plane = {highest_bits(_mm256_slli_epi16(high, 7)), highest_bits(_mm256_slli_epi16(high, 6)),
                   highest_bits(high)};
    }
    store(exponent.data(), e);
    const auto is = [&](std::size_t i)
                        MOONCAF_AVX2 { return highest_bits(_mm256_cmpeq_epi8(e, all(known_[i]))); };
    const auto e0 = is(0), e1 = is(1), e2 = is(2), e3 = is(3), e4 = is(4), e5 = is(5), e6 = is(6);
    const auto none = ~(e0 | e1 | e2 | e3 | e4 | e5 | e6);
    out.code = {e1 | e3 | e5 | none, e2 | e3 | e6 | none, e4 | e5 | e6 | none};
    return out;
  }
  MOONCAF_AVX2 static void decode_group(const coded_group& in, __m256i e, __m256i rest, std::byte* to) {
    __m256i low, high;
    if constexpr (Float::planes == 0) {
      high = either(of(rest, 0x80), of(_mm256_srli_epi16(e, 1), 0x7F));
      low = either(of(rest, 0x7F), of(_mm256_slli_epi16(e, 7), 0x80));
    } else {
      const auto bits =
          either(of(spread(in.plane[0]), 1), of(spread(in.plane[1]), 2), of(spread(in.plane[2]), 0x80));
      high = either(bits, of(_mm256_slli_epi16(e, 2), 0x7C));
      low = rest;
    }
    const auto a = _mm256_unpacklo_epi8(low, high), b = _mm256_unpackhi_epi8(low, high);
    store(to, _mm256_permute2x128_si256(a, b, 0x20));
    store(to + 32, _mm256_permute2x128_si256(a, b, 0x31));
  }

  std::array<std::uint8_t, 16> known_{};  // at its code; a code that has none has 0
};

// ---- chunks ----

/// How often each exponent is among some of the numbers.
template <class Float>
std::array<std::uint32_t, 256> survey(std::span<const std::byte> from, std::size_t step) {
  std::array<std::uint32_t, 256> count{};
  for (std::size_t at = 0; at + 2 <= from.size(); at += 2 * step)
    ++count[Float::exponent(number_at(&from[at]))];
  return count;
}

/// Where fewer occur, others that differ from them follow.
book most_frequent(const std::array<std::uint32_t, 256>& count) {
  std::array<std::uint8_t, 256> seen;
  std::size_t n = 0;
  for (std::size_t e = 0; e < count.size(); ++e)
    if (count[e] > 0) seen[n++] = static_cast<std::uint8_t>(e);
  for (std::size_t e = 0; n < exponents; ++e)
    if (count[e] == 0) seen[n++] = static_cast<std::uint8_t>(e);
  std::ranges::partial_sort(seen.begin(), seen.begin() + exponents, seen.begin() + n, std::greater{},
                            [&](std::uint8_t e) { return count[e]; });
  book out;
  std::ranges::copy_n(seen.begin(), exponents, out.begin());
  return out;
}

std::size_t write_as_it_was(std::span<const std::byte> from, std::byte* to) {
  std::memset(to, 0, exponents);
  std::memcpy(to + exponents, &as_it_was, sizeof as_it_was);
  std::memcpy(to + chunk_head, from.data(), from.size());
  return chunk_head + from.size();
}

/// @returns the chunk's length.
template <class Float, template <class> class Lane>
std::size_t pack_chunk(std::span<const std::byte> from, std::byte* to) {
  const auto numbers = from.size() / 2;
  const auto known = most_frequent(survey<Float>(from, sample_step));
  chunk_parts<Float, std::byte> parts{to, numbers};
  const auto most = from.size() - (fixed_bytes<Float>(numbers) - chunk_head);
  if (!Lane<Float>{known}.encode(from.data(), parts, most)) return write_as_it_was(from, to);
  const auto count = static_cast<std::uint16_t>(parts.others_used);
  std::memcpy(to, known.data(), exponents);
  std::memcpy(to + exponents, &count, sizeof count);
  return fixed_bytes<Float>(numbers) + parts.others_used;
}

/// @returns how much of `from` the chunk took; 0: it is none.
template <class Float, template <class> class Lane>
std::size_t unpack_chunk(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() < chunk_head) return 0;
  const auto numbers = to.size() / 2;
  const std::size_t others = number_at(&from[exponents]);
  if (others == as_it_was) {
    if (from.size() - chunk_head < to.size()) return 0;
    std::memcpy(to.data(), from.data() + chunk_head, to.size());
    return chunk_head + to.size();
  }
  const auto length = fixed_bytes<Float>(numbers) + others;
  if (from.size() < length) return 0;
  book known;
  std::memcpy(known.data(), from.data(), exponents);
  chunk_parts<Float, const std::byte> parts{from.data(), numbers};
  const bool whole = Lane<Float>{known}.decode(parts, others, to.data()) && parts.others_used == others;
  return whole ? length : 0;
}

// ---- the whole ----

/// Bytes of numbers in whole groups, of so many.
constexpr std::size_t in_groups(std::size_t bytes) { return bytes / (2 * group) * (2 * group); }

template <class Float, template <class> class Lane>
std::size_t pack_as(std::span<const std::byte> from, std::size_t lead, std::byte* const to) {
  auto* at = to;
  *at++ = Float::kind;
  *at++ = static_cast<std::byte>(lead);
  at = std::ranges::copy(from.first(lead), at).out;
  from = from.subspan(lead);
  for (auto left = in_groups(from.size()); left > 0;) {
    const auto n = std::min(left, 2 * chunk_numbers);
    at += pack_chunk<Float, Lane>(from.first(n), at);
    from = from.subspan(n);
    left -= n;
  }
  return static_cast<std::size_t>(std::ranges::copy(from, at).out - to);
}

template <class Float, template <class> class Lane>
bool unpack_as(std::span<const std::byte> from, std::size_t lead, std::span<std::byte> to) {
  std::ranges::copy(from.first(lead), to.begin());
  from = from.subspan(lead), to = to.subspan(lead);
  for (auto left = in_groups(to.size()); left > 0;) {
    const auto n = std::min(left, 2 * chunk_numbers);
    const auto took = unpack_chunk<Float, Lane>(from, to.first(n));
    if (took == 0) return false;
    from = from.subspan(took), to = to.subspan(n);
    left -= n;
  }
  if (from.size() != to.size()) return false;
  std::ranges::copy(from, to.begin());
  return true;
}

/// Bits that a number of this kind would take, by some of them.
template <class Float>
double guess(std::span<const std::byte> from) {
  constexpr std::size_t samples = 512;
  const auto count = survey<Float>(from, std::max<std::size_t>(from.size() / 2 / samples, 1) | 1);
  const auto known = most_frequent(count);
  double sum = 0, named = 0;
  for (const auto n : count) sum += n;
  for (const auto e : known) named += count[e];
  return 8.0 + Float::planes + 3 + 8 * (1 - named / std::max(sum, 1.0));
}

template <template <class> class Lane>
std::size_t pack_with(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() < 64 * group) return 0;
  constexpr double pays = 15.0;  // of 16 bits
  double best = pays;
  std::size_t lead = 0;
  bool is_f16 = false;
  for (const std::size_t skip : {0, 1}) {
    const auto as_bf16 = guess<bf16>(from.subspan(skip)), as_f16 = guess<f16>(from.subspan(skip));
    if (std::min(as_bf16, as_f16) >= best) continue;
    best = std::min(as_bf16, as_f16);
    lead = skip;
    is_f16 = as_f16 < as_bf16;
  }
  if (best == pays) return 0;
  const auto packed =
      is_f16 ? pack_as<f16, Lane>(from, lead, to.data()) : pack_as<bf16, Lane>(from, lead, to.data());
  return packed <= from.size() - from.size() / 16 ? packed : 0;
}

template <template <class> class Lane>
bool unpack_with(std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() < 2) return false;
  const auto kind = from[0];
  const auto lead = std::to_integer<std::size_t>(from[1]);
  from = from.subspan(2);
  if (lead > 1 || from.size() < lead || to.size() < lead) return false;
  if (kind == bf16::kind) return unpack_as<bf16, Lane>(from, lead, to);
  return kind == f16::kind && unpack_as<f16, Lane>(from, lead, to);
}

}  // namespace

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

std::size_t bound(std::size_t bytes) { return bytes + 3 + (bytes / (2 * chunk_numbers) + 1) * chunk_head; }

std::size_t pack(std::span<const std::byte> from, std::span<std::byte> to, bool fast) {
  return fast ? pack_with<avx2_lane>(from, to) : pack_with<plain_lane>(from, to);
}

bool unpack(std::span<const std::byte> from, std::span<std::byte> to, bool fast) {
  return fast ? unpack_with<avx2_lane>(from, to) : unpack_with<plain_lane>(from, to);
}

}  // namespace mooncaf::float_packing
