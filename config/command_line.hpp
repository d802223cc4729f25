#pragma once
// Reads command lines: of the server, with the options of declarations.cpp, and of the other commands, which
// declare theirs as `argument`s. Reading, checking and help come from one declaration an option.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/base/words.hpp"

namespace mooncaf::cli {

/// One option. Without a placeholder it is a flag.
struct argument {
  std::string name;         ///< without "--"
  std::string placeholder;  ///< "N", "SECONDS", …
  std::string meaning;      ///< with its range and default
  /// Takes the value in. @returns a complaint about it, or nothing.
  std::function<std::optional<std::string>(std::string_view)> set;
  std::string allowed = {};  ///< said where its value is missing
  bool negatable = false;    ///< a flag that may be "--no-NAME" or "--NAME=false", too
};

/// `--help`, `--help=man`: a manual page; `--help=words`: what may follow, for a shell to complete.
enum class help_form : std::uint8_t { text, man, words };
/// The form that an argument asks for; nothing if it asks for none.
std::optional<help_form> help_asked(std::string_view arg);

/// A command, with its arguments.
struct command_line {
  std::string usage;  ///< "mooncaf simulate [options]"
  std::string summary;
  std::vector<argument> arguments;
  std::vector<std::string> words;          ///< filled by `parse`: arguments that are no options
  std::vector<std::string> commands = {};  ///< that may follow in place of arguments
  help_form form = help_form::text;        ///< filled by `parse`
};

enum class parsed : std::uint8_t { run, help };

/// `--name value` and `--name=value`; a value that begins with "--" only so. A flag's value is "true".
/// @error `ec::invalid_argument`: unknown names (with the nearest known one), missing and refused values.
result<parsed> parse(command_line& line, std::span<const std::string> args);
/// In the form that was asked for.
void print_help(const command_line& line, std::ostream& out);

// ---- kinds of option ----
argument flag(std::string name, std::string meaning, bool& at);
argument text(std::string name, std::string placeholder, std::string meaning, std::string& at);
argument whole(std::string name, std::string meaning, std::uint64_t& at, std::uint64_t min,
               std::uint64_t max);
argument whole(std::string name, std::string meaning, std::uint32_t& at, std::uint32_t min,
               std::uint32_t max);
/// @param max  infinity: then "inf" is a number, too.
argument real(std::string name, std::string meaning, double& at, double min, double max);
/// A time with its unit, kept in seconds.
argument seconds(std::string name, std::string meaning, double& at, double min, double max);
argument seconds(std::string name, std::string meaning, duration& at, duration min, duration max);
/// One of a few words; `take` gets the number of the one given.
argument choice(std::string name, std::string meaning, std::vector<std::string> words, std::size_t current,
                std::function<void(std::size_t)> take);

template <class Enum>
argument choice(std::string name, std::string meaning, std::vector<std::string> words, Enum& at) {
  return choice(std::move(name), std::move(meaning), std::move(words), static_cast<std::size_t>(at),
                [&at](std::size_t i) { at = static_cast<Enum>(i); });
}
/// One of an enumeration's values. @param among  all of them by default; `at` is one of them
template <worded Enum>
argument choice(std::string name, std::string meaning, Enum& at,
                std::vector<Enum> among = all_values<Enum>()) {
  std::vector<std::string> words;
  for (const auto value : among) words.emplace_back(to_string(value));
  const auto current = static_cast<std::size_t>(std::ranges::find(among, at) - among.begin());
  return choice(std::move(name), std::move(meaning), std::move(words), current,
                [&at, among = std::move(among)](std::size_t i) { at = among[i]; });
}

}  // namespace mooncaf::cli
