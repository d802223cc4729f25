// Which blocks of a device hold what: never two owners, never a hole, never a block that somebody reads given
// away.

#include "runtime/model/kv_residency.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace mooncaf;

namespace {

constexpr std::uint32_t residency_block_tokens = 4;

/// Keys of a conversation: those with equal `branch` share everything, others the first `common` blocks.
std::vector<block_key> keys_of(std::uint64_t branch, std::size_t common, std::size_t blocks) {
  std::vector<block_key> keys;
  for (std::size_t b = 0; b < blocks; ++b) keys.push_back({b < common ? 1 : 2 + branch, b});
  return keys;
}

/// A pass of a sequence over positions [start, end).
std::uint32_t pass(kv_residency& r, const kv_residency::wish& w) {
  const auto place = r.take(w);
  REQUIRE(place);
  r.give_back(place->ticket, w.end);
  return place->valid;
}

}  // namespace

TEST_CASE("a prefix that one request computed is there for every other") {
  kv_residency r(16, residency_block_tokens);
  const auto first = keys_of(1, 2, 4), second = keys_of(2, 2, 4);
  CHECK(pass(r, {11, first, 0, 16}) == 0);
  CHECK(pass(r, {12, first, 12, 16}) == 12);  // the same prompt again
  CHECK(pass(r, {13, second, 8, 16}) == 8);   // another end
  CHECK(r.used() == 6);                       // 2 of both, 2 of each
}

TEST_CASE("blocks that share a prefix are one block, and what a pass writes is its own") {
  kv_residency r(16, residency_block_tokens);
  const auto keys = keys_of(1, 3, 3);
  pass(r, {1, keys, 0, 12});
  const auto a = r.take({2, keys, 12, 14}), b = r.take({3, keys, 12, 14});
  REQUIRE((a && b));
  CHECK(std::ranges::equal(a->blocks.first(3), b->blocks.first(3)));
  CHECK(a->blocks[3] != b->blocks[3]);
  // Position 11 is to be written once more: block 2 must not be the shared one.
  const auto c = r.take({4, keys, 11, 12});
  REQUIRE(c);
  CHECK(c->valid == 8);
  CHECK(c->blocks[2] != a->blocks[2]);
  for (const auto& p : {a, b, c}) r.give_back(p->ticket, p->valid);
  CHECK(r.consistent());
}

TEST_CASE("a sequence finds its unfinished block by its name, and its finished ones by their keys") {
  kv_residency r(16, residency_block_tokens);
  CHECK(pass(r, {7, {}, 0, 6}) == 0);
  CHECK(pass(r, {7, {}, 6, 7}) == 6);
  CHECK(pass(r, {8, {}, 6, 7}) == 0);  // somebody else's positions
  const auto keys = keys_of(1, 0, 1);
  CHECK(pass(r, {7, keys, 7, 8}) == 7);  // block 0 has a key from now on
  CHECK(pass(r, {9, keys, 4, 5}) == 4);
  CHECK(pass(r, {0, keys, 4, 5}) == 4);
  CHECK(r.consistent());
}

TEST_CASE("what nobody used for longest leaves first, children before their parents") {
  kv_residency r(6, residency_block_tokens);
  const auto old = keys_of(1, 0, 3), young = keys_of(2, 0, 3);
  pass(r, {1, old, 0, 12});
  pass(r, {2, young, 0, 12});
  pass(r, {1, old, 12, 12 + 1});  // needs a block: the end of the one that was not used
  CHECK(pass(r, {3, young, 12, 12}) == 8);
  CHECK(pass(r, {4, old, 12, 12}) == 12);
}

TEST_CASE("a use that is counted elsewhere on the node keeps a prefix here, and a pass warms memory") {
  kv_residency r(6, residency_block_tokens);
  auto& tree = r.tree();
  auto& memory = tree.open(storage_tier::dram);
  const auto old = keys_of(1, 0, 3), young = keys_of(2, 0, 3);
  pass(r, {1, old, 0, 12});
  pass(r, {2, young, 0, 12});
  const auto used = [&](const block_key& key) { return tree.last_used(tree.find(key)); };
  CHECK(used(old[2]) < used(young[0]));
  const auto before = used(old[0]);
  memory.insert(std::span{old}.first(2), 0, 0);  // it comes to memory, which is no use
  CHECK(used(old[0]) == before);
  const auto now = tree.next_time();  // a peer reads it from memory, say
  for (int i : {0, 1}) tree.touch(tree.find(old[static_cast<std::size_t>(i)]), now);
  pass(r, {3, keys_of(4, 0, 3), 0, 12});
  CHECK(r.match(young) == 1);  // its leaves went, and of the old one what was not used
  CHECK(r.match(old) == 2);
  pass(r, {4, old, 8, 9});
  CHECK(used(old[1]) > now);
  CHECK(memory.find(old[1]) == tree.find(old[1]));
  CHECK(r.consistent());
}

TEST_CASE("a pass that failed leaves what was there before it, and nothing else") {
  kv_residency r(8, residency_block_tokens);
  const auto keys = keys_of(1, 0, 4);
  pass(r, {1, keys, 0, 8});
  const auto broken = r.take({1, keys, 12, 16});
  REQUIRE(broken);
  CHECK(broken->valid == 8);
  r.give_back(broken->ticket, broken->valid);
  CHECK(pass(r, {2, keys, 16, 17}) == 8);
}

TEST_CASE(
    "what may stay is not written, is nobody else's to evict, and is "
    "everybody's once it is let go") {
  kv_residency r(8, residency_block_tokens, 2);
  const auto keys = keys_of(1, 0, 4), other = keys_of(2, 0, 6);
  const auto a = r.take({1, keys, 0, 14, true});
  REQUIRE(a);
  CHECK(a->write_from == 14);
  r.give_back(a->ticket, 14);
  CHECK(r.unwritten() == 3);
  CHECK_FALSE(r.take({2, other, 0, 24}));  // 6 blocks: the other 4 alone may be had
  const auto b = r.take({1, keys, 14, 15, true});
  REQUIRE(b);
  CHECK(b->valid == 14);
  CHECK(b->write_from == 15);
  r.give_back(b->ticket, 15);
  r.let_go(1);
  CHECK(r.used() == 3);  // the end of it had no key
  CHECK(pass(r, {3, keys, 12, 13}) == 12);
  CHECK(r.lost() == 0);
  pass(r, {2, other, 0, 24});
  CHECK(r.lost() > 0);
  CHECK(r.consistent());
}

TEST_CASE("who may not stay any longer writes all that had stayed") {
  kv_residency r(8, residency_block_tokens, 4);
  const auto keys = keys_of(1, 0, 5), other = keys_of(2, 0, 3);
  const auto a = r.take({1, keys, 0, 10, true});
  REQUIRE(a);
  r.give_back(a->ticket, 10);
  // Three blocks of the four that may be held are: one that needs two is
  // written at once.
  const auto b = r.take({2, other, 0, 6, true});
  REQUIRE(b);
  CHECK(b->write_from == 0);
  r.give_back(b->ticket, 6);
  CHECK(pass(r, {2, other, 6, 7}) == 6);
  // The first one outgrows the room.
  const auto c = r.take({1, keys, 10, 17, true});
  REQUIRE(c);
  CHECK(c->valid == 10);
  CHECK(c->write_from == 0);
  SUBCASE("a pass that fails has written nothing") {
    r.give_back(c->ticket, c->valid);
    const auto d = r.take({1, keys, 10, 17, true});
    REQUIRE(d);
    CHECK(d->valid == 10);
    CHECK(d->write_from == 0);
    r.give_back(d->ticket, 17);
  }
  SUBCASE("one that does not has written everything") { r.give_back(c->ticket, 17); }
  CHECK(r.unwritten() == 0);
  CHECK(r.consistent());
}

TEST_CASE("a request adopts what only the device has, and goes on behind it") {
  kv_residency r(12, residency_block_tokens, 4);
  const auto keys = keys_of(1, 0, 4);
  const auto a = r.take({1, keys, 0, 16, true});
  REQUIRE(a);
  r.give_back(a->ticket, 16);
  r.let_go(1);
  CHECK(r.match(keys) == 4);
  CHECK(r.adopt(2, keys, 4, 0) == 0);  // it has them elsewhere
  CHECK(r.adopt(3, keys, 1, 0) == 4);
  const auto b = r.take({3, keys, 16, 18, true});
  REQUIRE(b);
  CHECK(b->valid == 16);
  r.give_back(b->ticket, 18);
  // When it is written it has the first block in memory already.
  const auto c = r.take({3, keys, 18, 33, true});
  REQUIRE(c);
  CHECK(c->write_from == 4);
  r.give_back(c->ticket, 33);
  CHECK(r.consistent());
}

TEST_CASE(
    "the coldest chain is written before it has to leave, parents first; "
    "what is used often at once") {
  kv_residency r(8, residency_block_tokens);
  const auto cold = keys_of(1, 1, 3), warm = keys_of(2, 1, 3);
  for (const auto& [sequence, keys] : {std::pair{1, &cold}, {2, &warm}}) {
    const auto p = r.take({static_cast<std::uint64_t>(sequence), *keys, 0, 12, true});
    REQUIRE(p);
    r.give_back(p->ticket, 12);
    r.let_go(static_cast<std::uint64_t>(sequence));
  }
  CHECK(r.unwritten() == 5);
  CHECK_FALSE(r.next_write(3));  // so many are free
  const auto w = r.next_write(4);
  REQUIRE(w);
  REQUIRE(w->chain.size() == 3);
  for (std::uint32_t b = 0; b < 3; ++b) {
    CHECK(w->chain[b].key == cold[b]);
    CHECK(w->chain[b].parent == cold[b == 0 ? 0 : b - 1]);
    CHECK(w->chain[b].depth == b);
  }
  // Meanwhile it stays where it is, whatever is needed.
  const auto big = keys_of(3, 0, 5);
  pass(r, {4, big, 0, 20});
  CHECK(r.match(cold) == 3);
  r.wrote(w->id, 2);
  CHECK(r.unwritten() == 1);
  const auto rest = r.next_write(1);  // goes on with it
  REQUIRE(rest);
  CHECK(rest->chain.back().key == cold[2]);
  r.wrote(rest->id, 3);
  CHECK(r.unwritten() == 0);
  CHECK(r.lost() == 2);  // of the warm one, for which there was no time
  const auto p = r.take({5, warm, 4, 12, true});
  REQUIRE(p);
  r.give_back(p->ticket, 12);
  r.let_go(5);
  CHECK(r.adopt(6, warm, 0, 2) == 3);
  CHECK_FALSE(r.next_write(0));
  CHECK(r.adopt(7, warm, 0, 2) == 3);  // the second one that uses it
  const auto hot = r.next_write(0);
  REQUIRE(hot);
  CHECK(hot->chain.back().key == warm[2]);
  r.wrote(hot->id, 3);
  CHECK(r.unwritten() == 0);
  CHECK(r.consistent());
}

// Requests with pages of their own in the host's memory, as workers have them:
// which positions those hold is what the passes wrote there. Whatever is
// cancelled, fails, is let go, evicted or written beside, no pass reads from a
// page what is not in it, and no block that somebody reads changes.
TEST_CASE("what leaves next is written ahead, though warmer blocks could be had without loss") {
  kv_residency r(12, residency_block_tokens);
  const auto cold = keys_of(1, 0, 4), warm = keys_of(2, 0, 8);
  const auto first = r.take({1, cold, 0, 16, true});
  REQUIRE(first);
  r.give_back(first->ticket, 16);
  r.let_go(1);
  pass(r, {2, warm, 0, 32});  // memory has it
  const auto w = r.next_write(2);
  REQUIRE(w);
  CHECK(w->chain.size() == 4);
  r.wrote(w->id, 4);
  CHECK(!r.next_write(12));
  pass(r, {3, keys_of(3, 0, 3), 0, 12});
  CHECK(r.match(cold) == 1);
  CHECK(r.match(warm) == 8);
  CHECK(r.lost() == 0);
}

TEST_CASE("what somebody wants in memory is written next, behind what is there") {
  kv_residency r(12, residency_block_tokens, 4);
  const auto keys = keys_of(1, 0, 6), cold = keys_of(2, 0, 2);
  for (const auto& [id, own] : {std::pair{1, cold}, std::pair{2, keys}}) {
    const auto end = static_cast<std::uint32_t>(own.size()) * residency_block_tokens;
    const auto place = r.take({static_cast<std::uint64_t>(id), own, 0, end, true});
    REQUIRE(place);
    r.give_back(place->ticket, end);
    r.let_go(static_cast<std::uint64_t>(id));
  }
  CHECK(!r.next_write(0));
  CHECK(r.want(std::span{keys}.first(3), 3) == 3);  // all of it is there
  CHECK(!r.next_write(0));
  CHECK(r.want(std::span{keys}.first(3), 1) == 3);
  const auto w = r.next_write(0);
  REQUIRE(w);
  REQUIRE(w->chain.size() == 3);
  CHECK(w->chain.back().key == keys[2]);
  r.wrote(w->id, 2);  // memory had no more room
  const auto rest = r.next_write(0);
  REQUIRE(rest);
  r.wrote(rest->id, 3);
  CHECK(!r.next_write(0));
  // What memory has lost meanwhile is written once more.
  CHECK(r.want(keys, 0) == 6);
  const auto again = r.next_write(0);
  REQUIRE(again);
  CHECK(again->chain.size() == 6);
  r.wrote(again->id, 6);
  CHECK(r.consistent());
  // What the disk had and let go of, since the device gives it back, is written before it leaves, and not
  // sooner.
  const auto before = r.unwritten();
  auto& disk = r.tree().open(storage_tier::ssd, {}, {storage_tier::dram, storage_tier::device});
  const auto below = disk.insert(keys[5], keys[4], 5, 0);
  CHECK(r.unwritten() == before);
  CHECK(disk.copy(below) == copy_kind::comes_again);
  disk.erase(below);
  CHECK(r.unwritten() == before + 1);
  CHECK(!r.next_write(0));
  while (const auto next = r.next_write(12))
    r.wrote(next->id, static_cast<std::uint32_t>(next->chain.size()));
  CHECK(r.unwritten() == 0);
  CHECK(r.consistent());
}

TEST_CASE(
    "in any order of requests that stay, nothing is ever read that "
    "nobody wrote") {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::uint32_t longest = 8;
    kv_residency r(longest + below(20), residency_block_tokens, longest);
    auto& tree = r.tree();
    auto& in_memory = tree.open(storage_tier::dram);
    tree.tell({storage_tier::device}, 1 << 20);
    struct request {
      std::uint64_t branch = 0;
      std::vector<block_key> keys;
      std::uint32_t at = 0;                      ///< positions that are settled
      std::vector<bool> page;                    ///< positions that its pages hold
      std::optional<kv_residency::place> place;  ///< a pass is under way
      std::uint32_t end = 0;
      bool over = false;
      bool expected = false;
    };
    std::map<std::uint64_t, request> live;
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>> content;  // block: conversation, index
    const std::uint32_t common = 2;
    std::set<block_key> memory;  // published in the node's memory
    std::set<block_key> told;    // as the news have it
    std::vector<kv_residency::write> writes;
    std::uint64_t next = 1;
    const auto named = [&](std::uint64_t branch, std::uint32_t b) {
      return std::pair{b < common ? 0 : branch + 1, b};
    };
    for (int i = 0; i < 300; ++i) {
      switch (below(8)) {
        case 0: {
          if (live.size() > 4) break;
          auto& q = live[next];
          q.branch = below(3);
          q.keys = keys_of(q.branch, common, longest);
          q.page.assign(longest * residency_block_tokens, false);
          std::uint32_t here = 0;
          while (here < longest - 1 && memory.contains(q.keys[here])) ++here;
          if (below(4) == 0) here = 0;
          std::fill_n(q.page.begin(), here * residency_block_tokens, true);
          const auto held = r.adopt(next, std::span{q.keys}.first(longest - 1), here, below(2) * 2);
          q.at = std::max(here, held) * residency_block_tokens;
          ++next;
          break;
        }
        case 1:
          if (const auto w = r.next_write(below(r.blocks() + 2))) writes.push_back(*w);
          break;
        case 2:
          if (!writes.empty()) {
            const auto count = below(static_cast<std::uint32_t>(writes.front().chain.size()) + 1);
            for (std::uint32_t b = 0; b < count; ++b) {
              const auto& item = writes.front().chain[b];
              const auto branch = item.depth < common ? 0 : item.key.high - 2;
              REQUIRE(content[item.block] == named(branch, item.depth));
              memory.insert(item.key);
              in_memory.insert(item.key, item.parent, item.depth, 0);
            }
            r.wrote(writes.front().id, count);
            writes.erase(writes.begin());
          }
          break;
        case 3:
          if (!memory.empty() && below(4) == 0) {
            in_memory.erase(in_memory.find(*memory.rbegin()));
            memory.erase(std::prev(memory.end()));
          }
          for (const auto& e : tree.drain_events()) {
            if (e.tier != storage_tier::device) continue;
            if (e.what == block_change::removed) told.erase(e.name.key);
            else told.insert(e.name.key);
          }
          for (std::uint64_t branch = 0; branch < 3; ++branch) {
            const auto keys = keys_of(branch, common, longest);
            for (const auto& k : keys) {
              const auto h = tree.in(storage_tier::device).find(k);
              if (h == prefix_tree::none) continue;
              REQUIRE((told.contains(k) || memory.contains(k)));
              if (memory.contains(k)) REQUIRE(tree.in(storage_tier::device).written(h));
            }
            if (below(4) == 0) r.want(keys, below(longest));
          }
          break;
        case 4:
          if (!live.empty() && below(3) == 0) {  // cancelled, or done
            auto at = std::next(live.begin(), below(static_cast<std::uint32_t>(live.size())));
            r.let_go(at->first);
            if (at->second.place) at->second.over = true;
            else live.erase(at);
          }
          break;
        default: {
          if (live.empty()) break;
          auto at = std::next(live.begin(), below(static_cast<std::uint32_t>(live.size())));
          auto& [id, q] = *at;
          if (!q.place) {
            q.end = std::min(longest * residency_block_tokens, q.at + 1 + below(10));
            if (q.end == q.at) break;
            // Some come from elsewhere beside all passes, up to where they go on.
            q.expected = below(6) == 0 && q.at > 0;
            if (q.expected) q.end = q.at;
            if (q.expected) std::fill_n(q.page.begin(), q.at, true);
            q.place = q.expected ? r.expect({id, q.keys, q.at, q.at})
                                 : r.take({id, q.keys, q.at, q.end, below(4) != 0});
            if (!q.place) break;
            const auto& p = *q.place;
            const auto missing = r.missing(p.valid, q.at);
            for (auto b = missing.first; b < missing.last; ++b) {
              for (auto t = b * residency_block_tokens; t < std::min(q.at, (b + 1) * residency_block_tokens);
                   ++t)
                REQUIRE(q.page[t]);
              content[p.blocks[b]] = named(q.branch, b);
            }
            for (std::uint32_t b = 0; b * residency_block_tokens < p.valid; ++b)
              REQUIRE(content[p.blocks[b]] == named(q.branch, b));
            for (auto b = q.at / residency_block_tokens; b < p.blocks.size(); ++b)
              content[p.blocks[b]] = named(q.branch, b);
          } else {
            const bool fails = below(5) == 0;
            if (!fails) {
              for (auto t = q.place->write_from; t < q.end; ++t) q.page[t] = true;
              q.at = q.end;
            }
            r.give_back(q.place->ticket, fails ? q.place->valid : q.end);
            q.place.reset();
            if (q.over) {
              r.let_go(id);
              live.erase(at);
            }
          }
        }
      }
      REQUIRE(r.consistent());
    }
    for (auto& w : writes) r.wrote(w.id, 0);
    for (auto& [id, q] : live) {
      if (q.place) r.give_back(q.place->ticket, q.place->valid);
      r.let_go(id);
    }
    REQUIRE(r.consistent());
    REQUIRE_FALSE(r.lent());
    CHECK(r.take({0, {}, 0, r.blocks() * residency_block_tokens}));  // nothing is held any longer
  }
}

TEST_CASE(
    "any order of passes keeps blocks whole, single-owned where they are "
    "written, and prefixes closed") {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    kv_residency r(3 + below(30), residency_block_tokens);
    struct pass_under_way {
      kv_residency::place place;
      std::vector<block_key> keys;
      std::uint64_t sequence;
      std::uint32_t start, end;
    };
    std::map<std::uint64_t, pass_under_way> under_way;
    // What a block holds, as its writer says: the conversation and the position of its first token.
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>> content;
    std::map<std::uint64_t, std::uint64_t> name_of;  // the conversation that a sequence goes on with
    for (int i = 0; i < 200; ++i) {
      if (under_way.empty() || below(2) == 0) {
        const auto branch = std::uint64_t{below(3)};
        const auto common = std::size_t{2};
        auto keys = keys_of(branch, common, below(8));
        const auto sequence = below(3) == 0 ? 0 : branch * 10 + 1 + below(2);
        const auto start = below(40), end = start + 1 + below(12);
        auto& mine = under_way[static_cast<std::uint64_t>(i) + 1000];
        mine = {{}, std::move(keys), sequence, start, end};
        const auto place = r.take({sequence, mine.keys, start, end});
        if (!place) {
          REQUIRE((under_way.size() > 1 || r.blocks_for(end) > r.blocks()));
          under_way.erase(static_cast<std::uint64_t>(i) + 1000);
        } else {
          mine.place = *place;
          REQUIRE(place->blocks.size() == r.blocks_for(end));
          REQUIRE(place->valid <= start);
          for (std::uint32_t b = 0; b < place->blocks.size(); ++b) {
            const auto holds = std::pair{b < common ? 0 : branch + 1, b};
            if (b * residency_block_tokens < place->valid) REQUIRE(content[place->blocks[b]] == holds);
            else content[place->blocks[b]] = holds;  // loaded or computed
            if ((b + 1) * residency_block_tokens <= place->valid) continue;
            for (const auto& [id, other] : under_way)  // it will be written: nobody else may have it
              if (id != static_cast<std::uint64_t>(i) + 1000)
                REQUIRE(std::ranges::count(other.place.blocks, place->blocks[b]) == 0);
          }
        }
      } else {
        auto at = std::next(under_way.begin(), below(static_cast<std::uint32_t>(under_way.size())));
        const auto& p = at->second;
        r.give_back(p.place.ticket, below(4) == 0 ? p.place.valid : p.end);
        under_way.erase(at);
      }
      REQUIRE(r.consistent());
    }
    for (const auto& [id, p] : under_way) r.give_back(p.place.ticket, p.place.valid);
    REQUIRE(r.consistent());
    REQUIRE_FALSE(r.lent());
    // All of it can be had again.
    const auto all = r.take({0, {}, 0, r.blocks() * residency_block_tokens});
    REQUIRE(all);
    CHECK(all->valid == 0);
  }
}
