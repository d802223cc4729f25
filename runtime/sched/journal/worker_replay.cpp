#include "runtime/sched/journal/worker_replay.hpp"

#include <unordered_set>

namespace mooncaf::journal {

namespace {

std::string to_ms(duration d) {
  const auto us = d.count() / 1000;
  const auto rest = std::to_string(1000 + us % 1000);
  return std::to_string(us / 1000) + "." + rest.substr(1) + " ms";
}

std::string describe(const load_plan& p) {
  if (p.from_disk + p.from_remote == 0) return "loads nothing: " + to_ms(p.cost);
  std::string out = "loads";
  if (p.from_disk > 0) out += " " + std::to_string(p.from_disk) + " blocks from its disk";
  if (p.from_remote > 0) {
    out += (p.from_disk > 0 ? " and " : " ") + std::to_string(p.from_remote) + " from another node";
  }
  return out + ": " + to_ms(p.cost);
}

std::string describe(const std::optional<rejection>& refused) {
  return refused ? "refused: " + to_string(refused->cause) : "taken into the batch";
}

std::string text_of(const weigh_load& in) {
  const auto& q = in.question;
  auto out = "of " + std::to_string(q.prompt_tokens) + " tokens " + std::to_string(q.dram_blocks) +
             " blocks are in memory";
  if (q.device_blocks > 0) out += " and " + std::to_string(q.device_blocks) + " on the device";
  if (q.on_disk() > 0)
    out += ", " + std::to_string(q.on_disk()) + " more on its disk (" + to_ms(q.read) + ")";
  if (const auto more = q.remote_behind(q.dram_blocks); more > 0)
    out += ", " + std::to_string(more) + " more at another node (" + to_ms(q.fetch) + ")";
  load_question alone = q;
  alone.held_blocks = alone.dram_blocks;
  alone.remote_blocks = 0;
  return out + "; without a load " + to_ms(plan_load(alone, prefill_model{in.computing}).cost);
}
std::string text_of(const load_ended& in) {
  return std::to_string(in.got) + " of " + std::to_string(in.wanted) + " blocks came from node " +
         to_string(in.source) + " in " + to_ms(in.took);
}
std::string text_of(const prompt_computed& in) {
  return "computed " + std::to_string(in.computed_tokens) + " tokens in " + to_ms(in.took) + ", " +
         to_ms(in.waited) + " after it came; reused " + std::to_string(in.dram_tokens) + " from memory, " +
         std::to_string(in.ssd_tokens) + " from disk, " + std::to_string(in.remote_tokens) +
         " from other nodes";
}
std::string text_of(const check_join& in) {
  const auto& q = in.question;
  const auto step = decode_model{in.steps}.estimate(q.batch + 1, q.context_tokens + q.prompt_tokens);
  return "would be one of " + std::to_string(q.batch + 1) + " in a batch of " +
         std::to_string(q.context_tokens + q.prompt_tokens) + " tokens: a step of " + to_ms(step) +
         " for a TBT of " + to_ms(q.tbt_slo);
}

std::string text_of(const answer_ended& in) {
  return "answered " + std::to_string(in.tokens) + " tokens in " + to_ms(in.took) + ", " + to_ms(in.waited) +
         " after its prompt came; longest between two " + to_ms(in.longest);
}

}  // namespace

result<replay_result> replay_worker(std::string_view bytes, const std::string& name,
                                    std::vector<worker_line>* lines) {
  reader from{bytes, name};
  if (const auto begun = from.begin_worker(); !begun) return fail(begun.error());
  replay_result out;
  std::unordered_set<request_id> tries;
  // A fact has no answer that could be compared, but says what came of the decision before it.
  const auto visit = [&]<class In, class... Outcome>(In& in, const Outcome&... recorded) {
    ++out.records;
    tries.insert(in.one_try);
    if (lines != nullptr) {
      auto text = text_of(in);
      ((text += "; " + describe(recorded)), ...);
      lines->push_back({in.one_try, std::move(text)});
    }
    if constexpr (sizeof...(Outcome) > 0) {
      ++out.decisions;
      const auto answer = in.call();
      if ((same(answer, recorded) && ...)) return;
      out.first = {out.records, from.offset(), std::string{In::name} + " of request " + to_string(in.one_try),
                   (describe(recorded), ...), describe(answer)};
    }
  };
  for (;;) {
    const auto more = from.next<worker_inputs>(visit);
    if (!more) return fail(more.error());
    if (!*more || out.first) break;
  }
  out.requests = tries.size();
  out.ends_as(from);
  return out;
}

}  // namespace mooncaf::journal
