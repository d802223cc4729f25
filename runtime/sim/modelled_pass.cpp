#include "runtime/sim/modelled_pass.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace mooncaf::sim {

namespace {

constexpr std::uint32_t layers = 2;
constexpr std::int32_t end_token = 256;  // of `dummy_vocab`

/// A pause up to this long between two steps is the caller's own work.
constexpr duration callers_work = std::chrono::milliseconds(10);
/// A cancelled pass ends this soon.
constexpr duration look_again = std::chrono::milliseconds(50);

struct row {
  std::uint16_t k = 0, v = 0;
};

/// Layer 0 keeps its hash and how much of the answer is left, layer 1 its hash and a check of both.
row row_of(const token_state& s, std::uint32_t layer) noexcept {
  if (layer == 0) return {s.hash[0], s.left};
  return {s.hash[1], static_cast<std::uint16_t>(s.hash[0] * 31 + s.hash[1] * 17 + s.left * 7 + 1)};
}

std::uint16_t mixed(std::uint16_t hash, std::int32_t token, std::uint64_t layer) noexcept {
  auto x = (std::uint64_t{hash} << 32 | static_cast<std::uint32_t>(token)) + (layer << 48);
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  return static_cast<std::uint16_t>((x ^ x >> 32) * 0x9E3779B97F4A7C15ull >> 48);
}

row read(const kv_layout& l, const std::byte* block, std::uint32_t layer, std::uint32_t at) noexcept {
  row r;
  std::memcpy(&r.k, block + l.offset(layer, 0, false, at), sizeof r.k);
  std::memcpy(&r.v, block + l.offset(layer, 0, true, at), sizeof r.v);
  return r;
}

void put(const kv_layout& l, std::byte* block, std::uint32_t layer, std::uint32_t at, row r) noexcept {
  std::memcpy(block + l.offset(layer, 0, false, at), &r.k, sizeof r.k);
  std::memcpy(block + l.offset(layer, 0, true, at), &r.v, sizeof r.v);
}

/// Sure of the next token at any temperature; if that is not allowed, of the word after it.
void write_logits(const token_state& s, std::span<float> logits) {
  std::ranges::fill(logits, -200.0f);
  logits[static_cast<std::size_t>(first_answer_word)] = -100;
  logits[static_cast<std::size_t>(s.next())] = 0;
}

/// Four values in [-1, 1] that depend on all tokens so far.
std::array<float, 4> hidden_of(const token_state& s) noexcept {
  const auto value = [](std::uint16_t bits) { return static_cast<float>(bits) / 32767.5f - 1.0f; };
  return {value(s.hash[0]), value(s.hash[1]), value(mixed(s.hash[0], 1, 2)), value(mixed(s.hash[1], 1, 3))};
}

}  // namespace

kv_layout modelled_layout(const profile& p) noexcept {
  return {.n_layers = layers,
          .n_kv_heads = 1,
          .head_dim = 1,
          .block_tokens = p.block_tokens,
          .dtype = kv_dtype::f16};
}

hash128 modelled_fingerprint(const profile& p) { return hash_text128("modelled v1\n" + to_toml(p)); }

token_state token_state::after(std::int32_t token) const noexcept {
  token_state next;
  for (std::size_t layer = 0; layer < layers; ++layer) next.hash[layer] = mixed(hash[layer], token, layer);
  if (token >= first_length_word) {
    next.left = static_cast<std::uint16_t>(token - first_length_word + 1);
  } else if (left > 1) {
    next.left = left - 1;
  }
  return next;
}

std::int32_t token_state::next() const noexcept {
  if (left == 1) return end_token;
  const auto both = std::uint32_t{hash[0]} << 16 | hash[1];
  return first_answer_word + static_cast<std::int32_t>(both % (first_length_word - first_answer_word));
}

pacing pacing::real() {
  return {[] { return clock_type::now(); }, [](time_point until) { std::this_thread::sleep_until(until); }};
}

modelled_pass::modelled_pass(const modelled_options& options, pacing pace)
    : options_(options),
      pace_(std::move(pace)),
      costs_(options.hardware),
      tier_(tier_of(options.hardware, options.stages)),
      layout_(modelled_layout(options.hardware)) {}

result<void> modelled_pass::check(std::span<const batch_item> items, std::span<float> logits) const {
  std::size_t rows = 0;
  for (const auto& item : items) {
    rows += item.want_logits ? 1 : 0;
    if (item.tokens.empty()) return fail(ec::invalid_argument, "an item without tokens");
    if (item.blocks.size() < layout_.blocks_for(item.start + item.tokens.size())) {
      return fail(ec::invalid_argument,
                  "blocks do not cover " + std::to_string(item.start + item.tokens.size()) + " positions");
    }
    for (const auto token : item.tokens) {
      if (token < 0 || static_cast<std::uint32_t>(token) >= modelled_vocab) {
        return fail(ec::invalid_argument, "token id " + std::to_string(token) + " is outside 0 to " +
                                              std::to_string(modelled_vocab - 1));
      }
    }
  }
  if (logits.size() != rows * modelled_vocab) return fail(ec::invalid_argument, "room for other logits");
  return {};
}

/// As the profile says, on our clock.
duration modelled_pass::length_of(std::span<const batch_item> items) {
  const bool prompts = options_.role == worker_role::prefill;
  const double constant = prompts ? costs_.prefill_constant() : costs_.decode_step(0, 0);
  double seconds = constant;
  std::uint64_t context = 0;
  std::vector<device_tier::item> parts;
  for (const auto& item : items) {
    const auto tokens = static_cast<std::uint32_t>(item.tokens.size());
    const auto end = item.start + tokens;
    const double chunk = costs_.chunk({item.start, tokens, item.reused});
    seconds += chunk;
    context += end;
    if (tier_)
      parts.push_back({item.sequence, item.keys, item.start, tokens,
                       prompts ? chunk : costs_.decode_step(1, end) - constant});
  }
  if (tier_) seconds = tier_->pass(parts, constant);
  else if (!prompts) seconds = costs_.decode_step(items.size(), context);
  return from_seconds(seconds / options_.time_scale);
}

/// As the first stage takes it, and behind the steps before it at every stage: see `prefill_instance`.
modelled_pass::pass modelled_pass::enter(std::span<const batch_item> items) {
  const std::lock_guard lock{mutex_};
  const auto length = length_of(items);
  const auto stage = length / options_.stages;
  const auto hops =
      (options_.stages - 1) * from_seconds(options_.hardware.network_latency_s / options_.time_scale);
  pass p;
  p.items = items;
  p.before.assign(items.size(), {});
  p.began = pace_.now();
  if (p.began - free_ < std::min(callers_work, stage / 2)) p.began = free_;
  p.first_free = p.began + stage;
  p.ends = p.began + length + hops;
  if (options_.stages > 1) p.ends = std::max(p.ends, last_end_ + stage);
  free_ = p.first_free;
  last_end_ = p.ends;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) p.places[layer] = layers_[layer].place();
  return p;
}

void modelled_pass::tell_free(pass& p) const {
  if (free_told_ && !std::exchange(p.told, true)) free_told_();
}

result<void> modelled_pass::wait(pass& p, time_point until, const std::atomic<bool>* cancel) const {
  for (auto now = pace_.now(); now < until; now = pace_.now()) {
    if (cancel != nullptr && cancel->load()) return fail(ec::cancelled);
    if (now >= p.first_free) tell_free(p);
    auto next = cancel == nullptr ? until : std::min(until, now + look_again);
    if (free_told_ && !p.told) next = std::min(next, p.first_free);
    pace_.wait_until(next);
  }
  return {};
}

/// Reads the state before each item from the layer's KV, and writes the states of its own tokens.
result<void> modelled_pass::run_layer(pass& p, std::uint32_t layer) const {
  for (std::size_t i = 0; i < p.items.size(); ++i) {
    const auto& item = p.items[i];
    auto& s = p.before[i];
    if (item.start > 0) {
      const auto at = item.start - 1;
      const auto had =
          read(layout_, item.blocks[at / layout_.block_tokens], layer, at % layout_.block_tokens);
      s.hash[layer] = had.k;
      if (layer == 0) s.left = had.v;
      if (layer == 1 && row_of(s, 1).v != had.v) {
        return fail(ec::corrupt, "the KV of position " + std::to_string(at) + " is not what a pass wrote");
      }
    }
    auto state = s;
    auto at = item.start;
    for (const auto token : item.tokens) {
      state = state.after(token);
      put(layout_, item.blocks[at / layout_.block_tokens], layer, at % layout_.block_tokens,
          row_of(state, layer));
      ++at;
    }
  }
  return {};
}

result<void> modelled_pass::forward(std::span<const batch_item> items, std::span<float> logits,
                                    const layer_done_fn& done, const std::atomic<bool>* cancel,
                                    const before_layer_fn& before) {
  if (auto fit = check(items, logits); !fit) {
    if (free_told_) free_told_();
    return fit;
  }
  auto p = enter(items);
  auto outcome = run(p, done, cancel, before);
  leave(p, outcome.has_value());
  tell_free(p);
  if (outcome) show(p, logits);
  return outcome;
}

/// Every layer is entered and left, so that the passes behind do not wait for ever.
result<void> modelled_pass::run(pass& p, const layer_done_fn& done, const std::atomic<bool>* cancel,
                                const before_layer_fn& before) {
  const auto share = (p.ends - p.began) / layers;
  auto at = p.began;
  result<void> outcome;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    if (outcome && before) {
      outcome = before(layer);
      if (const auto late = pace_.now() - at; late > callers_work) {
        at += late;
        p.first_free += late;
      }
    }
    at += share;
    if (outcome) outcome = wait(p, at, cancel);
    layers_[layer].enter(p.places[layer]);
    if (outcome) outcome = run_layer(p, layer);
    layers_[layer].leave();
    if (outcome && done) done(layer);
  }
  p.ends = at;
  return outcome;
}

/// What comes behind it is timed from its end, or if it was broken off from now.
void modelled_pass::leave(const pass& p, bool whole) {
  const std::lock_guard lock{mutex_};
  const auto end = whole ? p.ends : pace_.now();
  if (options_.stages == 1) free_ = end;
  else if (!whole) free_ = std::min(free_, end);
  last_end_ = whole ? std::max(last_end_, end) : std::min(last_end_, end);
}

void modelled_pass::show(const pass& p, std::span<float> logits) const {
  const auto& items = p.items;
  std::vector<float> row;
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto state = p.before[i];
    row.resize(items[i].each_row ? modelled_vocab : 0);
    for (std::uint32_t t = 0; t < items[i].tokens.size(); ++t) {
      state = state.after(items[i].tokens[t]);
      if (items[i].each_hidden) items[i].each_hidden(t, hidden_of(state));
      if (!items[i].each_row) continue;
      write_logits(state, row);
      items[i].each_row(t, row);
    }
    if (items[i].want_logits) {
      write_logits(state, logits.subspan(wanted++ * modelled_vocab, modelled_vocab));
    }
  }
}

}  // namespace mooncaf::sim
