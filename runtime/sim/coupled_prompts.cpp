#include "runtime/sim/coupled_prompts.hpp"

#include <algorithm>

#include "runtime/sim/decode_instance.hpp"

namespace mooncaf::sim {

namespace {

constexpr std::uint32_t no_limit = 1u << 30;

prefill_batch_options prompts_of(const simulation_options& o) {
  const auto step = o.coupled == coupled_mode::chunked ? o.coupled_chunk : no_limit;
  prefill_batch_options p;
  p.chunk_tokens = p.max_batch_tokens = step;
  p.block_tokens = 1;  // nothing leaves the instance, so chunks may end anywhere
  return p;
}

}  // namespace

coupled_prompts::coupled_prompts(const cost_model& costs, const simulation_options& o)
    : costs_(&costs),
      options_(prompts_of(o)),
      mode_(o.coupled),
      chunk_(o.coupled == coupled_mode::chunked ? o.coupled_chunk : o.hardware.chunk_tokens),
      prompts_(options_) {}

void coupled_prompts::push(const request_state_record& r) {
  prefill_entry entry;
  entry.id = r.id;
  entry.prompt_tokens = r.prompt_tokens;
  entry.start = r.cached_tokens;
  entry.priority = r.priority;
  entry.arrival = time_point{duration{r.arrival}};
  prompts_.push(entry);
}

void coupled_prompts::choose(ticks now, std::size_t decoding) {
  const auto at = time_point{duration{now}};
  switch (mode_) {
    case coupled_mode::chunked: {
      const auto used = static_cast<std::uint32_t>(std::min<std::size_t>(decoding, chunk_ - 1));
      chunks_ = prompts_.next(at, chunk_ - used);
      return;
    }
    case coupled_mode::batched:
      chunks_ = prompts_.next(at, chunk_);
      return;
    case coupled_mode::one_by_one:
      chunks_ = prompts_.next_prompt(at);
      return;
    case coupled_mode::off:
      return;
  }
}

double coupled_prompts::seconds(const request_table& requests, double slowdown,
                                std::optional<device_tier>& tier) {
  double sum = 0;
  items_.clear();
  for (const auto& c : chunks_) {
    const auto& r = requests[request_table::slot_of(c.id)];
    const double part = costs_->chunk({c.start, c.tokens, c.start == r.cached_tokens ? r.cached_tokens : 0});
    sum += part;
    if (tier) items_.push_back({c.id.value, r.keys, c.start, c.tokens, part * slowdown});
  }
  return working_ = tier ? tier->pass(items_, 0) : sum * slowdown;
}

void coupled_prompts::settle(request_table& requests, std::vector<std::uint32_t>& complete) {
  std::uint64_t tokens = 0;
  for (const auto& c : chunks_) tokens += c.tokens;
  for (const auto& c : chunks_) {
    const auto slot = request_table::slot_of(c.id);
    auto& r = requests[slot];
    const auto part = part_of_step(working_, c.tokens, tokens);
    r.prefill_seconds += part;
    r.computing += from_sec(part);
    r.computed += c.tokens;
    if (r.computed == r.prompt_tokens) complete.push_back(slot);
  }
  busy_ += from_sec(working_);
  chunks_.clear();
  working_ = 0;
}

void coupled_prompts::clear() {
  chunks_.clear();
  working_ = 0;
  prompts_ = prefill_batch{options_};
}

}  // namespace mooncaf::sim
