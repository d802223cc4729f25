#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::sim {

bool is_command(std::string_view word) {
  return word == "simulate" || word == "plan" || word == "trace" || word == "calibrate" || word == "replay";
}

int run_command(std::span<const std::string> args, const console& io) {
  const auto rest = args.subspan(1);
  if (args.front() == "simulate") return simulate_command(rest, io);
  if (args.front() == "plan") return plan_command(rest, io);
  if (args.front() == "trace") return trace_command(rest, io);
  if (args.front() == "replay") return replay_command(rest, io);
  return calibrate_command(rest, io);
}

}  // namespace mooncaf::sim
