#pragma once
// Enumerations and the words that options, files and reports have for their values. Each enumeration has one
// table of them, beside its declaration, from which both directions come:
//
//   enum class colour { red, blue };
//   constexpr auto words_of(colour) { return words<colour, 2>{{{colour::red, "red"}, {colour::blue, "blue"}}}; }

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace mooncaf {

template <class E, std::size_t N>
using words = std::array<std::pair<E, std::string_view>, N>;

/// An enumeration that has such a table.
template <class E>
concept worded = std::is_enum_v<E> && requires(E e) {
  words_of(e);
};

template <worded E>
constexpr std::string_view to_string(E value) noexcept {
  for (const auto& [each, word] : words_of(value))
    if (each == value) return word;
  return "unknown";
}

/// The value that `word` stands for; nothing if there is none.
template <worded E>
constexpr std::optional<E> from_word(std::string_view word) noexcept {
  for (const auto& [value, each] : words_of(E{}))
    if (each == word) return value;
  return std::nullopt;
}

/// All values of an enumeration, as its table lists them.
template <worded E>
std::vector<E> all_values() {
  std::vector<E> all;
  for (const auto& [value, word] : words_of(E{})) all.push_back(value);
  return all;
}

}  // namespace mooncaf
