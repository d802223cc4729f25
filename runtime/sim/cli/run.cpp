#include <algorithm>
#include <array>

#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

std::span<const std::string_view> command_names() {
  static constexpr std::array<std::string_view, 6> names{"simulate",  "plan",   "trace",
                                                         "calibrate", "replay", "advise"};
  return names;
}

bool is_command(std::string_view word) {
  return std::ranges::find(command_names(), word) != command_names().end();
}

int run_command(std::span<const std::string> args, const console& io) {
  const auto rest = args.subspan(1);
  if (args.front() == "simulate") return simulate_command(rest, io);
  if (args.front() == "plan") return plan_command(rest, io);
  if (args.front() == "trace") return trace_command(rest, io);
  if (args.front() == "replay") return replay_command(rest, io);
  if (args.front() == "advise") return advise_command(rest, io);
  return calibrate_command(rest, io);
}

}  // namespace mooncaf::sim
