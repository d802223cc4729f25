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
inline void accumulate(vec& acc, vec data, const xxh_u8* secret) {
  const vec keyed = exclusive_or(data, load(secret));
  acc = add64(add64(acc, swap_halves(data)), mul_low(keyed, shift_high(keyed)));
}
inline void accumulate(vec (&acc)[vecs], const char* in, const xxh_u8* secret) {
  for (std::size_t k = 0; k < vecs; ++k)
    accumulate(acc[k], load(in + k * sizeof(vec)), secret + k * sizeof(vec));
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

inline void load_all(vec (&acc)[vecs], const std::uint64_t (&words)[8]) {
  for (std::size_t k = 0; k < vecs; ++k)
    acc[k] = load(reinterpret_cast<const char*>(words) + k * sizeof(vec));
}

// Hashes the end of a long input, behind its whole blocks: the `n` bytes from `from` on.
[[gnu::always_inline]] inline std::uint64_t last_stripes(vec (&acc)[vecs], const char* from, std::size_t n, std::uint64_t total) {
  const std::size_t stripes = (n - 1) / line;
  for (std::size_t i = 0; i < stripes; ++i)
    accumulate(acc, from + i * line, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
  accumulate(acc, from + n - line,
             XXH3_kSecret + XXH_SECRET_DEFAULT_SIZE - XXH_STRIPE_LEN - XXH_SECRET_LASTACC_START);
  alignas(64) xxh_u64 words[8];
  for (std::size_t k = 0; k < vecs; ++k) store(reinterpret_cast<char*>(words) + k * sizeof(vec), acc[k]);
  return XXH3_mergeAccs(words, XXH3_kSecret + XXH_SECRET_MERGEACCS_START,
                        static_cast<xxh_u64>(total) * XXH_PRIME64_1);
}

// Each line is loaded once, so that the stored bytes are the hashed ones; the last line is hashed where it arrived.
std::uint64_t near_copy_checksum_impl(void* to_v, const void* from_v, std::size_t n) noexcept {
  auto* to = static_cast<char*>(to_v);
  const auto* from = static_cast<const char*>(from_v);
  const std::size_t blocks = n <= xxh_block ? 0 : (n - 1) / xxh_block;
  std::size_t at = 0;
  alignas(64) std::uint64_t words[8] = XXH3_INIT_ACC;
  vec acc[vecs];
  load_all(acc, words);
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t i = 0; i < xxh_block / line; ++i)
      for (std::size_t k = 0; k < vecs; ++k, at += sizeof(vec)) {
        const vec part = load(from + at);
        store(to + at, part);
        accumulate(acc[k], part, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE + k * sizeof(vec));
      }
    scramble(acc);
  }
  __builtin_memcpy(to + at, from + at, n - at);
  return blocks == 0 ? XXH3_64bits(to, n) : last_stripes(acc, to + at, n - at, n);
}

// Has a window of memory fetched, from four places at once: memory gives one core a third more that way than
// in one run. One line for each call.
class window_ahead {
 public:
  window_ahead(const char* from, std::size_t n) : from_(from), quarter_((n / 4 + line - 1) / line * line), n_(n) {}
  inline void fetch_line() {
    const std::size_t at = next_ % 4 * quarter_ + next_ / 4 * line;
    ++next_;
    if (at < n_) __builtin_prefetch(from_ + at);
  }
  void fetch_all() {
    for (std::size_t i = 0; i < quarter_ / line * 4; ++i) fetch_line();
  }

 private:
  const char* from_;
  std::size_t quarter_, n_, next_ = 0;
};

[[maybe_unused]] std::uint64_t checksum_impl(const void* from, std::size_t n) noexcept {
  return XXH3_64bits(from, n);
}

// While one window is hashed the next one comes.
std::uint64_t cold_checksum_impl(const void* from_v, std::size_t n) noexcept {
  constexpr std::size_t window = 32 * 1024;
  if (n < window) return XXH3_64bits(from_v, n);
  const auto* from = static_cast<const char*>(from_v);
  alignas(64) std::uint64_t words[8] = XXH3_INIT_ACC;
  vec acc[vecs];
  load_all(acc, words);
  const std::size_t hashed = (n - 1) / xxh_block * xxh_block;
  window_ahead{from, window}.fetch_all();
  for (std::size_t at = 0; at < hashed;) {
    const std::size_t end = hashed - at < window ? hashed : at + window;
    window_ahead next{from + end, n - end < window ? n - end : window};
    for (; at < end; at += xxh_block) {
      for (std::size_t i = 0; i < xxh_block / line; ++i) {
        next.fetch_line();
        accumulate(acc, from + at + i * line, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
      }
      scramble(acc);
    }
  }
  return last_stripes(acc, from + hashed, n - hashed, n);
}

// Hashes the source stripe by stripe and streams one line of it out per stripe, so that the arithmetic runs while
// the loads and stores wait for memory; no software prefetch, which measured slower. The target's lines start
// `head` bytes after the source's stripes, and `lines_end` is where the last of them ends. @returns bytes hashed.
// Always inlined: as a function it would keep `acc` in memory, which the bytes it writes could be.
template <bool aligned>
[[gnu::always_inline]] inline std::size_t fused_blocks(vec (&acc)[vecs], char* to, const char* from,
                                                       std::size_t blocks, std::size_t head,
                                                       std::size_t lines_end) noexcept {
  std::size_t at = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t i = 0; i < xxh_block / line; ++i, at += line) {
      accumulate(acc, from + at, XXH3_kSecret + i * XXH_SECRET_CONSUME_RATE);
      const std::size_t out = aligned ? at : at + head;
      if (aligned || out < lines_end) stream_line(to + out, from + out);
    }
    scramble(acc);
  }
  return at;
}

// Copies and hashes all of an input, or the rest of it behind `before` bytes that `words` have taken: 64 at least.
template <bool aligned>
std::uint64_t fused(std::uint64_t (&words)[8], std::uint64_t before, char* to, const char* from, std::size_t n,
                    std::size_t head) noexcept {
  const std::size_t lines_end = head + (n - head) / line * line;
  __builtin_memcpy(to, from, head);
  vec acc[vecs];
  load_all(acc, words);
  const std::size_t at = fused_blocks<aligned>(acc, to, from, (n - 1) / xxh_block, head, lines_end);
  for (std::size_t out = at + head; out < lines_end; out += line) stream_line(to + out, from + out);
  __builtin_memcpy(to + lines_end, from + lines_end, n - lines_end);
  return last_stripes(acc, from + at, n - at, before + n);
}

std::uint64_t fused_rest(std::uint64_t (&words)[8], std::uint64_t before, void* to_v, const void* from_v,
                         std::size_t n) noexcept {
  auto* to = static_cast<char*>(to_v);
  const auto* from = static_cast<const char*>(from_v);
  const std::size_t head = head_bytes(to, n);
  return head == 0 ? fused<true>(words, before, to, from, n, 0)
                   : fused<false>(words, before, to, from, n, head);
}

// Leaves a stripe at least to the last part, as xxh3 hashes the end of an input in another way.
std::size_t copy_part_impl(copy_in_parts& state, void* to_v, const void* from_v, std::size_t n) noexcept {
  const std::size_t blocks = n < line ? 0 : (n - line) / xxh_block;
  if (blocks == 0) return 0;
  constexpr xxh_u64 first[8] = XXH3_INIT_ACC;
  if (state.bytes == 0) __builtin_memcpy(state.sums, first, sizeof(first));
  auto* to = static_cast<char*>(to_v);
  const auto* from = static_cast<const char*>(from_v);
  const std::size_t taken = blocks * xxh_block;
  const std::size_t head = head_bytes(to, taken);
  const std::size_t lines_end = head + (taken - head) / line * line;
  __builtin_memcpy(to, from, head);
  vec acc[vecs];
  load_all(acc, state.sums);
  if (head == 0) fused_blocks<true>(acc, to, from, blocks, 0, lines_end);
  else fused_blocks<false>(acc, to, from, blocks, head, lines_end);
  __builtin_memcpy(to + lines_end, from + lines_end, taken - lines_end);
  for (std::size_t k = 0; k < vecs; ++k)
    store(reinterpret_cast<char*>(state.sums) + k * sizeof(vec), acc[k]);
  state.bytes += taken;
  return taken;
}

std::uint64_t copy_checksum_impl(void* to, const void* from, std::size_t n) noexcept {
  if (n <= xxh_block) {
    copy_impl(to, from, n);
    return XXH3_64bits(from, n);
  }
  alignas(64) std::uint64_t words[8] = XXH3_INIT_ACC;
  return fused_rest(words, 0, to, from, n);
}

std::uint64_t copy_last_impl(copy_in_parts& state, void* to, const void* from, std::size_t n) noexcept {
  return state.bytes == 0 ? copy_checksum_impl(to, from, n) : fused_rest(state.sums, state.bytes, to, from, n);
}

}  // namespace
