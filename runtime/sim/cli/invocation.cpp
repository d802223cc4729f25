#include "runtime/sim/cli/invocation.hpp"

#include <algorithm>
#include <ostream>

namespace mooncaf::sim {

int invocation::wrong(const error& e, int status) const {
  io.err << "mooncaf " << command << ": " << e.detail << "\n";
  return status;
}

std::optional<int> invocation::begin(command_line& line, std::span<const std::string> args, std::size_t words,
                                     bool more) const {
  const auto read = parse(line, args);
  if (!read) return wrong(read.error(), 2);
  if (*read == parsed::help) {
    print_help(line, io.out);
    return 0;
  }
  if (line.words.size() == words || (more && line.words.size() > words)) return std::nullopt;
  if (words == 0) return wrong({ec::invalid_argument, "unexpected '" + line.words.front() + "'"}, 2);
  return wrong({ec::invalid_argument, more ? "a file, or several, expected; --help explains"
                                           : "one trace file expected (- is standard input)"},
               2);
}

std::optional<int> invocation::begin_with_trace(command_line& line, std::span<const std::string> args,
                                                std::string& trace) const {
  const auto read = parse(line, args);
  if (!read) return wrong(read.error(), 2);
  if (*read == parsed::help) {
    print_help(line, io.out);
    return 0;
  }
  if (line.words.size() + (trace.empty() ? 0 : 1) > 1) {
    return wrong({ec::invalid_argument, "one trace expected, '" + line.words.back() + "' is one more"}, 2);
  }
  if (!line.words.empty()) trace = line.words.front();
  if (trace.empty()) return wrong({ec::invalid_argument, "--trace is missing; --help explains"}, 2);
  return std::nullopt;
}

std::function<void(double)> invocation::progress_bar(std::string what) const {
  if (!io.interactive) return {};
  return [this, what = std::move(what)](double share) {
    constexpr std::size_t width = 40;
    io.err << "\r  " << what;
    if (share >= 0) {
      const auto filled = static_cast<std::size_t>(std::min(share, 1.0) * width);
      io.err << " [" << std::string(filled, '=') << std::string(width - filled, ' ') << "] "
             << static_cast<int>(share * 100) << " %";
    }
    io.err << std::flush;
  };
}

void invocation::clear_progress() const {
  if (io.interactive) io.err << "\r" << std::string(100, ' ') << "\r" << std::flush;
}

}  // namespace mooncaf::sim
