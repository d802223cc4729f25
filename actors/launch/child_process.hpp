#pragma once
// Runs a command and waits for its end.

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf::launch {

struct command_outcome {
  int status = 0;  ///< 128 + N after signal N
  std::string out, err;
};

/// @param input  for the command's standard input: the place for secrets, which arguments are not.
/// @param shows  its output goes to this process's own, and none of it comes back.
/// @param hear  is told each line of its standard error when it comes, and says whether to go on: else the command is ended.
/// @error `ec::io_error` if it cannot be started.
result<command_outcome> run_command(const std::vector<std::string>& command, const std::string& input,
                                    bool shows = false,
                                    const std::function<bool(const std::string&)>& hear = {});

/// `word` as a POSIX shell reads it back: ssh hands the remote command to one.
std::string shell_quoted(const std::string& word);

/// The last line with something in it of what a command said, or a log.
std::string last_line(std::string text);

/// The program that runs here.
std::string own_program();

}  // namespace mooncaf::launch
