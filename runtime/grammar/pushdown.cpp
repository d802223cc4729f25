#include "runtime/grammar/pushdown.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/grammar/limits.hpp"
#include "runtime/grammar/place_classes.hpp"

namespace mooncaf {

namespace {

constexpr std::int32_t dead = -1;      ///< nothing is left
constexpr std::int32_t unknown = -2;   ///< not computed yet
constexpr std::int32_t beginning = 0;  ///< the first configuration

void set_bit(token_mask& mask, std::int32_t id) {
  mask[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (id % 64);
}

}  // namespace

std::size_t pushdown::stacks_hash::operator()(const std::vector<stack_id>& s) const noexcept {
  std::uint64_t h = s.size();
  for (const auto v : s) h = std::rotl((h ^ v) * 0x9E3779B97F4A7C15ull, 29);
  return static_cast<std::size_t>(h);
}

pushdown::pushdown(automaton rules, std::shared_ptr<const vocab_trie> vocab,
                   std::span<const std::int32_t> eog_ids)
    : rules_(std::move(rules)),
      vocab_(std::move(vocab)),
      classes_(place_classes(rules_, vocab_->depth())),
      eog_ids_(eog_ids.begin(), eog_ids.end()) {
  forget();
}

void pushdown::forget() {
  ++epoch_;
  bytes_ = 0;
  frames_.assign(1, {});
  frame_ids_.clear();
  configs_.clear();
  config_ids_.clear();
  locals_.clear();
  shared_masks_.clear();
  closure_of(push(rules_.root(), 0));  // becomes `beginning`
}

void pushdown::advance(position& at, std::span<const std::int32_t> answer, std::size_t from,
                       const tokenizer& text) {
  const std::lock_guard hold(lock_);
  if (bytes_ > grammar_limits::max_pushdown_bytes) forget();
  if (at.epoch != epoch_) return renew(at, answer, text);
  walk(at, answer, from, text);
}

void pushdown::renew(position& at, std::span<const std::int32_t> answer, const tokenizer& text) {
  at = {epoch_, beginning};
  walk(at, answer, 0, text);
}

void pushdown::walk(position& at, std::span<const std::int32_t> answer, std::size_t from,
                    const tokenizer& text) {
  for (const auto id : answer.subspan(from)) {
    if (text.is_special(id)) continue;
    for (const char byte : text.piece(id)) {
      if (at.config == dead) return;
      at.config = step(at.config, static_cast<std::uint8_t>(byte));
    }
  }
}

std::shared_ptr<const token_mask> pushdown::known_mask(const position& at) const {
  const std::lock_guard hold(lock_);
  if (at.epoch != epoch_ || at.config < 0) return nullptr;
  return configs_[static_cast<std::size_t>(at.config)].mask;
}

std::shared_ptr<const token_mask> pushdown::mask(position& at, std::span<const std::int32_t> answer,
                                                 const tokenizer& text) {
  const std::lock_guard hold(lock_);
  if (at.epoch != epoch_) renew(at, answer, text);
  if (at.config != dead) {
    if (const auto& known = configs_[static_cast<std::size_t>(at.config)].mask) return known;
  }
  auto made = mask_of(at.config);
  if (at.config != dead) configs_[static_cast<std::size_t>(at.config)].mask = made;
  return made;
}

pushdown::stack_id pushdown::push(std::uint32_t place, stack_id below) {
  const auto key = std::uint64_t{place} << 32 | below;
  const auto [i, fresh] = frame_ids_.try_emplace(key, static_cast<stack_id>(frames_.size()));
  if (fresh) {
    frames_.push_back({place, below});
    bytes_ += 48;
  }
  return i->second;
}

void pushdown::expand(stack_id stack, std::vector<stack_id>& out) {
  // A stack of its own instead of recursion; places are followed in the grammar's order.
  std::vector<stack_id> todo{stack};
  while (!todo.empty()) {
    const auto now = todo.back();
    todo.pop_back();
    if (std::ranges::find(visited_, now) != visited_.end()) continue;
    if (visited_.size() >= 8 * grammar_limits::max_stacks) return;
    visited_.push_back(now);
    if (now == 0) {
      out.push_back(0);
      continue;
    }
    const auto [place, below] = frames_[now];
    if (!rules_.edges(place).empty()) out.push_back(now);
    if (rules_.ends(place)) todo.push_back(below);
    for (const auto& call : rules_.calls(place)) {
      // A place that only ends needs no return to it.
      const auto under = rules_.goes_on(call.to) ? push(call.to, below) : below;
      todo.push_back(push(call.start, under));
    }
  }
}

std::int32_t pushdown::intern(std::vector<stack_id> stacks) {
  if (stacks.empty()) return dead;
  if (stacks.size() > grammar_limits::max_stacks) stacks.resize(grammar_limits::max_stacks);
  const auto [i, fresh] = config_ids_.try_emplace(stacks, static_cast<std::int32_t>(configs_.size()));
  if (fresh) {
    bytes_ += 160 + 8 * stacks.size();
    configuration c;
    c.may_end = std::ranges::find(stacks, stack_id{0}) != stacks.end();
    c.stacks = std::move(stacks);
    configs_.push_back(std::move(c));
  }
  return i->second;
}

std::int32_t pushdown::closure_of(stack_id stack) {
  std::vector<stack_id> out;
  visited_.clear();
  expand(stack, out);
  return intern(std::move(out));
}

std::int32_t pushdown::step(std::int32_t config, std::uint8_t byte) {
  const auto index = static_cast<std::size_t>(config);
  if (!configs_[index].next) {
    configs_[index].next = std::make_unique<std::array<std::int32_t, 256>>();
    configs_[index].next->fill(unknown);
    bytes_ += 1024;
  }
  auto to = (*configs_[index].next)[byte];
  if (to != unknown) return to;
  to = compute_step(config, byte);
  (*configs_[index].next)[byte] = to;
  return to;
}

std::int32_t pushdown::compute_step(std::int32_t config, std::uint8_t byte) {
  std::vector<stack_id> out;
  visited_.clear();
  for (const auto stack : configs_[static_cast<std::size_t>(config)].stacks) {
    if (stack == 0) continue;
    const auto [place, below] = frames_[stack];
    for (const auto& e : rules_.edges(place)) {
      if (byte < e.low || byte > e.high) continue;
      expand(rules_.goes_on(e.to) ? push(e.to, below) : below, out);
      break;
    }
  }
  return intern(std::move(out));
}

void pushdown::mark(std::uint32_t begin, std::uint32_t end, std::int32_t config, token_mask& out,
                    std::vector<std::uint32_t>* escapes) {
  if (begin >= end || config == dead) return;
  const auto nodes = vocab_->nodes();
  const auto base = nodes[begin].depth;
  path_.resize(vocab_->depth() + 1);
  path_[0] = config;
  for (auto i = begin; i < end;) {
    const auto& node = nodes[i];
    const auto depth = static_cast<std::size_t>(node.depth - base);
    const auto to = step(path_[depth], node.byte);
    if (to == dead) {
      i = node.below_end;
      continue;
    }
    for (const auto id : vocab_->tokens(node)) set_bit(out, id);
    if (escapes && node.below_end > i + 1 && configs_[static_cast<std::size_t>(to)].may_end)
      escapes->push_back(i);
    path_[depth + 1] = to;
    ++i;
  }
}

const pushdown::local& pushdown::local_at(std::uint32_t place) {
  place = classes_[place];
  const auto [i, fresh] = locals_.try_emplace(place);
  auto& found = i->second;
  if (!fresh) return found;
  found.tokens.assign((vocab_->vocab_size() + 63) / 64, 0);
  // On an empty stack, "may end" says that the place's rule may have ended.
  mark(0, static_cast<std::uint32_t>(vocab_->nodes().size()), intern({push(place, 0)}), found.tokens,
       &found.escapes);
  bytes_ += found.tokens.size() * 8 + found.escapes.size() * 4;
  return found;
}

/// The mask of a class where no token leads out of the rules on top, or there is nothing outside of them.
std::shared_ptr<const token_mask> pushdown::mask_of(std::int32_t config) {
  if (config == dead) return compute_mask(config);
  std::vector<std::uint32_t> key;
  // A copy: new stacks may come while places are looked at.
  const auto stacks = configs_[static_cast<std::size_t>(config)].stacks;
  for (const auto stack : stacks) {
    if (stack == 0) continue;
    const auto [place, below] = frames_[stack];
    if (below != 0 && !local_at(place).escapes.empty()) return compute_mask(config);
    key.push_back(classes_[place]);
  }
  std::ranges::sort(key);
  key.push_back(configs_[static_cast<std::size_t>(config)].may_end ? 1 : 0);
  if (const auto known = shared_masks_.find(key); known != shared_masks_.end()) return known->second;
  auto made = compute_mask(config);
  bytes_ += key.size() * 4 + 64;
  shared_masks_.emplace(std::move(key), made);
  return made;
}

std::shared_ptr<const token_mask> pushdown::compute_mask(std::int32_t config) {
  auto out = std::make_shared<token_mask>((vocab_->vocab_size() + 63) / 64);
  bool may_end = config == dead;
  if (config != dead) {
    const auto stacks = configs_[static_cast<std::size_t>(config)].stacks;
    may_end = configs_[static_cast<std::size_t>(config)].may_end;
    for (const auto stack : stacks) {
      if (stack == 0) continue;
      const auto [place, below] = frames_[stack];
      const auto& inside = local_at(place);
      for (std::size_t w = 0; w < out->size(); ++w) (*out)[w] |= inside.tokens[w];
      if (below == 0 || inside.escapes.empty()) continue;
      const auto outside = closure_of(below);
      for (const auto n : inside.escapes) mark(n + 1, vocab_->nodes()[n].below_end, outside, *out, nullptr);
    }
  }
  if (may_end || std::ranges::all_of(*out, [](auto word) { return word == 0; })) {
    for (const auto id : eog_ids_) set_bit(*out, id);
  }
  bytes_ += out->size() * 8;
  return out;
}

}  // namespace mooncaf
