#pragma once
// The beginning of every command, and how it says that it failed.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "config/command_line.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

using namespace cli;  // its commands are made of arguments

/// One run of a command.
struct invocation {
  const console& io;
  const char* command;  ///< "simulate", "trace stats"

  /// Prints the error. @returns `status`: 1 it failed, 2 it was called wrongly.
  int wrong(const error& e, int status) const;
  /// Reads the command line, and answers --help. @param words  how many files it takes, besides options.
  /// @param more  it takes more of them, too. @returns the exit status if there is nothing to run.
  std::optional<int> begin(command_line& line, std::span<const std::string> args, std::size_t words = 0,
                           bool more = false) const;
  /// The same for a command whose one trace may be named by `--trace` or by itself.
  std::optional<int> begin_with_trace(command_line& line, std::span<const std::string> args,
                                      std::string& trace) const;

  /// A line that is written over itself, for people: none without a terminal. Takes the share that is done;
  /// below 0: not known.
  std::function<void(double)> progress_bar(std::string what) const;
  void clear_progress() const;
};

}  // namespace mooncaf::sim
