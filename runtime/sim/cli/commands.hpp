#pragma once
// The offline commands of the program: everything that needs no cluster.

#include <ostream>
#include <span>
#include <string>
#include <string_view>

namespace mooncaf::sim {

/// Where a command writes, and whether a person watches.
struct console {
  std::ostream& out;         ///< results
  std::ostream& err;         ///< errors and progress
  bool interactive = false;  ///< a progress bar makes sense
};

/// Their names.
std::span<const std::string_view> command_names();
bool is_command(std::string_view word);
/// @param args  the command's name and its arguments. @returns the process's exit status: 0, 1 when it
/// failed, 2 when it was called wrongly.
int run_command(std::span<const std::string> args, const console& io);

// Each gets the arguments behind its name.
int simulate_command(std::span<const std::string> args, const console& io);
/// `simulate --compare`.
int compare_command(std::span<const std::string> args, const console& io);
int plan_command(std::span<const std::string> args, const console& io);
int trace_command(std::span<const std::string> args, const console& io);
/// `trace fit`, `trace from-journal`.
int trace_fit_command(std::span<const std::string> args, const console& io);
int trace_from_journal_command(std::span<const std::string> args, const console& io);
int calibrate_command(std::span<const std::string> args, const console& io);
int replay_command(std::span<const std::string> args, const console& io);
int advise_command(std::span<const std::string> args, const console& io);

}  // namespace mooncaf::sim
