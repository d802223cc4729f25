#include <ostream>

#include "config/command_line.hpp"
#include "runtime/sched/journal/requests.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/session_workload.hpp"
#include "runtime/sim/workload_generator.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

int trace_fit_command(std::span<const std::string> args, const console& io) {
  trace_format format;
  double token_s = 0.05;
  command_line line{
      "mooncaf trace fit FILE",
      "Describes a trace as conversations, in TOML: what simulate and plan take instead of a trace, and\n"
      "trace generate with --workload.",
      {trace_blocks(format.trace_block_tokens),
       seconds("token-time", "that answers are taken to have needed for a token; a trace does not say",
               token_s, 0, 10)},
      {}};
  const invocation here{io, "trace fit"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto& name = line.words.front();
  auto source = open_trace(name, format);
  if (!source) return here.wrong(source.error(), 1);
  std::vector<workload_record> records;
  for (workload_record r;;) {
    const auto more = (*source)->next(r);
    if (!more) return here.wrong(more.error(), 1);
    if (!*more) break;
    records.push_back(r);
  }
  if (records.empty()) return here.wrong({ec::invalid_argument, name + " holds no request"}, 1);
  const auto fit = fit_workload(records, (*source)->block_tokens(), token_s);
  io.out << "# Fitted to " << name << ": " << fit.conversations << " conversations of " << records.size()
         << " requests, blocks of " << (*source)->block_tokens() << " tokens.\n"
         << to_toml(fit.description);
  return 0;
}

int trace_from_journal_command(std::span<const std::string> args, const console& io) {
  command_line line{
      "mooncaf trace from-journal FILE",
      "Writes the requests of a conductor's journal (--journal) as a trace to standard output: times,\n"
      "lengths and block ids, no text.",
      {},
      {}};
  const invocation here{io, "trace from-journal"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto& name = line.words.front();
  const auto file = mapped_file::open(name);
  if (!file) return here.wrong(file.error(), 1);
  const auto bytes = file->bytes();
  const auto found = journal::requests_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  if (!found) return here.wrong(found.error(), 1);
  for (const auto& r : found->records) io.out << to_json_line(r) << '\n';
  if (!io.out) return here.wrong({ec::io_error, "cannot write"}, 1);
  io.err << found->records.size() << " requests, blocks of " << found->block_tokens << " tokens";
  if (found->left_out > 0)
    io.err << "; " << found->left_out << " left out that were refused, cancelled or never ended";
  io.err << "\n";
  return 0;
}

}  // namespace mooncaf::sim
