#include "runtime/sim/cli/invocation.hpp"

#include <ostream>

namespace mooncaf::sim {

int invocation::wrong(const error& e, int status) const {
  io.err << "mooncaf " << command << ": " << e.detail << "\n";
  return status;
}

std::optional<int> invocation::begin(command_line& line, std::span<const std::string> args,
                                     std::size_t words) const {
  const auto read = parse(line, args);
  if (!read) return wrong(read.error(), 2);
  if (*read == parsed::help) {
    print_help(line, io.out);
    return 0;
  }
  if (line.words.size() == words) return std::nullopt;
  if (words == 0) return wrong({ec::invalid_argument, "unexpected '" + line.words.front() + "'"}, 2);
  return wrong({ec::invalid_argument, "one trace file expected (- is standard input)"}, 2);
}

}  // namespace mooncaf::sim
