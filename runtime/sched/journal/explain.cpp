#include "runtime/sched/journal/explain.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/sched/journal/replay.hpp"

namespace mooncaf {

namespace {

template <class... Args>
std::string format(const char* how, Args... args) {
  std::array<char, 256> line;
  std::snprintf(line.data(), line.size(), how, args...);
  return line.data();
}

double milliseconds_of(duration d) { return to_seconds(d) * 1e3; }

/// The term in which the chosen instance was the most ahead of another.
std::string decided_by(const prefill_candidate& chosen, const prefill_candidate& other) {
  const std::array<std::pair<const char*, duration>, 3> terms{
      std::pair{"the queue", other.queue - chosen.queue},
      {"loading a prefix", other.load - chosen.load},
      {"computing", other.compute - chosen.compute}};
  const auto most = std::ranges::max_element(terms, {}, [](const auto& t) { return t.second; });
  return format("%s decided: %.3f ms less than on %s, %.3f ms in all\n", most->first,
                milliseconds_of(most->second), to_string(other.id).c_str(),
                milliseconds_of(other.ttft() - chosen.ttft()));
}

}  // namespace

namespace {

/// Why this decode instance, where another one's step is shorter.
std::string decode_decided_by(const explanation& why, const prefill_candidate& from, worker_id chosen) {
  const auto at = std::ranges::find(why.decode, chosen, &decode_candidate::id) - why.decode.begin();
  if (at == 0 || at == std::ssize(why.decode)) return {};
  const auto waits = from.hand_over[static_cast<std::size_t>(at)], would = from.hand_over.front();
  const auto& first = why.decode.front();
  if (would <= waits)
    return format("%s decodes sooner, but its memory would not do, or it may not be taken\n",
                  to_string(first.id).c_str());
  return format("the hand-over decided: KV is at decode %.3f ms after the first token, %.3f ms at %s\n",
                milliseconds_of(waits), milliseconds_of(would), to_string(first.id).c_str());
}

}  // namespace

/// Weighs every instance one by one where a placement skips most of them, so it may be slow and must not be
/// used to place.
explanation explain(const conductor_core& core, const schedule_request& request, time_point now) {
  explanation why;
  const auto& o = core.options();
  why.prompt_tokens = request.prompt_tokens;
  why.usable_blocks = static_cast<std::uint32_t>(
      std::min<std::size_t>(request.keys.size(), (std::max(request.prompt_tokens, 1u) - 1) / o.block_tokens));
  prefix_match match;
  core.index().match(request.keys.first(why.usable_blocks), match);
  const auto& pool = core.cluster().prefill();
  const policy_options policy{o.policy, o.balancing_threshold, o.block_tokens, o.bytes_per_token, o.seed};
  const selection_input in{request, match, pool, core.transfers(), now};
  const prefill_costs costs{policy, in};
  const auto& decode = core.cluster().decode();
  std::vector<instance_slot> targets(decode.live().begin(), decode.live().end());
  std::ranges::stable_sort(targets, {}, [&](auto slot) {
    return std::pair{decode.cost(slot, request.prompt_tokens), decode.desc(slot).id};
  });
  for (const auto slot : targets) {
    why.decode.push_back({decode.desc(slot).id, decode.desc(slot).node,
                          decode.cost(slot, request.prompt_tokens), decode.charged(slot)});
  }
  for (const auto slot : pool.live()) {
    auto c = costs.on(slot, match.held_by(pool.node(slot)));
    prefill_candidate p;
    p.id = pool.desc(slot).id;
    p.node = pool.desc(slot).node;
    p.queue = pool.queue(slot, now);
    p.local_blocks = c.local_blocks;
    const auto reused = c.fetch ? c.source_blocks : c.local_blocks;
    if (c.fetch) p.fetched_blocks = c.source_blocks - c.local_blocks;
    if (c.fetch) p.source = core.cluster().node_at(c.source);
    const auto cached = std::min<std::uint64_t>(std::uint64_t{reused} * o.block_tokens,
                                                std::max(request.prompt_tokens, 1u) - 1);
    p.compute = pool.class_model(pool.speed_of(slot)).estimate(request.prompt_tokens - cached, cached);
    p.load = c.cost - p.compute;
    c.slot = slot;
    c.ttft = p.queue + c.cost;
    for (const auto to : targets) p.hand_over.push_back(core.hand_over_wait(request, c, to, now));
    why.prefill.push_back(std::move(p));
  }
  std::ranges::stable_sort(why.prefill, {}, [](const auto& p) { return std::pair{p.ttft(), p.id}; });
  return why;
}

std::string to_text(const explanation& why, const tl::expected<placement, rejection>& answer) {
  auto out =
      format("%u prompt tokens, %u blocks that could be reused\n", why.prompt_tokens, why.usable_blocks);
  out += journal::describe(answer) + "\n";
  const auto mark = [&](worker_id id) {
    return answer && (id == answer->prefill || id == answer->decode) ? '>' : ' ';
  };
  out += "\n  prefill instance        queue ms     load ms  compute ms     TTFT ms  blocks there  fetched\n";
  for (const auto& p : why.prefill) {
    out += format("%c %-20s %11.3f %11.3f %11.3f %11.3f %13u %8u", mark(p.id), to_string(p.id).c_str(),
                  milliseconds_of(p.queue), milliseconds_of(p.load), milliseconds_of(p.compute),
                  milliseconds_of(p.ttft()), p.local_blocks, p.fetched_blocks);
    out += p.source ? " from node " + to_string(p.source) + "\n" : "\n";
  }
  // Hand-overs are from the prefill instance chosen, or, if nothing was placed, from the cheapest one.
  const auto chosen =
      answer ? std::ranges::find(why.prefill, answer->prefill, &prefill_candidate::id) : why.prefill.begin();
  const bool known = chosen != why.prefill.end();
  out += "\n  decode instance          step ms  hand-over ms  requests\n";
  for (std::size_t i = 0; i < why.decode.size(); ++i) {
    const auto& d = why.decode[i];
    out += format("%c %-20s %11.3f %13.3f %9u\n", mark(d.id), to_string(d.id).c_str(),
                  milliseconds_of(d.cost), known ? milliseconds_of(chosen->hand_over[i]) : 0.0, d.charged);
  }
  if (!answer || !known) return out;
  out += "\n" + decode_decided_by(why, *chosen, answer->decode);
  const auto next = std::ranges::find_if(why.prefill, [&](const auto& p) { return p.id != chosen->id; });
  if (next == why.prefill.end()) return out + "no other prefill instance was live\n";
  if (next->ttft() >= chosen->ttft()) return out + decided_by(*chosen, *next);
  return out + format("the policy does not choose by TTFT: %s would have been %.3f ms earlier\n",
                      to_string(next->id).c_str(), milliseconds_of(chosen->ttft() - next->ttft()));
}

}  // namespace mooncaf
