// The blocks that an engine tells of, under our names: whatever size its blocks have, what is announced is what a prompt of
// these tokens would find there.

#include "runtime/engines/told_blocks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "recorded.hpp"
#include "runtime/sched/block_hash.hpp"

using namespace mooncaf;

namespace {

constexpr node_id self{9};

using tokens = std::vector<std::int32_t>;

/// An engine's prefix cache: blocks by all tokens up to their end. Only the end of a chain is let go.
class cache {
 public:
  explicit cache(std::uint32_t block_tokens) : block_tokens_(block_tokens) {}

  /// The news of a prompt that was computed. @param medium  where it is kept.
  kv_news store(const tokens& prompt, const std::string& medium) {
    kv_news out;
    out.block_tokens = block_tokens_;
    out.medium = medium;
    for (std::size_t end = block_tokens_; end <= prompt.size(); end += block_tokens_) {
      const tokens whole{prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(end)};
      if (out.blocks.empty() && holds(whole, medium)) {
        out.parent = name(whole);
        continue;
      }
      held_[whole].insert(medium);
      out.blocks.push_back(name(whole));
      out.tokens.insert(out.tokens.end(), whole.end() - block_tokens_, whole.end());
    }
    out.plain = out.blocks.size();
    return out;
  }
  /// Lets go of a random block that no other follows in that medium.
  std::optional<kv_news> evict(std::mt19937& random, const std::string& medium) {
    std::vector<tokens> ends;
    for (const auto& [whole, media] : held_) {
      if (!media.contains(medium)) continue;
      const auto followed = std::ranges::any_of(held_, [&](const auto& other) {
        return other.first.size() == whole.size() + block_tokens_ && other.second.contains(medium) &&
               std::equal(whole.begin(), whole.end(), other.first.begin());
      });
      if (!followed) ends.push_back(whole);
    }
    if (ends.empty()) return std::nullopt;
    const auto gone = ends[random() % ends.size()];
    held_[gone].erase(medium);
    if (held_[gone].empty()) held_.erase(gone);
    kv_news out;
    out.what = block_change::removed;
    out.medium = medium;
    out.blocks = {name(gone)};
    return out;
  }
  bool holds(const tokens& whole) const { return held_.contains(whole); }
  const auto& held() const { return held_; }
  void clear() { held_.clear(); }

 private:
  bool holds(const tokens& whole, const std::string& medium) const {
    const auto i = held_.find(whole);
    return i != held_.end() && i->second.contains(medium);
  }
  /// Any name will do; the engine's own have nothing to do with ours.
  static hash128 name(const tokens& whole) { return hash_bytes128(std::as_bytes(std::span{whole}), 17); }

  std::uint32_t block_tokens_;
  std::map<tokens, std::set<std::string>> held_;
};

/// Our blocks whose last token lies in a block that the cache holds.
std::set<block_key> expected(const cache& engine, std::uint32_t engine_block, std::uint32_t ours) {
  std::set<block_key> out;
  for (const auto& [whole, media] : engine.held()) {
    const auto keys = block_keys(whole, ours, test_root);
    for (std::size_t i = 0; i < keys.size(); ++i)
      if ((i + 1) * ours > whole.size() - engine_block) out.insert(keys[i]);
  }
  return out;
}

/// What a conductor makes of the announcements.
struct conductor_view {
  std::set<block_key> held;
  std::uint64_t next = 0;

  void take(const std::vector<block_event_batch>& batches) {
    for (const auto& batch : batches) {
      CHECK(batch.node == self);
      if (batch.snapshot && batch.part == 0) {
        held.clear();
        next = batch.first_seq + 1;
      } else if (!batch.snapshot) {
        CHECK(batch.first_seq == next);
        next += batch.events.size();
      }
      for (const auto& e : batch.events) {
        if (e.what == block_change::removed) CHECK(held.erase(e.name.key) == 1);
        else CHECK(held.insert(e.name.key).second);
      }
    }
  }
};

}  // namespace

TEST_CASE("vLLM's own news name the blocks of the prompts that it computed") {
  told_blocks told{test_root, 32};
  held_blocks held;
  const auto news = recorded().news;
  const auto apply = [&](std::size_t i) {
    const auto events = read_kv_news(news[i]);
    REQUIRE(events);
    for (const auto& event : *events) told.apply(event, held);
  };
  const auto plain = block_keys(numbers(1000, 100), 32, test_root);
  const block_key tenant{0x0123456789abcdef, 0x0123456789abcdef};
  const auto salted = block_keys(numbers(1000, 100), 32, tenant);
  apply(0);
  CHECK(held.leading(plain) == 3);
  CHECK(held.leading(salted) == 0);
  apply(1);
  CHECK(held.leading(salted) == 3);
  CHECK(told_blocks::salt_of(tenant) == "0123456789abcdef0123456789abcdef");
  apply(2);
  CHECK(held.leading(plain) == 0);
  CHECK(held.size() == 1);
}

TEST_CASE("blocks of any size: what is announced is what the engine holds") {
  for (const auto& [theirs, ours] :
       {std::pair{16u, 64u}, {64u, 16u}, {32u, 32u}, {48u, 32u}, {16u, 24u}, {1u, 5u}}) {
    std::mt19937 random{theirs * 1000 + ours};
    cache engine{theirs};
    told_blocks told{test_root, ours};
    held_blocks held;
    conductor_view seen;
    seen.take(held.snapshot(self));
    std::vector<tokens> prompts;
    for (int step = 0; step < 300; ++step) {
      CAPTURE(theirs);
      CAPTURE(ours);
      CAPTURE(step);
      const auto medium = random() % 4 == 0 ? "CPU" : "GPU";
      const auto what = random() % 100;
      if (what < 50) {
        // A prompt that goes on where another one stood, or begins anew.
        tokens prompt;
        if (!prompts.empty() && random() % 3 != 0) {
          prompt = prompts[random() % prompts.size()];
          prompt.resize(random() % (prompt.size() + 1));
        }
        const auto more = random() % (4 * std::max(theirs, ours));
        for (std::size_t i = 0; i < more; ++i) prompt.push_back(static_cast<std::int32_t>(random() % 3));
        prompts.push_back(prompt);
        told.apply(engine.store(prompt, medium), held);
      } else if (what < 97) {
        if (const auto gone = engine.evict(random, medium)) told.apply(*gone, held);
      } else if (what < 98) {
        engine.clear();
        kv_news all;
        all.what = block_change::removed;
        all.all = true;
        told.apply(all, held);
      } else {
        seen.take(held.snapshot(self));
      }
      seen.take(held.take_changes(self));
      CHECK(seen.held == expected(engine, theirs, ours));
    }
  }
}

TEST_CASE("what follows a block that was never heard of cannot be named") {
  told_blocks told{test_root, 2};
  held_blocks held;
  kv_news news;
  news.blocks = {{0, 5}};
  news.parent = hash128{0, 4};
  news.tokens = {1, 2};
  news.block_tokens = 2;
  news.plain = 1;
  told.apply(news, held);
  CHECK(held.size() == 0);
  news.parent.reset();
  news.salt = "another client's";
  told.apply(news, held);
  CHECK(held.size() == 0);
  news.salt.clear();
  told.apply(news, held);
  CHECK(held.size() == 1);
  told.forget(held);
  CHECK(held.size() == 0);
  CHECK(told.size() == 0);
}

TEST_CASE("more blocks than a message takes come in several, without a gap") {
  held_blocks held;
  conductor_view seen;
  for (std::uint64_t i = 1; i <= 2000; ++i) held.add({{i, 1}, test_root, 0});
  seen.take(held.snapshot(self));
  CHECK(seen.held.size() == 2000);
  for (std::uint64_t i = 1; i <= 1500; ++i) held.drop({i, 1});
  const auto batches = held.take_changes(self);
  CHECK(batches.size() == 3);
  seen.take(batches);
  CHECK(seen.held.size() == 500);
}
