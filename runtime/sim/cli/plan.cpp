#include <cstdio>

#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/planner.hpp"

namespace mooncaf::sim {

namespace {

std::string line_of(const plan_point& p, const plan_point& best) {
  char line[160];
  const auto bar = static_cast<std::size_t>(best.margin > 0 ? p.margin / best.margin * 40 : 0);
  std::snprintf(line, sizeof line, "  %4u + %-4u %-16s %12llu %8.2f x  ", p.prefill, p.decode,
                std::string{to_string(p.policy)}.c_str(), static_cast<unsigned long long>(p.dram_tokens),
                p.margin);
  return line + std::string(std::min<std::size_t>(bar, 60), '#') + "\n";
}

void print(const plan_request& request, const plan_result& found, const console& io) {
  const auto& b = found.best;
  char head[400];
  std::snprintf(
      head, sizeof head,
      "best of %u nodes     %u prefill + %u decode, %s\n"
      "margin               %.2f: %.1f %% of requests end inside both SLOs up to %.2f times this traffic\n\n"
      "  nodes P + D policy           cache tokens    carries\n",
      request.nodes, b.prefill, b.decode, std::string{to_string(b.policy)}.c_str(), b.margin,
      100 * request.target, b.margin);
  io.out << head;
  for (const auto* list : {&found.ratios, &found.policies, &found.caches}) {
    for (const auto& p : *list) io.out << line_of(p, b);
    io.out << "\n";
  }
  if (b.margin < 1)
    io.out << "No configuration of " << request.nodes << " nodes carries this traffic inside the SLOs.\n";
}

}  // namespace

int plan_command(std::span<const std::string> args, const console& io) {
  simulation_request cluster;
  plan_request request;
  trace_format format;
  std::string trace;
  command_line line;
  line.usage = "mooncaf plan FILE --nodes N [options]";
  line.summary =
      "Searches the ratio of prefill to decode nodes, the policy and the cache size that carry the most "
      "traffic inside "
      "the SLOs.";
  line.arguments = {
      text("trace", "FILE", "the trace, if it is not named by itself; - is standard input", trace),
      trace_blocks(format.trace_block_tokens), whole("nodes", "nodes to share out", request.nodes, 2, 512),
      real("target", "share of requests that must end inside both SLOs", request.target, 0.01, 1)};
  for (auto& a : simulation_arguments(cluster)) {
    if (a.name != "prefill" && a.name != "decode" && a.name != "speed")
      line.arguments.push_back(std::move(a));
  }
  const invocation here{io, "plan"};
  if (const auto status = here.begin_with_trace(line, args, trace)) return *status;
  const auto options = resolve(cluster);
  if (!options) return here.wrong(options.error(), 2);
  request.base = *options;
  format.block_tokens = options->hardware.block_tokens;
  const auto records = load_trace(trace, format);
  if (!records) return here.wrong(records.error(), 1);
  if (records->empty()) return here.wrong({ec::invalid_argument, "the trace is empty"}, 1);
  const auto found = plan(request, *records, [&](const std::string& what) {
    if (io.interactive) io.err << "\r  " << what << "          " << std::flush;
  });
  if (io.interactive) io.err << "\r" << std::string(90, ' ') << "\r";
  print(request, found, io);
  return found.best.margin >= 1 ? 0 : 1;
}

}  // namespace mooncaf::sim
