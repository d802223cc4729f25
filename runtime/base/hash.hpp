#pragma once
// Hashing: xxh3, 128 bits where two things must never be confused, 64 bits for checksums of payloads.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mooncaf {

/// A 128-bit hash value.
struct hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend constexpr auto operator<=>(const hash128&, const hash128&) noexcept = default;
  /// 32 lower-case hexadecimal digits, high word first.
  friend std::string to_string(const hash128& h) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text(32, '0');
    for (std::size_t i = 0; i < 16; ++i) {
      text[i] = digits[(h.high >> (60 - 4 * i)) & 15];
      text[16 + i] = digits[(h.low >> (60 - 4 * i)) & 15];
    }
    return text;
  }
};

/// The value that `to_string` writes so; nothing for other text.
inline std::optional<hash128> hash128_in(std::string_view text) noexcept {
  hash128 out;
  if (text.size() != 32) return std::nullopt;
  const auto* at = text.data();
  for (auto* word : {&out.high, &out.low}) {
    const auto [end, failed] = std::from_chars(at, at + 16, *word, 16);
    if (failed != std::errc{} || end != at + 16) return std::nullopt;
    at = end;
  }
  return out;
}

/// Chained hash of a KV block: equal keys mean equal prefix up to and including this block.
using block_key = hash128;

inline hash128 hash_bytes128(std::span<const std::byte> bytes, std::uint64_t seed = 0) noexcept {
  const auto h = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {h.high64, h.low64};
}
inline hash128 hash_text128(std::string_view text, std::uint64_t seed = 0) noexcept {
  return hash_bytes128(std::as_bytes(std::span{text.data(), text.size()}), seed);
}

/// Checksum that guards KV bytes in every tier and on every path.
inline std::uint64_t checksum64(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace mooncaf

template <>
struct std::hash<mooncaf::hash128> {
  // Keys are hashes already; the low word is as good as any.
  std::size_t operator()(const mooncaf::hash128& h) const noexcept { return static_cast<std::size_t>(h.low); }
};
