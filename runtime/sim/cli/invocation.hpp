#pragma once
// What every command begins with, and how it says that it failed.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/result.hpp"
#include "runtime/sim/cli/arguments.hpp"
#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

/// One run of a command.
struct invocation {
  const console& io;
  const char* command;  ///< "simulate", "trace stats"

  /// Says what is wrong. @returns `status`: 1 it failed, 2 it was called wrongly.
  int wrong(const error& e, int status) const;
  /// Reads the command line, and answers --help. @param words  how many trace files it takes, besides
  /// options.
  /// @returns the exit status if there is nothing to run.
  std::optional<int> begin(command_line& line, std::span<const std::string> args,
                           std::size_t words = 0) const;
};

}  // namespace mooncaf::sim
