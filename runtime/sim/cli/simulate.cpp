#include <cmath>
#include <fstream>
#include <memory>

#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/server_config.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/report.hpp"
#include "runtime/sim/session_workload.hpp"
#include "runtime/sim/simulation.hpp"
#include "runtime/sim/trace_stats.hpp"

namespace mooncaf::sim {

namespace {

struct simulate_request {
  simulation_request simulation;
  std::string trace, report, config, journal;
  std::uint32_t trace_block_tokens = 0;
  bool json = false;
};

command_line simulate_line(simulate_request& r) {
  command_line line;
  line.usage = "mooncaf simulate FILE [options]\n       mooncaf simulate --compare A.json B.json [...]";
  line.summary =
      "Plays a trace in Mooncake's format through the scheduler on a virtual clock, with modelled machines. "
      "Of a\n"
      "workload's description (FILE.toml) conversations wait for their answers.\n"
      "--compare puts runs that --json wrote side by side; its own --help explains.";
  line.arguments.push_back(
      text("trace", "FILE", "the trace, if it is not named by itself; - is standard input", r.trace));
  line.arguments.push_back(config_argument(r.config));
  line.arguments.push_back(trace_blocks(r.trace_block_tokens));
  line.arguments.push_back(text("report", "FILE.html", "write a page with plots", r.report));
  line.arguments.push_back(text(
      "journal", "FILE",
      "write what the conductor is told and decides, for mooncaf replay, as a server's --journal does; what "
      "workers decide goes to FILE.workers",
      r.journal));
  line.arguments.push_back(flag("json", "print JSON instead of a table", r.json));
  for (auto& a : simulation_arguments(r.simulation)) line.arguments.push_back(std::move(a));
  for (auto& a : elastic_arguments(r.simulation)) line.arguments.push_back(std::move(a));
  return line;
}

result<journal::sink> written_to(const std::string& path) {
  const auto file = std::make_shared<std::ofstream>(path, std::ios::binary);
  if (!*file) return fail(ec::io_error, "--journal: cannot write " + path);
  return journal::sink{[file](std::string_view bytes, bool) {
    file->write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return *file ? journal::written::whole : journal::written::failed;
  }};
}

result<void> keep_journals(const std::string& file, simulation_options& options) {
  if (file.empty()) return {};
  auto conductor = written_to(file), workers = written_to(file + ".workers");
  if (!conductor) return fail(conductor.error());
  if (!workers) return fail(workers.error());
  options.journal = std::move(*conductor);
  options.worker_journal = std::move(*workers);
  return {};
}

result<outcome> run(const simulate_request& r, simulation_options& options, const invocation& here) {
  const trace_format format{r.trace_block_tokens, options.hardware.block_tokens};
  const auto bar = here.progress_bar("simulating");
  const auto play = [&](trace_source& source) {
    return simulation{options}.run(source, [&](std::uint64_t) {
      if (bar) bar(source.share_given());
    });
  };
  if (r.trace.ends_with(".toml")) {
    const auto described = load_workload(r.trace);
    if (!described) return fail(described.error());
    return play(*play_sessions(*described, {options.hardware.block_tokens, options.speed, options.seed, 0}));
  }
  if (r.report.empty()) {
    auto source = open_trace(r.trace, format);
    if (!source) return fail(source.error());
    return play(**source);
  }
  // A report follows the replicas of hot blocks: which they are is known once the trace has been seen.
  auto records = load_trace(r.trace, format);
  if (!records) return fail(records.error());
  options.watch = hottest_blocks(*records, 8);
  return play(*replay_of(*records));
}

}  // namespace

int simulate_command(std::span<const std::string> args, const console& io) {
  if (!args.empty() && args.front() == "--compare") return compare_command(args.subspan(1), io);
  simulate_request request;
  const invocation here{io, "simulate"};
  if (const auto read = begin_with_config(args, request.simulation); !read)
    return here.wrong(read.error(), 2);
  auto line = simulate_line(request);
  if (const auto status = here.begin_with_trace(line, args, request.trace)) return *status;
  auto options = resolve(request.simulation);
  if (!options) return here.wrong(options.error(), 2);
  if (const auto kept = keep_journals(request.journal, *options); !kept) return here.wrong(kept.error(), 1);
  const auto out = run(request, *options, here);
  here.clear_progress();
  if (!out) return here.wrong(out.error(), 1);
  if (out->all().arrived == 0)
    return here.wrong({ec::invalid_argument, request.trace + " holds no request"}, 1);
  io.out << (request.json ? to_json(*options, *out) : describe(*options) + "\n\n" + to_table(*options, *out));
  if (request.report.empty()) return 0;
  std::ofstream page{request.report, std::ios::binary};
  page << to_html(*options, *out);
  page.close();
  if (!page) return here.wrong({ec::io_error, "cannot write " + request.report}, 1);
  if (!request.json) io.out << "\nplots: " << request.report << "\n";
  return 0;
}

}  // namespace mooncaf::sim
