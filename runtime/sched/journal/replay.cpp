#include "runtime/sched/journal/replay.hpp"

namespace mooncaf::journal {

namespace {

std::string in_ms(duration d) { return std::to_string(d.count() / 1000) + " us"; }

std::string describe(const result<void>& r) { return r ? "done" : to_string(r.error()); }

template <class Id>
std::string describe(const std::vector<Id>& ids) {
  std::string out = std::to_string(ids.size());
  for (const auto id : ids) out += " " + to_string(id);
  return out;
}

std::string describe(const expiry& e) {
  return "nodes " + describe(e.nodes) + ", requests " + describe(e.requests);
}

std::string describe(const std::vector<hot_copy>& copies) {
  auto out = std::to_string(copies.size()) + " copies";
  for (const auto& c : copies) {
    out += ", " + std::to_string(c.blocks.size()) + " blocks from node " + to_string(c.source) + " to " +
           to_string(c.target);
  }
  return out;
}

template <class In>
std::string title(const In&) {
  return In::name;
}
std::string title(const schedule& in) { return "schedule of request " + to_string(in.request.id); }

}  // namespace

std::string describe(const tl::expected<placement, rejection>& answer) {
  if (!answer) {
    const auto& r = answer.error();
    return "refused at " + std::string{to_string(r.stage)} + ": " + to_string(r.cause) + ", again in " +
           in_ms(r.retry_after);
  }
  const auto& p = *answer;
  auto out = "prefill " + to_string(p.prefill) + ", decode " + to_string(p.decode) + ", " +
             std::to_string(p.local_blocks) + " blocks there";
  if (p.source) {
    out += ", " + std::to_string(p.source_blocks) + " from node " + to_string(p.source) +
           (p.source_tier == storage_tier::ssd ? "'s disk" : "");
    for (const auto& other : p.beside) out += " and node " + to_string(other.node);
  }
  return out + ", TTFT " + in_ms(p.predicted_ttft) + ", TBT " + in_ms(p.predicted_tbt);
}

result<replay_result> replay(std::string_view bytes, const std::string& name, const before_schedule& before,
                             const after_schedule& after) {
  reader from{bytes, name};
  const auto options = from.begin();
  if (!options) return fail(options.error());
  conductor_core core{*options};
  replay_result out;
  const auto visit = [&]<class In, class... Outcome>(In& in, const Outcome&... recorded) {
    ++out.records;
    constexpr bool schedules = std::is_same_v<In, schedule>;
    if constexpr (schedules) {
      ++out.requests;
      if (before) before(out.requests, core, in);
    }
    if constexpr (sizeof...(Outcome) == 0) {
      in.call(core);
    } else {
      ++out.decisions;
      const auto answer = in.call(core);
      if constexpr (schedules) {
        if (after) after(out.requests, in, answer);
      }
      if ((same(answer, recorded) && ...)) return;
      out.first = {out.records, from.offset(), title(in), (describe(recorded), ...), describe(answer)};
    }
  };
  for (;;) {
    const auto more = from.next(visit);
    if (!more) return fail(more.error());
    if (!*more || out.first) break;
  }
  out.torn_bytes = from.torn_bytes();
  return out;
}

}  // namespace mooncaf::journal
