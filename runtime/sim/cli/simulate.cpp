#include <cmath>
#include <fstream>

#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/report.hpp"
#include "runtime/sim/simulation.hpp"
#include "runtime/sim/trace_stats.hpp"

namespace mooncaf::sim {

namespace {

struct simulate_request {
  simulation_request simulation;
  std::string trace, report;
  bool json = false;
};

command_line simulate_line(simulate_request& r) {
  command_line line;
  line.usage = "mooncaf simulate --trace FILE [options]";
  line.summary =
      "Plays a trace in Mooncake's format through the scheduler on a virtual clock, with modelled machines.";
  line.arguments.push_back(text("trace", "FILE", "the trace; - is standard input", r.trace));
  line.arguments.push_back(text("report", "FILE.html", "write a page with plots", r.report));
  line.arguments.push_back(flag("json", "print JSON instead of a table", r.json));
  for (auto& a : simulation_arguments(r.simulation)) line.arguments.push_back(std::move(a));
  return line;
}

/// A line that is written over itself.
std::function<void(std::uint64_t)> progress_bar(const console& io, std::uint64_t total) {
  if (!io.interactive) return {};
  return [&io, total](std::uint64_t done) {
    io.err << "\r  " << done << " requests";
    if (total > 0) {
      const auto filled = static_cast<std::size_t>(done * 40 / total);
      io.err << " [" << std::string(filled, '=') << std::string(40 - filled, ' ') << "]";
    }
    io.err << std::flush;
  };
}

result<outcome> run(const simulate_request& r, simulation_options& options, const console& io) {
  trace_options format;
  format.block_tokens = options.hardware.block_tokens;
  if (r.report.empty()) {
    auto source = open_trace(r.trace, format);
    if (!source) return fail(source.error());
    return simulation{options}.run(**source, progress_bar(io, 0));
  }
  // A report follows the replicas of hot blocks: which they are is known once the trace has been seen.
  auto records = load_trace(r.trace, format);
  if (!records) return fail(records.error());
  options.watch = hottest_blocks(*records, 8);
  return simulation{options}.run(*replay_of(*records), progress_bar(io, records->size()));
}

}  // namespace

int simulate_command(std::span<const std::string> args, const console& io) {
  simulate_request request;
  auto line = simulate_line(request);
  const invocation here{io, "simulate"};
  if (const auto status = here.begin(line, args)) return *status;
  if (request.trace.empty())
    return here.wrong({ec::invalid_argument, "--trace is missing; --help explains"}, 2);
  auto options = resolve(request.simulation);
  if (!options) return here.wrong(options.error(), 2);
  const auto out = run(request, *options, io);
  if (io.interactive) io.err << "\r" << std::string(70, ' ') << "\r";
  if (!out) return here.wrong(out.error(), 1);
  if (out->all().arrived == 0)
    return here.wrong({ec::invalid_argument, request.trace + " holds no request"}, 1);
  io.out << (request.json ? to_json(*options, *out) : to_table(*options, *out));
  if (request.report.empty()) return 0;
  std::ofstream page{request.report, std::ios::binary};
  page << to_html(*options, *out);
  page.close();
  if (!page) return here.wrong({ec::io_error, "cannot write " + request.report}, 1);
  if (!request.json) io.out << "\nplots: " << request.report << "\n";
  return 0;
}

}  // namespace mooncaf::sim
