// Body of the copy kernels, included once per instruction set by a source that defines `vec` and its operations in
// an unnamed namespace before it. Constants and the rare steps of xxh3 come from <xxhash.h>; tests hold the result
// against XXH3_64bits.

namespace {

constexpr std::size_t line = 64;         // a cache line and a stripe of xxh3
constexpr std::size_t xxh_block = 1024;  // 16 stripes, what the default secret of 192 bytes makes
constexpr std::size_t vecs = line / sizeof(vec);

inline std::size_t head_bytes(const void* to, std::size_t n) {
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  return head < n ? head : n;
}

inline void stream_line(char* to, const char* from) {
  vec part[vecs];
  for (std::size_t k = 0; k < vecs; ++k) part[k] = load(from + k * sizeof(vec));
  for (std::size_t k = 0; k < vecs; ++k) stream(to + k * sizeof(vec), part[k]);
}

// One stripe of xxh3: acc += swap(data) + low(data ^ secret) * high(data ^ secret).
inline void accumulate(vec (&acc)[vecs], const char* in, const xxh_u8* secret) {
  for (std::size_t k = 0; k < vecs; ++k) {
    const vec data = load(in + k * sizeof(vec));
    const vec keyed = exclusive_or(data, load(secret + k * sizeof(vec)));
    acc[k] = add64(add64(acc[k], swap_halves(data)), mul_low(keyed, shift_high(keyed)));
  }
}

inline void scramble(vec (&acc)[vecs]) {
  alignas(64) xxh_u64 words[8];
  for (std::size_t k = 0; k < vecs; ++k) store(reinterpret_cast<char*>(words) + k * sizeof(vec), acc[k]);
  XXH3_scrambleAcc(words, XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - XXH_STRIPE_LEN);
  for (std::size_t k = 0; k < vecs; ++k) acc[k] = load(reinterpret_cast<char*>(words) + k * sizeof(vec));
}

void copy_impl(void* to_v, const void* from_v, std::size_t n) noexcept {
  auto* to = static_cast<char*>(to_v);
  const auto* from = static_cast<const char*>(from_v);
  const std::size_t head = head_bytes(to, n);
  const std::size_t lines_end = head + (n - head) / line * line;
  __builtin_memcpy(to, from, head);
  for (std::size_t at = head; at < lines_end; at += line) stream_line(to + at, from + at);
  __builtin_memcpy(to + lines_end, from + lines_end, n - lines_end);
}

std::uint64_t checksum_impl(const void* from, std::size_t n) noexcept { return XXH3_64bits(from, n); }

// Hashes the source stripe by stripe and streams one line of it out per stripe, so that the arithmetic runs while
// the loads and stores wait for memory; no software prefetch, which measured slower. The target's lines start
// `head` bytes after the source's stripes.
template <bool aligned>
std::uint64_t fused(char* to, const char* from, std::size_t n, std::size_t head) noexcept {
  const std::size_t lines_end = head + (n - head) / line * line;
  __builtin_memcpy(to, from, head);
  alignas(64) xxh_u64 words[8] = XXH3_INIT_ACC;
  vec acc[vecs];
  for (std::size_t k = 0; k < vecs; ++k) acc[k] = load(reinterpret_cast<char*>(words) + k * sizeof(vec));

  const std::size_t blocks = (n - 1) / xxh_block;
  std::size_t at = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t i = 0; i < xxh_block / line; ++i, at += line) {
      accumulate(acc, from + at, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
      const std::size_t out = aligned ? at : at + head;
      if (aligned || out < lines_end) stream_line(to + out, from + out);
    }
    scramble(acc);
  }
  const std::size_t stripes = (n - 1 - at) / line;
  for (std::size_t i = 0; i < stripes; ++i)
    accumulate(acc, from + at + i * line, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
  accumulate(acc, from + n - line,
             XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - XXH_STRIPE_LEN - XXH_SECRET_LASTACC_START);
  for (std::size_t out = at + head; out < lines_end; out += line) stream_line(to + out, from + out);
  __builtin_memcpy(to + lines_end, from + lines_end, n - lines_end);
  for (std::size_t k = 0; k < vecs; ++k) store(reinterpret_cast<char*>(words) + k * sizeof(vec), acc[k]);
  return XXH3_mergeAccs(words, XXH3_kSecret + XXH_SECRET_MERGEACCS_START,
                        static_cast<xxh_u64>(n) * XXH_PRIME64_1);
}

std::uint64_t copy_checksum_impl(void* to, const void* from, std::size_t n) noexcept {
  if (n <= xxh_block) {
    copy_impl(to, from, n);
    return XXH3_64bits(from, n);
  }
  const std::size_t head = head_bytes(to, n);
  return head == 0 ? fused<true>(static_cast<char*>(to), static_cast<const char*>(from), n, 0)
                   : fused<false>(static_cast<char*>(to), static_cast<const char*>(from), n, head);
}

}  // namespace
