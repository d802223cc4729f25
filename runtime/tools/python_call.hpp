#pragma once
// A call as Python writes it: name(key=value, …).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncaf {

/// Finds where a call ends, character by character.
class python_scanner {
 public:
  enum class state : std::uint8_t { open, closed, broken };

  void begin() { *this = {}; }
  /// Takes one more byte. Behind `closed` (the bracket that ends the call) and `broken` nothing is taken.
  state take(char c);
  /// Bytes of the name, once its bracket has come.
  std::size_t name_size() const noexcept { return name_size_; }
  bool in_arguments() const noexcept { return depth_ > 0; }

 private:
  std::size_t name_size_ = 0;
  int depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
};

/// The arguments of a call as the text of a JSON object.
/// @param inside  the text between its brackets.
/// @returns nothing if they are not key=value with literals of Python.
std::optional<std::string> python_arguments(std::string_view inside);

}  // namespace mooncaf
