#pragma once
// One call as a JSON object, character by character.

#include <cstdint>
#include <string>
#include <string_view>

namespace mooncaf {

/// Finds the name and the arguments of {"name": "f", "arguments": {…}} ("parameters" does as well), in any
/// order, and gives the arguments out as they come.
class call_scanner {
 public:
  enum class state : std::uint8_t {
    open,    ///< goes on
    closed,  ///< the object has ended
    broken   ///< not JSON, or without a name
  };

  /// Begins anew. @param name  of a call if its arguments alone are to come; empty: both are.
  void begin(std::string name);
  /// Takes one more byte. Behind `closed` and `broken` nothing is taken.
  state take(char c);

  /// True once the name is known and the arguments have begun, or the object has ended.
  bool known() const noexcept { return known_; }
  const std::string& name() const noexcept { return name_; }
  /// The arguments since the last time.
  std::string take_arguments();
  /// Every byte so far.
  const std::string& raw() const noexcept { return raw_; }

 private:
  enum class step : std::uint8_t { object, key, in_key, colon, value, in_string, nested, scalar, next, over };
  enum class member : std::uint8_t { other, name, arguments };

  state advance(char c);
  state begin_value(char c);
  state in_value(char c);
  state end_value();
  state close();

  step step_ = step::object;
  member member_ = member::other;
  bool only_arguments_ = false;
  bool has_name_ = false, has_arguments_ = false, known_ = false, quoted_ = false, escaped_ = false;
  int depth_ = 0;
  std::string key_, value_, name_, arguments_, raw_;
};

}  // namespace mooncaf
