#pragma once
// GPT-2's way to write any byte as a printable character: vocabulary files hold byte-level tokens in it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncaf::byte_alphabet {

/// The code point that stands for `byte`: itself where that prints, else 256 + its rank among the bytes that
/// do not.
char32_t letter(std::uint8_t byte) noexcept;
/// The letter in UTF-8.
std::string text(std::uint8_t byte);
/// The bytes that `written` stands for; nothing if it holds a character outside the alphabet or is
/// ill-formed.
std::optional<std::string> bytes(std::string_view written);

}  // namespace mooncaf::byte_alphabet
