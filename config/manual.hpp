#pragma once
// Manual pages and the words for a shell's completion, from the declarations that `--help` is made of.

#include <ostream>
#include <string>
#include <string_view>

#include "config/command_line.hpp"

namespace mooncaf::cli {

/// A page of section 1 in the man macros, named by the command of the usage: mooncaf-trace-fit.
void print_manual(const command_line& line, std::ostream& out);

/// A line each: a command, or an option and, behind a tab, what it takes: a placeholder, or its values as a|b.
void print_words(const command_line& line, std::ostream& out);

/// The server's page. @param introduction  of its help: lines that are indented are kept as they are
std::string server_manual(std::string_view introduction);

}  // namespace mooncaf::cli
