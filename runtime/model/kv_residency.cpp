#include "runtime/model/kv_residency.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace mooncaf {

namespace {

/// Key in the tree of a block that has none: the unfinished end of a sequence. Other keys are hashes.
block_key end_key(std::uint64_t sequence, std::uint32_t b) { return {~sequence, b}; }

}  // namespace

kv_residency::kv_residency(std::uint32_t blocks, std::uint32_t block_tokens, std::uint32_t spare,
                           std::shared_ptr<prefix_tree> tree, bool offered)
    : block_tokens_(block_tokens),
      cells_(blocks),
      tree_(tree ? std::move(tree) : std::make_shared<prefix_tree>()),
      order_(tree_->open(storage_tier::device)),
      offered_(offered),
      spare_(spare) {
  for (std::uint32_t i = blocks; i > 0; --i) free_.push_back(i - 1);
}

std::uint32_t kv_residency::blocks_for(std::uint32_t tokens) const noexcept {
  return (tokens + block_tokens_ - 1) / block_tokens_;
}

kv_residency::block_range kv_residency::missing(std::uint32_t valid, std::uint32_t start) const noexcept {
  if (valid >= start) return {};
  return {valid / block_tokens_, blocks_for(start)};
}

std::optional<kv_residency::place> kv_residency::take(const wish& w) {
  if (auto before = stays_.extract(w.sequence)) return go_on(w, std::move(before.mapped()));
  taken t;
  t.what = w;
  const auto settled = std::min<std::size_t>(w.start / block_tokens_, w.keys.size());
  for (std::size_t b = 0; b < settled; ++b) {
    const auto found = find(w.keys[b]);
    if (found == none) break;
    set_busy(found);
    t.blocks.push_back(found);
  }
  t.shared = static_cast<std::uint32_t>(t.blocks.size());
  const auto valid = adopt_tail(t);
  const auto have = static_cast<std::uint32_t>(t.blocks.size());
  if (const auto needed = blocks_for(w.end); needed > have && !make_room(needed - have)) {
    settle(t, valid);
    return std::nullopt;
  }
  return lend(std::move(t), valid);
}

std::optional<kv_residency::place> kv_residency::expect(const wish& w) {
  if (w.sequence == 0 || stays_.contains(w.sequence)) return std::nullopt;
  if (staying_ + blocks_for(w.end) + spare_ > blocks()) return std::nullopt;
  auto own = w;
  own.may_stay = false;
  const auto taken_now = take(own);
  if (!taken_now) return std::nullopt;
  tickets_.at(taken_now->ticket).expected = true;
  staying_ += static_cast<std::uint32_t>(taken_now->blocks.size());
  return taken_now;
}

/// Lends a staying sequence the blocks that it kept, and room behind them.
std::optional<kv_residency::place> kv_residency::go_on(const wish& w, stay&& before) {
  const auto have = static_cast<std::uint32_t>(before.blocks.size());
  if (const auto needed = blocks_for(w.end); needed > have && !make_room(needed - have)) {
    stays_.emplace(w.sequence, std::move(before));
    return std::nullopt;
  }
  taken t;
  t.what = w;
  t.blocks = before.blocks;
  const auto valid = std::min(before.valid, w.start);
  t.before = std::move(before);
  return lend(std::move(t), valid);
}

/// Fills the ticket up with free blocks. @pre there are enough.
std::optional<kv_residency::place> kv_residency::lend(taken&& t, std::uint32_t valid) {
  const auto needed = blocks_for(t.what.end);
  while (t.blocks.size() < needed) {
    t.blocks.push_back(free_.back());
    free_.pop_back();
    set_busy(t.blocks.back());
  }
  const auto held = t.before ? static_cast<std::uint32_t>(t.before->blocks.size()) : 0;
  const auto holds = static_cast<std::uint32_t>(t.blocks.size());
  t.stays = t.what.may_stay && t.what.sequence != 0 && staying_ - held + holds + spare_ <= blocks();
  if (t.stays) staying_ += holds - held;
  t.write_from = t.stays    ? t.what.end
                 : t.before ? std::min(t.what.start, t.before->written * block_tokens_)
                            : t.what.start;
  const auto ticket = next_ticket_++;
  const auto& kept = tickets_.emplace(ticket, std::move(t)).first->second;
  return place{ticket, kept.blocks, valid, kept.write_from};
}

void kv_residency::give_back(std::uint64_t ticket, std::uint32_t valid) {
  auto node = tickets_.extract(ticket);
  auto& t = node.mapped();
  const bool failed = valid < t.what.end;
  const auto counted = static_cast<std::uint32_t>(t.stays || t.expected ? t.blocks.size()
                                                  : t.before            ? t.before->blocks.size()
                                                                        : 0);
  staying_ -= counted;
  // Rows that a failed pass should have written are still on the device alone.
  if (!t.ends && (t.stays || (t.before && failed))) return keep(std::move(t), valid);
  if (!t.before && !t.stays) return settle(t, valid);
  // The sequence ended during the pass: its blocks are shared, and a pass that wrote them has put them into
  // the host's memory, too.
  for (std::uint32_t b = 0; b < t.blocks.size(); ++b) {
    if ((b + 1) * block_tokens_ <= valid) name(t, b, t.stays || failed);
    if (!t.stays && !failed && (b + 1) * block_tokens_ > t.write_from && is_unwritten(t.blocks[b]))
      order_.set_written(cells_[t.blocks[b]].place, true);
  }
  if (t.ends) return leave({std::move(t.blocks), valid, 0});
  settle(t, valid);
}

/// Lets the sequence of a ticket keep its blocks until its next pass.
void kv_residency::keep(taken&& t, std::uint32_t valid) {
  stay s;
  s.written = t.before ? t.before->written : t.what.start / block_tokens_;
  if (t.before) valid = std::max(valid, std::min(t.before->valid, t.what.end));
  s.valid = valid;
  for (std::uint32_t b = 0; b < t.blocks.size(); ++b) {
    if (b >= blocks_for(valid)) release(t.blocks[b]);
    else if ((b + 1) * block_tokens_ <= valid) name(t, b, true);
  }
  t.blocks.resize(std::min<std::size_t>(t.blocks.size(), blocks_for(valid)));
  s.blocks = std::move(t.blocks);
  staying_ += static_cast<std::uint32_t>(s.blocks.size());
  stays_.emplace(t.what.sequence, std::move(s));
}

/// Puts a full block into the tree under its key, if it has one and the tree has no other block for it.
bool kv_residency::name(const taken& t, std::uint32_t b, bool unwritten) {
  auto& c = cells_[t.blocks[b]];
  const auto keys = t.what.keys;
  if (c.named || b >= keys.size() || find(keys[b]) != none) return false;
  c.named = true;
  c.depth = b;
  put_in_order(t.blocks[b], keys[b], b == 0 ? keys[b] : keys[b - 1]);
  if (!offered_) return true;
  order_.set_written(c.place,
                     !unwritten || tree_->shown(c.place).meets({storage_tier::dram, storage_tier::ssd}));
  order_.show(c.place);
  return true;
}

/// Shares the blocks that an ended sequence kept; blocks without a key are freed.
void kv_residency::leave(const stay& s) {
  tree_->next_time();
  for (auto b = s.blocks.size(); b-- > 0;) {
    auto& c = cells_[s.blocks[b]];
    if (!c.named) release(s.blocks[b]);
    else if (--c.pins == 0) set_idle(s.blocks[b]);
  }
}

void kv_residency::let_go(std::uint64_t sequence) {
  if (const auto s = stays_.extract(sequence)) {
    staying_ -= static_cast<std::uint32_t>(s.mapped().blocks.size());
    return leave(s.mapped());
  }
  for (auto& [ticket, t] : tickets_)
    if (t.what.sequence == sequence && sequence != 0) t.ends = true;
}

std::uint32_t kv_residency::match(std::span<const block_key> keys) const noexcept {
  const auto end = std::ranges::find_if(keys, [&](const block_key& k) { return find(k) == none; });
  return static_cast<std::uint32_t>(end - keys.begin());
}

std::uint32_t kv_residency::adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from,
                                  std::uint32_t hot) {
  if (sequence == 0 || stays_.contains(sequence)) return 0;
  stay s;
  s.written = from;
  for (const auto& key : keys) {
    const auto found = find(key);
    if (found == none) break;
    ++cells_[found].uses;
    if (s.blocks.size() >= from) miss(found);
    s.blocks.push_back(found);
  }
  // The deepest hot block stands for its parents, which were used as often.
  const auto is_hot = [&](std::uint32_t block) {
    return hot != 0 && cells_[block].uses >= hot && is_unwritten(block);
  };
  if (const auto last = std::ranges::find_if(s.blocks.rbegin(), s.blocks.rend(), is_hot);
      last != s.blocks.rend())
    hot_.push_back(key_of(*last));
  const auto room = blocks() - std::min(blocks(), staying_ + spare_);
  s.blocks.resize(std::min<std::size_t>(s.blocks.size(), room));
  const auto held = static_cast<std::uint32_t>(s.blocks.size());
  if (held <= from) return 0;
  for (const auto block : s.blocks) set_busy(block);
  s.valid = held * block_tokens_;
  staying_ += held;
  stays_.emplace(sequence, std::move(s));
  return held;
}

/// The chain of blocks that ends with this one, as far back as the device has it.
std::vector<std::uint32_t> kv_residency::chain_to(std::uint32_t block) const {
  std::vector<std::uint32_t> chain{block};
  while (cells_[chain.back()].depth > 0) {
    const auto above = tree_->parent(cells_[chain.back()].place);
    if (above == prefix_tree::none || !order_.here(above)) break;
    chain.push_back(in_place_[above]);
  }
  std::ranges::reverse(chain);
  return chain;
}

std::optional<kv_residency::write> kv_residency::next_write(std::uint32_t ahead) {
  auto wanted = none;
  while (!hot_.empty() && wanted == none) {
    const auto found = find(hot_.back());
    hot_.pop_back();
    if (found != none && is_unwritten(found) && cells_[found].writing == 0) wanted = found;
  }
  if (wanted == none && free_.size() < ahead && order_.unwritten_idle() > 0)
    wanted = first_to_lose(ahead - static_cast<std::uint32_t>(free_.size()));
  if (wanted == none) return std::nullopt;
  write w;
  w.id = next_write_++;
  auto& blocks = writes_[w.id] = chain_to(wanted);
  for (const auto block : blocks) {
    const auto handle = cells_[block].place;
    set_writing(block, true);
    w.chain.push_back({tree_->key(handle), tree_->parent_key(handle), tree_->depth(handle), block});
  }
  return w;
}

void kv_residency::wrote(std::uint64_t id, std::uint32_t count) {
  const auto w = writes_.extract(id);
  // A chain that was written in part goes on next.
  if (const auto& blocks = w.mapped(); count > 0 && count < blocks.size())
    hot_.push_back(key_of(blocks.back()));
  for (std::uint32_t i = 0; i < w.mapped().size(); ++i) {
    const auto block = w.mapped()[i];
    set_writing(block, false);
    if (i < count && offered_) order_.set_written(cells_[block].place, true);
  }
}

std::uint32_t kv_residency::want(std::span<const block_key> keys, std::uint32_t from) {
  const auto held = match(keys);
  for (auto b = from; b < held; ++b) miss(find(keys[b]));
  if (held > from) hot_.push_back(keys[held - 1]);
  return held;
}

void kv_residency::miss(std::uint32_t block) {
  const auto handle = cells_[block].place;
  if (offered_ && !tree_->shown(handle).meets({storage_tier::dram, storage_tier::ssd}))
    order_.set_written(handle, false);
}

/// The coldest unwritten block that no write under way has, if it is among the `count` blocks that leave
/// next: warmer blocks do not leave in its place, written or not.
std::uint32_t kv_residency::first_to_lose(std::uint32_t count) const {
  const auto colder = [this](std::uint32_t a, std::uint32_t b) {
    const auto mine = tree_->last_used(cells_[a].place), theirs = tree_->last_used(cells_[b].place);
    return mine != theirs ? mine < theirs : cells_[a].depth > cells_[b].depth;
  };
  std::vector<std::uint32_t> leaving;
  leaving.reserve(idle_);
  for (std::uint32_t b = 0; b < cells_.size(); ++b)
    if (cells_[b].idle) leaving.push_back(b);
  if (count < leaving.size()) {
    std::ranges::nth_element(leaving, leaving.begin() + count, colder);
    leaving.resize(count);
  }
  auto coldest = none;
  for (const auto b : leaving) {
    if (!is_unwritten(b) || cells_[b].writing != 0) continue;
    if (coldest == none || colder(b, coldest)) coldest = b;
  }
  return coldest;
}

/// Keeps a block from leaving while a write has it.
void kv_residency::set_writing(std::uint32_t block, bool value) {
  auto& c = cells_[block];
  c.writing += value ? 1 : -1u;
  value ? order_.pin(c.place) : order_.unpin(c.place);
}

void kv_residency::put_in_order(std::uint32_t block, const block_key& key, const block_key& parent) {
  auto& c = cells_[block];
  c.place = order_.insert_hidden(key, parent, c.depth, tree_->time());
  in_place_.resize(std::max<std::size_t>(in_place_.size(), c.place + 1), none);
  in_place_[c.place] = block;
  if (c.pins > 0) order_.pin(c.place);
}

void kv_residency::take_out_of_order(std::uint32_t block) {
  auto& c = cells_[block];
  if (c.place != prefix_tree::none) order_.erase(std::exchange(c.place, prefix_tree::none));
}

/// Takes the blocks of the sequence's unfinished end. @returns positions that `t.blocks` hold.
std::uint32_t kv_residency::adopt_tail(taken& t) {
  const auto shared = t.shared * block_tokens_;
  auto found = t.what.sequence == 0 ? tails_.end() : tails_.find(t.what.sequence);
  if (found == tails_.end()) return shared;
  const auto old = std::move(found->second);
  tails_.erase(found);
  const auto needed = blocks_for(t.what.end);
  for (std::size_t i = 0; i < old.blocks.size(); ++i) {
    const auto block = old.blocks[i];
    set_busy(block);
    take_out_of_order(block);
    // Blocks that became useless: another block has their key by now, the block before them is gone, or the
    // pass does not reach them.
    if (old.first + i != t.blocks.size() || t.blocks.size() == needed) release(block);
    else t.blocks.push_back(block);
  }
  const auto held =
      std::min({old.valid, t.what.start, static_cast<std::uint32_t>(t.blocks.size()) * block_tokens_});
  return std::max(shared, held);
}

/// Parts with a ticket's blocks, of which positions before `valid` hold KV. The last goes first, as blocks
/// leave in this order.
void kv_residency::settle(const taken& t, std::uint32_t valid) {
  const auto sequence = t.what.sequence;
  const auto keys = t.what.keys;
  tail rest;
  tree_->next_time();
  for (auto b = static_cast<std::uint32_t>(t.blocks.size()); b-- > 0;) {
    const auto block = t.blocks[b];
    auto& c = cells_[block];
    if (b < t.shared || c.named) {
      if (--c.pins == 0) set_idle(block);
    } else if (b * block_tokens_ >= valid) {
      release(block);
    } else if ((b + 1) * block_tokens_ <= valid && b < keys.size()) {
      if (name(t, b, false)) {
        --c.pins;
        set_idle(block);
      } else {  // another pass computed the same block meanwhile: it counts as used now, like its children
        release(block);
        tree_->keep_warm(cells_[find(keys[b])].place, tree_->time());
      }
    } else if (sequence == 0) {
      release(block);
    } else {
      if (rest.blocks.empty()) drop_tail(sequence);
      c.sequence = sequence;
      c.depth = b;
      const auto before = b == 0                          ? end_key(sequence, 0)
                          : cells_[t.blocks[b - 1]].named ? key_of(t.blocks[b - 1])
                                                          : end_key(sequence, b - 1);
      put_in_order(block, end_key(sequence, b), before);
      --c.pins;
      set_idle(block);
      rest.first = b;
      rest.blocks.push_back(block);
    }
  }
  if (rest.blocks.empty()) return;
  std::ranges::reverse(rest.blocks);
  rest.valid = valid;
  tails_.emplace(sequence, std::move(rest));
}

void kv_residency::clear() {
  order_.clear();
  std::ranges::fill(cells_, cell{});
  free_.clear();
  for (auto i = blocks(); i > 0; --i) free_.push_back(i - 1);
  stays_.clear();
  writes_.clear();
  hot_.clear();
  tails_.clear();
  tickets_.clear();
  idle_ = staying_ = 0;
  lost_ = 0;
}

void kv_residency::forget() {
  make_room(blocks());
  lost_ = 0;
  hot_.clear();
}

bool kv_residency::make_room(std::uint32_t wanted) {
  while (free_.size() < wanted && order_.victim() != prefix_tree::none) evict(in_place_[order_.victim()]);
  if (free_.size() >= wanted) return true;
  // Each block left has a child in use, computed by another pass beside this one: the deepest goes first.
  std::vector<std::uint32_t> rest;
  for (std::uint32_t b = 0; b < cells_.size(); ++b)
    if (cells_[b].idle && cells_[b].writing == 0) rest.push_back(b);
  std::ranges::stable_sort(rest, std::greater{}, [&](std::uint32_t b) { return cells_[b].depth; });
  for (const auto block : rest) {
    if (free_.size() >= wanted) break;
    evict(block);
  }
  return free_.size() >= wanted;
}

void kv_residency::release(std::uint32_t block) {
  take_out_of_order(block);
  cells_[block] = {};
  free_.push_back(block);
}

void kv_residency::evict(std::uint32_t block) {
  const auto& c = cells_[block];
  if (c.named) {
    lost_ += is_unwritten(block) ? 1 : 0;
  } else {
    const auto owner = tails_.find(c.sequence);
    auto& t = owner->second;
    t.blocks.pop_back();  // the first of a tail to leave is its last
    t.valid = std::min(t.valid, (t.first + static_cast<std::uint32_t>(t.blocks.size())) * block_tokens_);
    if (t.blocks.empty()) tails_.erase(owner);
  }
  set_busy(block);
  release(block);
}

void kv_residency::drop_tail(std::uint64_t sequence) {
  const auto old = tails_.extract(sequence);
  if (old.empty()) return;
  for (const auto block : old.mapped().blocks) {
    set_busy(block);
    release(block);
  }
}

/// The block may leave from now on, as the most recently used one. @pre it has no pins.
void kv_residency::set_idle(std::uint32_t block) {
  auto& c = cells_[block];
  c.idle = true;
  ++idle_;
  tree_->keep_warm(c.place, tree_->time());
  order_.unpin(c.place);
}

void kv_residency::set_busy(std::uint32_t block) {
  auto& c = cells_[block];
  ++c.pins;
  if (!c.idle) return;
  c.idle = false;
  --idle_;
  order_.pin(c.place);
}

// Counts every block anew from cells, tickets and stays, and compares with the running numbers.
bool kv_residency::consistent() const {
  std::vector<std::uint32_t> pins(cells_.size()), seen(cells_.size());
  std::uint32_t staying = 0, idle = 0;
  for (const auto& [id, t] : tickets_) {
    for (const auto block : t.blocks) ++pins[block];
    if (t.stays || t.expected) staying += static_cast<std::uint32_t>(t.blocks.size());
    else if (t.before) staying += static_cast<std::uint32_t>(t.before->blocks.size());
  }
  for (const auto& [sequence, s] : stays_) {
    for (const auto block : s.blocks) ++pins[block];
    staying += static_cast<std::uint32_t>(s.blocks.size());
    if (s.valid > s.blocks.size() * block_tokens_) return false;
  }
  for (const auto block : free_)
    if (++seen[block] != 1 || pins[block] != 0) return false;
  std::size_t placed = 0;
  for (std::uint32_t b = 0; b < cells_.size(); ++b) {
    const auto& c = cells_[b];
    if (c.idle && (c.pins != 0 || ++seen[b] != 1)) return false;
    idle += c.idle;
    placed += c.place != prefix_tree::none;
    if (c.place == prefix_tree::none ? c.idle || c.named
                                     : in_place_[c.place] != b || order_.pins(c.place) != !c.idle + c.writing)
      return false;
  }
  if (placed != order_.size() || !tree_->consistent()) return false;
  for (std::uint32_t b = 0; b < cells_.size(); ++b) {
    const auto& c = cells_[b];
    if (c.pins != pins[b] || (c.pins == 0) != (seen[b] == 1)) return false;
    if (!c.named && c.pins > 1) return false;
    if (c.place != prefix_tree::none && order_.shown(c.place) != (c.named && offered_)) return false;
  }
  for (const auto& [sequence, t] : tails_) {
    if (t.blocks.empty() || t.valid > (t.first + t.blocks.size()) * block_tokens_) return false;
    for (const auto block : t.blocks)
      if (!cells_[block].idle || cells_[block].sequence != sequence || cells_[block].named) return false;
  }
  return staying == staying_ && idle == idle_;
}

}  // namespace mooncaf
