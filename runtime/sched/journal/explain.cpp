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

double in_ms(duration d) { return to_seconds(d) * 1e3; }

/// What a node holds of the prompt.
holder_match held_by(const prefix_match& match, node_index node) {
  for (const auto& m : match.few()) {
    if (m.node == node) return m;
  }
  for (const auto& crowd : match.crowds()) {
    if (crowd.nodes.test(node)) return {node, crowd.blocks, crowd.blocks};
  }
  return {node, 0, 0};
}

/// The term in which the chosen instance was the most ahead of another.
std::string decided_by(const prefill_candidate& chosen, const prefill_candidate& other) {
  const std::array<std::pair<const char*, duration>, 3> terms{
      std::pair{"the queue", other.queue - chosen.queue},
      {"loading a prefix", other.load - chosen.load},
      {"computing", other.compute - chosen.compute}};
  const auto most = std::ranges::max_element(terms, {}, [](const auto& t) { return t.second; });
  return format("%s decided: %.3f ms less than on %s, %.3f ms in all\n", most->first, in_ms(most->second),
                to_string(other.id).c_str(), in_ms(other.ttft() - chosen.ttft()));
}

}  // namespace

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
  for (const auto slot : pool.live()) {
    const auto c = costs.on(slot, held_by(match, pool.node(slot)));
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
    why.prefill.push_back(p);
  }
  const auto& decode = core.cluster().decode();
  for (const auto slot : decode.live()) {
    why.decode.push_back({decode.desc(slot).id, decode.desc(slot).node,
                          decode.cost(slot, request.prompt_tokens), decode.charged(slot)});
  }
  std::ranges::stable_sort(why.prefill, {}, [](const auto& p) { return std::pair{p.ttft(), p.id}; });
  std::ranges::stable_sort(why.decode, {}, [](const auto& d) { return std::pair{d.cost, d.id}; });
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
                  in_ms(p.queue), in_ms(p.load), in_ms(p.compute), in_ms(p.ttft()), p.local_blocks,
                  p.fetched_blocks);
    out += p.source ? " from node " + to_string(p.source) + "\n" : "\n";
  }
  out += "\n  decode instance          step ms  requests\n";
  for (const auto& d : why.decode) {
    out += format("%c %-20s %11.3f %9u\n", mark(d.id), to_string(d.id).c_str(), in_ms(d.cost), d.charged);
  }
  if (!answer) return out;
  const auto chosen = std::ranges::find(why.prefill, answer->prefill, &prefill_candidate::id);
  if (chosen == why.prefill.end()) return out;
  const auto next = std::ranges::find_if(why.prefill, [&](const auto& p) { return p.id != chosen->id; });
  if (next == why.prefill.end()) return out + "\nno other prefill instance was live\n";
  if (next->ttft() >= chosen->ttft()) return out + "\n" + decided_by(*chosen, *next);
  return out + format("\nthe policy does not choose by TTFT: %s would have been %.3f ms earlier\n",
                      to_string(next->id).c_str(), in_ms(chosen->ttft() - next->ttft()));
}

}  // namespace mooncaf
