#include <algorithm>
#include <charconv>
#include <ostream>

#include "config/command_line.hpp"
#include "runtime/base/request_ids.hpp"
#include "runtime/sched/journal/against.hpp"
#include "runtime/sched/journal/request_log.hpp"
#include "runtime/sched/journal/worker_replay.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/journal_state.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

namespace {

struct journal_to_replay {
  std::string name;
  std::string_view bytes;
  bool of_worker() const { return bytes.starts_with(journal::worker_magic); }
};

std::string_view text_in(const mapped_file& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One run of the command over all of its files.
struct replaying {
  const invocation& here;
  const console& io;
  std::string wanted;  ///< the request to explain; empty: none
  bool list = false, several = false;
  bool told = false;                      ///< something about `wanted`
  std::optional<request_id> explained{};  ///< the try of `wanted`, once it is known

  int conductor(const journal_to_replay& file);
  int worker(const journal_to_replay& file);
  /// Says how it went. @returns the exit status.
  int tell(const journal_to_replay& file, const journal::replay_result& done) const;
};

/// The whole file is read before anything is said: a line is known to be complete only when the request's end
/// was seen.
int replaying::conductor(const journal_to_replay& file) {
  journal::request_log requests{wanted};
  const bool looks = list || !wanted.empty();
  const auto done = journal::replay(file.bytes, file.name, looks ? &requests : nullptr);
  if (!done) return here.wrong(done.error(), 1);
  if (list) {
    for (const auto& request : requests.lines()) io.out << request << '\n';
  }
  if (const auto why = requests.why(); !why.empty()) io.out << why << '\n';
  if (const auto found = requests.explained()) {
    explained = found;
    told = true;
  }
  return tell(file, *done);
}

int replaying::worker(const journal_to_replay& file) {
  std::vector<journal::worker_line> lines;
  const auto done = journal::replay_worker(file.bytes, file.name, list || explained ? &lines : nullptr);
  if (!done) return here.wrong(done.error(), 1);
  for (const auto& line : lines) {
    const bool meant = explained && request_of_try(*explained) == request_of_try(line.one_try);
    told |= meant;
    if (list || meant) io.out << file.name << ' ' << to_string(line.one_try) << ' ' << line.text << '\n';
  }
  return tell(file, *done);
}

int replaying::tell(const journal_to_replay& file, const journal::replay_result& done) const {
  if (done.torn_bytes > 0) {
    io.err << file.name << ": the last " << done.torn_bytes
           << " bytes are part of a frame that was never finished; they are ignored\n";
  }
  const bool whole = tell_state(io, file.name, done.missing, done.end);
  if (several) io.out << file.name << ": ";
  io.out << done.records << " calls, " << done.requests << " requests, "
         << (done.requests == 0 ? 0 : file.bytes.size() / done.requests) << " bytes a request; ";
  if (done.first) {
    const auto& d = *done.first;
    io.out << "the first decision that differs: call " << d.record << " at offset " << d.offset << ", "
           << d.call << "\n  recorded: " << d.recorded << "\n  replayed: " << d.replayed << '\n';
    if (const auto own = journal::this_program().release; done.from.release != own) {
      io.out << "  another release wrote it (" << (done.from.release.empty() ? "" : done.from.release + ", ")
             << "journal version " << done.version << "), and may have decided otherwise than this one, "
             << own << '\n';
    }
    return 1;
  }
  io.out << done.decisions << " decisions, all the same" << (whole ? "\n" : " as far as they are there\n");
  return whole ? 0 : part_is_missing;
}

/// All files of one run of the command. @returns the exit status.
int replay_all(const std::vector<std::string>& names, replaying run) {
  std::vector<mapped_file> files;
  std::vector<journal_to_replay> journals;
  for (const auto& name : names) {
    auto file = mapped_file::open(name);
    if (!file) return run.here.wrong(file.error(), 1);
    files.push_back(std::move(*file));
    journals.push_back({name, text_in(files.back())});
  }
  // A conductor's first: it says which request is meant by a number.
  std::stable_partition(journals.begin(), journals.end(), [](const auto& j) { return !j.of_worker(); });
  if (journals.front().of_worker() && !run.wanted.empty()) {
    request_id id;
    if (std::from_chars(run.wanted.data(), run.wanted.data() + run.wanted.size(), id.value).ptr !=
        run.wanted.data() + run.wanted.size()) {
      return run.here.wrong({ec::invalid_argument, "--explain " + run.wanted +
                                                       ": #N counts the requests of a conductor; name its "
                                                       "journal, too, or give an id as in --list"},
                            2);
    }
    run.explained = id;
  }
  int worst = 0;
  for (const auto& journal : journals) {
    const int status = journal.of_worker() ? run.worker(journal) : run.conductor(journal);
    if (status == 1) return 1;
    worst = std::max(worst, status);
  }
  if (!run.wanted.empty() && !run.told)
    return run.here.wrong({ec::not_found, "--explain " + run.wanted + ": no such request; --list names them"},
                          1);
  return worst;
}

int against(const invocation& here, const console& io, const std::string& one, const std::string& other) {
  std::vector<journal::decided_requests> both;
  bool whole = true;
  for (const auto& name : {one, other}) {
    const auto file = mapped_file::open(name);
    if (!file) return here.wrong(file.error(), 1);
    auto decided = journal::decisions_of(text_in(*file), name);
    if (!decided) return here.wrong(decided.error(), 1);
    whole &= tell_state(io, name, decided->missing, decided->end);
    both.push_back(std::move(*decided));
  }
  const auto compared = journal::compare(both[0], both[1]);
  io.out << journal::to_text(compared, {one, other});
  if (!compared.same()) return 1;
  return whole ? 0 : part_is_missing;
}

}  // namespace

/// Options, and which of the two uses they ask for.
int replay_command(std::span<const std::string> args, const console& io) {
  std::string wanted, other;
  bool list = false;
  command_line line{
      "mooncaf replay FILE...",
      "Makes every call of a conductor's journal (--journal), and every decision of workers' "
      "(FILE.prefill0), "
      "again and\ncompares the decisions, bit by bit.\nEnds with 0 if all are the same, 1 if one differs or "
      "a file "
      "cannot be read, 3 if all that can be compared\nare the same and a part of a journal is missing.",
      {text(
           "explain", "R",
           "why request R waited, and why it was refused or went where it did: what each instance would have "
           "cost, and what the workers did with it whose journals are named, too; an id as in --list, or #N "
           "for "
           "the N-th request of the conductor",
           wanted),
       flag("list", "a line for every request: number, id, decision, end; of a worker: for every record",
            list),
       text("against", "FILE",
            "compare the decisions of one conductor's journal with those of another's that had the same "
            "requests: another release, other options, or mooncaf simulate --journal. Says what came of both "
            "and which request was decided differently first; requests are paired by the length of their "
            "prompts in order of arrival, instances as they are first used; times are the clusters' own, "
            "shorter by --time-scale",
            other)},
      {}};
  const invocation here{io, "replay"};
  if (const auto status = here.begin(line, args, 1, true)) return *status;
  if (!other.empty()) {
    if (line.words.size() == 1 && wanted.empty() && !list) return against(here, io, line.words[0], other);
    return here.wrong(
        {ec::invalid_argument,
         "--against compares two journals: mooncaf replay A --against B, without --list and --explain"},
        2);
  }
  return replay_all(line.words, {here, io, wanted, list, line.words.size() > 1});
}

}  // namespace mooncaf::sim
