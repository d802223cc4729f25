#include "runtime/sched/shadow_core.hpp"

#include <algorithm>

namespace mooncaf {

/// Instances are sampled where calibrations measure, since a model's weights mean nothing to others.
shadow_question recall(const conductor_core& core, time_point now) {
  shadow_question q;
  q.options = core.options();
  q.rule = core.rule();
  q.requests = core.memory().requests.recall(now);
  q.noise = core.cluster().decode().noise().value();
  q.memory_blocks = core.memory().node_blocks;
  const auto& prefill = core.cluster().prefill();
  const auto& decode = core.cluster().decode();
  for (const auto slot : prefill.live()) q.prefill.push_back(prefill.desc(slot).node);
  q.decode = static_cast<std::uint32_t>(decode.live().size());
  if (!q.worth_playing()) return q;
  q.options.transfer = core.transfers().sent_by(prefill.node(prefill.live().front()));  // as measured
  for (const double n : {256.0, 1024.0, 4096.0, 16384.0}) {
    for (const double cached : {0.0, 4096.0, 32768.0}) {
      double seconds = 0;
      for (const auto slot : prefill.live())
        seconds += to_seconds(
            prefill.model(slot).estimate(static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(cached)));
      q.passes.push_back({n, cached, seconds / static_cast<double>(prefill.live().size())});
    }
  }
  for (const auto slot : decode.live()) {
    const auto& d = decode.desc(slot);
    q.max_batch = std::max(q.max_batch, d.capacity);
    q.decode_tokens = std::max(q.decode_tokens, d.capacity_tokens);
  }
  for (const auto wanted : {1u, 8u, 64u}) {
    const std::uint64_t batch = std::min(wanted, q.max_batch);
    for (const std::uint64_t each : {512, 4096, 16384}) {
      const auto step = decode.mean_step(batch * q.decode, batch * each * q.decode);
      q.steps.push_back({static_cast<double>(batch), static_cast<double>(batch * each), to_seconds(step)});
    }
  }
  return q;
}

std::optional<shadow_question> shadow_core::due(const conductor_core& core, time_point now) {
  if (core.options().admission != admission_policy::adaptive || playing_) return std::nullopt;
  if (!next_) next_ = now + core.options().shadow.every;
  if (now < *next_) return std::nullopt;
  next_ = now + core.options().shadow.every;
  auto question = recall(core, now);
  if (!question.worth_playing()) return std::nullopt;
  playing_ = true;
  return question;
}

std::optional<admission_rule> shadow_core::played(conductor_core& core, const played_minutes& played,
                                                  duration took, time_point now) {
  playing_ = false;
  if (!played.what_ifs.empty()) what_ifs_ = played.what_ifs;
  next_ = now + std::max<duration>(core.options().shadow.every, rest_per_work * took);
  const auto rule = choice_.consider(core.rule(), played.rules);
  if (!rule) return std::nullopt;
  ++changes_;
  core.play_by(*rule, played.rules, now);
  return rule;
}

}  // namespace mooncaf
