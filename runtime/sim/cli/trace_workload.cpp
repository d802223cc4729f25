#include <ostream>

#include "config/command_line.hpp"
#include "runtime/sched/journal/requests.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/journal_state.hpp"
#include "runtime/sim/cli/simulation_arguments.hpp"
#include "runtime/sim/session_workload.hpp"
#include "runtime/sim/workload_generator.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

/// Keeps the whole trace, since conversations are found by looking back from their last turns.
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

namespace {

/// "12 left out: 9 refused, 3 cancelled or failed"; nothing is left out: nothing.
std::string to_text(const journal::left_out& l) {
  std::string kinds;
  const auto add = [&](std::uint64_t count, const char* what) {
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + what;
  };
  add(l.refused, " refused");
  add(l.refused_at_decode, " refused at decode");
  add(l.given_up, " cancelled or failed");
  add(l.unfinished, " without an end");
  add(l.without_keys, " without names for their blocks");
  return kinds.empty() ? kinds : "; " + std::to_string(l.sum()) + " left out: " + kinds;
}

}  // namespace

int trace_from_journal_command(std::span<const std::string> args, const console& io) {
  command_line line{
      "mooncaf trace from-journal FILE",
      "Writes the requests of a conductor's journal (--journal) that were answered as a trace to standard\n"
      "output: times, lengths and block ids, no text. Says how many were not, and why. Ends with 3 if a "
      "part\n"
      "of the journal is missing.",
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
  io.err << found->records.size() << " requests, blocks of " << found->block_tokens << " tokens"
         << to_text(found->left_out) << "\n";
  return tell_state(io, name, found->missing, found->end) ? 0 : part_is_missing;
}

}  // namespace mooncaf::sim
