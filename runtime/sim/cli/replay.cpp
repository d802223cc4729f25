#include "runtime/sched/journal/replay.hpp"

#include "config/command_line.hpp"
#include "runtime/sched/journal/explain.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

namespace {

/// "17": the request with this id; "#17": the seventeenth that was scheduled.
bool is_meant(const std::string& wanted, std::uint64_t number, request_id id) {
  return !wanted.empty() && (wanted == to_string(id) || wanted == "#" + std::to_string(number));
}

}  // namespace

int replay_command(std::span<const std::string> args, const console& io) {
  std::string wanted;
  bool list = false;
  command_line line{
      "mooncaf replay FILE",
      "Makes every call of a conductor's journal (--journal) again and compares the decisions, bit "
      "by bit.\nEnds with 0 if all are the same, 1 if one differs or the file cannot be read.",
      {text("explain", "R",
            "why request R went where it did: what each instance would have cost; an id as in "
            "--list, or #N for the N-th request",
            wanted),
       flag("list", "a line for every request: number, id, decision", list)},
      {}};
  const invocation here{io, "replay"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto& name = line.words.front();
  const auto file = mapped_file::open(name);
  if (!file) return here.wrong(file.error(), 1);
  const auto bytes = file->bytes();
  bool found = false;
  explanation why;
  const auto done = journal::replay(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name,
      [&](std::uint64_t number, const conductor_core& core, const journal::schedule& call) {
        if (is_meant(wanted, number, call.request.id)) why = explain(core, call.request, call.now);
      },
      [&](std::uint64_t number, const journal::schedule& call, const auto& answer) {
        if (list) {
          io.out << '#' << number << ' ' << to_string(call.request.id) << ' ' << journal::describe(answer)
                 << '\n';
        }
        if (!is_meant(wanted, number, call.request.id)) return;
        found = true;
        io.out << "request " << to_string(call.request.id) << " (#" << number << ")\n"
               << to_text(why, answer) << '\n';
      });
  if (!done) return here.wrong(done.error(), 1);
  if (done->torn_bytes > 0) {
    io.err << name << ": the last " << done->torn_bytes
           << " bytes are part of a frame that was never finished; they are ignored\n";
  }
  io.out << done->records << " calls, " << done->requests << " requests, "
         << (done->requests == 0 ? 0 : bytes.size() / done->requests) << " bytes a request; ";
  if (done->first) {
    const auto& d = *done->first;
    io.out << "the first decision that differs: call " << d.record << " at offset " << d.offset << ", "
           << d.call << "\n  recorded: " << d.recorded << "\n  replayed: " << d.replayed << '\n';
    return 1;
  }
  io.out << done->decisions << " decisions, all the same\n";
  if (!wanted.empty() && !found) {
    return here.wrong({ec::not_found, "--explain " + wanted + ": no such request; --list names them"}, 1);
  }
  return 0;
}

}  // namespace mooncaf::sim
