#include <ostream>

#include "config/command_line.hpp"
#include "runtime/sched/journal/request_log.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/journal_state.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

/// Reads the whole file before it says anything: a line is known to be complete only when the request's end
/// was seen.
int replay_command(std::span<const std::string> args, const console& io) {
  std::string wanted;
  bool list = false;
  command_line line{
      "mooncaf replay FILE",
      "Makes every call of a conductor's journal (--journal) again and compares the decisions, bit "
      "by bit.\nEnds with 0 if all are the same, 1 if one differs or the file cannot be read, 3 if all that "
      "can be "
      "compared\nare the same and a part of the journal is missing.",
      {text(
           "explain", "R",
           "why request R waited, and why it was refused or went where it did: what each instance would have "
           "cost; an id as in --list, or #N for the N-th request",
           wanted),
       flag("list", "a line for every request: number, id, decision, end", list)},
      {}};
  const invocation here{io, "replay"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto& name = line.words.front();
  const auto file = mapped_file::open(name);
  if (!file) return here.wrong(file.error(), 1);
  const auto bytes = file->bytes();
  journal::request_log requests{wanted};
  const bool looks = list || !wanted.empty();
  const auto done = journal::replay({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name,
                                    looks ? &requests : nullptr);
  if (!done) return here.wrong(done.error(), 1);
  if (list) {
    for (const auto& request : requests.lines()) io.out << request << '\n';
  }
  const auto why = requests.why();
  if (!why.empty()) io.out << why << '\n';
  if (done->torn_bytes > 0) {
    io.err << name << ": the last " << done->torn_bytes
           << " bytes are part of a frame that was never finished; they are ignored\n";
  }
  const bool whole = tell_state(io, name, done->missing, done->end);
  io.out << done->records << " calls, " << done->requests << " requests, "
         << (done->requests == 0 ? 0 : bytes.size() / done->requests) << " bytes a request; ";
  if (done->first) {
    const auto& d = *done->first;
    io.out << "the first decision that differs: call " << d.record << " at offset " << d.offset << ", "
           << d.call << "\n  recorded: " << d.recorded << "\n  replayed: " << d.replayed << '\n';
    return 1;
  }
  io.out << done->decisions << " decisions, all the same" << (whole ? "\n" : " as far as they are there\n");
  if (!wanted.empty() && why.empty()) {
    return here.wrong({ec::not_found, "--explain " + wanted + ": no such request; --list names them"}, 1);
  }
  return whole ? 0 : part_is_missing;
}

}  // namespace mooncaf::sim
