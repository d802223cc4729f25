#include "runtime/sim/shadow_play.hpp"

#include <algorithm>
#include <unordered_set>

#include "runtime/sim/simulation.hpp"
#include "runtime/sim/trace_keys.hpp"

namespace mooncaf::sim {

namespace {

profile profile_of(const shadow_question& q) {
  profile p;
  p.name = "shadow";
  p.costs = fit_costs(q.passes, q.steps);
  p.block_tokens = q.options.block_tokens;
  p.kv_bytes_per_token = std::max<std::uint64_t>(q.options.bytes_per_token, 1);
  p.max_batch = q.max_batch;
  if (q.decode_tokens > 0) p.device_kv_tokens = q.decode_tokens;
  if (q.memory_blocks > 0) p.dram_tokens = q.memory_blocks * p.block_tokens;
  const auto& link = q.options.transfer;
  p.nic_bytes_per_s = link.bytes_per_s;
  p.network_latency_s = to_seconds(link.latency);
  p.ssd_bytes_per_s = link.ssd_bytes_per_s;
  return p;
}

simulation_options options_of(const shadow_question& q) {
  simulation_options o;
  o.hardware = profile_of(q);
  o.prefill = static_cast<std::uint32_t>(q.prefill.size());
  o.decode = q.options.coupled ? 0 : q.decode;
  if (q.options.coupled) o.coupled = coupled_mode::chunked;
  o.policy = q.options.policy;
  o.balancing_threshold = q.options.balancing_threshold;
  o.ttft_slo_s = to_seconds(q.options.ttft_slo);
  o.tbt_slo_s = to_seconds(q.options.tbt_slo);
  o.decode_span_s = to_seconds(q.options.decode_span);
  o.prefill_store_s = to_seconds(q.options.prefill_store);
  o.hot_copy_share = q.options.hot_copy_share;
  o.seed = q.options.seed;
  o.jitter = std::min(q.noise, 0.5);
  o.verdict_only = true;
  return o;
}

}  // namespace

shadow_play::shadow_play(const shadow_question& q) : options_(options_of(q)) {
  take_laps(q);
  undo_sharing(q);
}

/// What a prompt was measured to take is less than it would take alone, where prompts share steps; and here they share
/// them again. So the costs are raised by what sharing saves here.
void shadow_play::undo_sharing(const shadow_question& q) {
  constexpr int rounds = 2;  // costs that are higher make more of them share
  constexpr double most = 4;
  const auto measured = options_.hardware.costs;
  for (int i = 0; i < rounds; ++i) {
    const auto done = run(options_, q.rule);
    const double shared = done.prefill_alone_s > 0 ? done.prefill_s / done.prefill_alone_s : 1;
    const double factor = std::clamp(1 / std::max(shared, 1e-3), 1.0, most);
    auto& costs = options_.hardware.costs;
    costs.prefill_constant_s = factor * measured.prefill_constant_s;
    costs.prefill_token_s = factor * measured.prefill_token_s;
    costs.prefill_pair_s = factor * measured.prefill_pair_s;
  }
}

void shadow_play::take_laps(const shadow_question& q) {
  const auto ms = [&](time_point t) { return (t - q.requests.front().arrival).count() / 1'000'000; };
  const auto span = ms(q.requests.back().arrival) + 1;
  const auto before = span / 2;
  const auto behind = std::min(span / 3, static_cast<std::int64_t>(2e3 * options_.ttft_slo_s));
  options_.judged_from_s = static_cast<double>(before) * 1e-3;
  options_.judged_to_s = static_cast<double>(before + span) * 1e-3;
  judged_ = q.requests.size();
  take_lap(q, {1, span - before, span, 0});
  take_lap(q, {2, 0, span, before});
  take_lap(q, {3, 0, behind, before + span});
}

/// Blocks of another lap are other blocks: a prompt that comes again would find itself in the cache.
void shadow_play::take_lap(const shadow_question& q, const lap& l) {
  const auto id_of = [&](const block_key& key) { return (key.low >> 2) ^ (std::uint64_t{l.number} << 61); };
  std::unordered_set<std::uint64_t> made;
  for (const auto& r : q.requests) {
    const auto at = (r.arrival - q.requests.front().arrival).count() / 1'000'000;
    if (at < l.from_ms || at >= l.to_ms) continue;
    workload_record w;
    w.timestamp_ms = l.begins_ms + at - l.from_ms;
    w.input_tokens = r.prompt_tokens;
    w.output_tokens = r.output_tokens;
    w.max_tokens = std::max(r.max_tokens, r.output_tokens);
    w.priority = std::min<std::uint8_t>(r.priority, priorities - 1);
    w.share = r.share;
    for (const auto& key : r.keys) w.hash_ids.push_back(id_of(key));
    const auto held = std::min<std::size_t>(r.holder.blocks, r.keys.size());
    const auto instance = std::ranges::find(q.prefill, r.holder.node) - q.prefill.begin();
    if (held > 0 && instance < std::ssize(q.prefill) && !made.contains(w.hash_ids[held - 1])) {
      auto& c = caches_.emplace_back(cached_prefix{static_cast<std::uint32_t>(instance), {}});
      for (std::size_t i = 0; i < held; ++i) c.keys.push_back(key_of(w.hash_ids[i]));
    }
    made.insert(w.hash_ids.begin(), w.hash_ids.end());
    records_.push_back(std::move(w));
  }
}

outcome shadow_play::run(simulation_options o, const admission_rule& rule) const {
  o.admission = rule.policy;
  o.slo_share = rule.slo_share;
  simulation s{o};
  const auto instances = o.coupled == coupled_mode::off ? o.prefill : o.prefill + o.decode;
  for (const auto& c : caches_) {
    if (c.instance < instances) s.warm(c.instance, c.keys);
  }
  return s.run(*replay_of(records_)).value_or(outcome{});
}

played_rule shadow_play::under(const admission_rule& rule) const {
  return {rule, run(options_, rule).judged_met, judged_};
}

std::optional<played_what_if> shadow_play::with(what_if what, const admission_rule& rule) const {
  constexpr double more = 1.1;
  auto o = options_;
  const bool apart = o.coupled == coupled_mode::off;
  if (!apart && what != what_if::more_prefill && what != what_if::more_load) return std::nullopt;
  switch (what) {
    case what_if::more_prefill:
      ++o.prefill;
      break;
    case what_if::more_decode:
      ++o.decode;
      break;
    case what_if::prefill_decodes:
      if (o.prefill < 2) return std::nullopt;
      --o.prefill, ++o.decode;
      break;
    case what_if::decode_prefills:
      if (o.decode < 2) return std::nullopt;
      ++o.prefill, --o.decode;
      break;
    case what_if::more_load:
      o.speed *= more, o.judged_from_s /= more, o.judged_to_s /= more;
      break;
  }
  return played_what_if{what, run(o, rule).judged_met, judged_};
}

std::vector<played_rule> play_rules(const shadow_question& q, std::span<const admission_rule> rules) {
  const shadow_play play{q};
  std::vector<played_rule> out;
  for (const auto& rule : rules) out.push_back(play.under(rule));
  return out;
}

played_minutes play_all(const shadow_question& q, std::span<const admission_rule> rules,
                        const std::function<bool()>& stops) {
  played_minutes out;
  if (stops()) return out;
  const shadow_play play{q};
  for (const auto& rule : rules) {
    if (!stops()) out.rules.push_back(play.under(rule));
  }
  for (const auto what : all_values<what_if>()) {
    if (stops()) break;
    if (const auto played = play.with(what, q.rule)) out.what_ifs.push_back(*played);
  }
  return out;
}

}  // namespace mooncaf::sim
