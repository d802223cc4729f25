#include "runtime/text/byte_alphabet.hpp"

#include "runtime/base/utf8.hpp"

namespace mooncaf::byte_alphabet {

namespace {

constexpr bool prints(unsigned byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct tables {
  std::array<char32_t, 256> letters{};
  std::array<std::int16_t, 512> bytes{};
};

constexpr tables make_tables() noexcept {
  tables t;
  for (auto& b : t.bytes) b = -1;
  char32_t spare = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    t.letters[byte] = prints(byte) ? static_cast<char32_t>(byte) : spare++;
    t.bytes[t.letters[byte]] = static_cast<std::int16_t>(byte);
  }
  return t;
}

constexpr tables alphabet = make_tables();

}  // namespace

char32_t letter(std::uint8_t byte) noexcept { return alphabet.letters[byte]; }

std::string text(std::uint8_t byte) {
  std::string out;
  utf8::append(out, letter(byte));
  return out;
}

std::optional<std::string> bytes(std::string_view written) {
  if (!utf8::is_well_formed(written)) return std::nullopt;
  std::string out;
  out.reserve(written.size());
  for (std::size_t pos = 0; pos < written.size();) {
    const char32_t c = utf8::next(written, pos);
    if (c >= alphabet.bytes.size() || alphabet.bytes[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(alphabet.bytes[c]));
  }
  return out;
}

}  // namespace mooncaf::byte_alphabet
