#include <array>
#include <cstdio>
#include <optional>
#include <ostream>

#include "config/command_line.hpp"
#include "runtime/sched/journal/replay.hpp"
#include "runtime/sched/shadow_core.hpp"
#include "runtime/sim/cli/commands.hpp"
#include "runtime/sim/cli/invocation.hpp"
#include "runtime/sim/cli/journal_state.hpp"
#include "runtime/sim/shadow_play.hpp"
#include "storage/mapped_file.hpp"

namespace mooncaf::sim {

namespace {

/// The minutes before a request of a journal: the last one, as a cluster that is stopped loses its nodes before its
/// journal ends.
class minutes_before final : public journal::replay_watcher {
 public:
  explicit minutes_before(std::uint64_t request) : request_(request) {}

  bool remembers() const override { return true; }
  void asks(std::uint64_t number, const schedule_request&, time_point) override { asked_ = number; }
  void waits(const conductor_core& core, const admission_queue&, request_id, time_point now) override {
    look(core, now);
  }
  void weighs(const conductor_core& core, const schedule_request&, time_point now) override {
    look(core, now);
  }
  void decided(const decision&, time_point) override {}
  void ended(request_id, journal::request_end) override {}

  const std::optional<shadow_question>& found() const noexcept { return found_; }

 private:
  void look(const conductor_core& core, time_point now) {
    if (asked_ >= request_ && !found_) found_ = recall(core, now);
  }

  std::uint64_t request_, asked_ = 0;
  std::optional<shadow_question> found_;
};

void put(std::ostream& out, const std::string& what, std::uint64_t met, std::uint64_t judged, double now) {
  const double share = 100 * static_cast<double>(met) / static_cast<double>(judged);
  std::array<char, 96> line;
  std::snprintf(line.data(), line.size(), "  %-32s %6.1f %%  %+6.1f\n", what.c_str(), share, share - now);
  out << line.data();
}

void tell(std::ostream& out, const shadow_question& q, const played_minutes& played) {
  const double span = to_seconds(q.requests.back().arrival - q.requests.front().arrival);
  double now = 0;
  for (const auto& p : played.rules) {
    if (p.rule == q.rule) now = 100 * static_cast<double>(p.met) / static_cast<double>(p.judged);
  }
  std::array<char, 160> head;
  std::snprintf(head.data(), head.size(),
                "%zu requests in the last %.0f s, %zu prefill and %u decode instances, admission %s\n"
                "inside both SLOs, and how many points more that would be:\n",
                q.requests.size(), span, q.prefill.size(), q.decode, text_of(q.rule).c_str());
  out << head.data();
  for (const auto& p : played.rules)
    put(out, p.rule == q.rule ? "as it is" : "admission " + text_of(p.rule), p.met, p.judged, now);
  for (const auto& p : played.what_ifs) put(out, std::string{to_string(p.what)}, p.met, p.judged, now);
}

}  // namespace

/// Reads the file twice: where its last request is shows only at its end.
int advise_command(std::span<const std::string> args, const console& io) {
  command_line line{
      "mooncaf advise FILE",
      "Plays the last minutes of a conductor's journal (--journal) again, under other rules of admission and "
      "with one "
      "more\ninstance, changed roles or a tenth more requests, on the cluster that served them: what would "
      "have kept "
      "more\nrequests inside their SLOs. A conductor with --admission adaptive does so as it serves "
      "(/cluster).\nEnds "
      "with 0, 1 if the file cannot be read or holds too little, 3 if a part of the journal is missing.",
      {},
      {}};
  const invocation here{io, "advise"};
  if (const auto status = here.begin(line, args, 1)) return *status;
  const auto& name = line.words.front();
  const auto file = mapped_file::open(name);
  if (!file) return here.wrong(file.error(), 1);
  const auto bytes = file->bytes();
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  const auto all = journal::replay(text, name);
  if (!all) return here.wrong(all.error(), 1);
  minutes_before last{all->requests};
  if (const auto again = journal::replay(text, name, &last); !again) return here.wrong(again.error(), 1);
  if (!last.found() || !last.found()->worth_playing()) {
    return here.wrong(
        {ec::not_found, name + ": less than 32 requests, or less than two TTFT SLOs of them, before its "
                               "last one: nothing to learn from"},
        1);
  }
  auto rules = rules_to_play();
  if (std::ranges::find(rules, last.found()->rule) == rules.end())
    rules.insert(rules.begin(), last.found()->rule);
  tell(io.out, *last.found(), play_all(*last.found(), rules, [] { return false; }));
  return tell_state(io, name, all->missing, all->end) ? 0 : part_is_missing;
}

}  // namespace mooncaf::sim
