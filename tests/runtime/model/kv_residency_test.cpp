// Which blocks of a device hold what: never two owners, never a hole, never a block that somebody reads given
// away.

#include "runtime/model/kv_residency.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace mooncaf;

namespace {

constexpr std::uint32_t block_tokens = 4;

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
  kv_residency r(16, block_tokens);
  const auto first = keys_of(1, 2, 4), second = keys_of(2, 2, 4);
  CHECK(pass(r, {11, first, 0, 16}) == 0);
  CHECK(pass(r, {12, first, 12, 16}) == 12);  // the same prompt again
  CHECK(pass(r, {13, second, 8, 16}) == 8);   // another end
  CHECK(r.used() == 6);                       // 2 of both, 2 of each
}

TEST_CASE("blocks that share a prefix are one block, and what a pass writes is its own") {
  kv_residency r(16, block_tokens);
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
  kv_residency r(16, block_tokens);
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
  kv_residency r(6, block_tokens);
  const auto old = keys_of(1, 0, 3), young = keys_of(2, 0, 3);
  pass(r, {1, old, 0, 12});
  pass(r, {2, young, 0, 12});
  pass(r, {1, old, 12, 12 + 1});  // needs a block: the end of the one that was not used
  CHECK(pass(r, {3, young, 12, 12}) == 8);
  CHECK(pass(r, {4, old, 12, 12}) == 12);
}

TEST_CASE("a pass that failed leaves what was there before it, and nothing else") {
  kv_residency r(8, block_tokens);
  const auto keys = keys_of(1, 0, 4);
  pass(r, {1, keys, 0, 8});
  const auto broken = r.take({1, keys, 12, 16});
  REQUIRE(broken);
  CHECK(broken->valid == 8);
  r.give_back(broken->ticket, broken->valid);
  CHECK(pass(r, {2, keys, 16, 17}) == 8);
}

TEST_CASE(
    "any order of passes keeps blocks whole, single-owned where they are written, and prefixes closed") {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    kv_residency r(3 + below(30), block_tokens);
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
            if (b * block_tokens < place->valid) REQUIRE(content[place->blocks[b]] == holds);
            else content[place->blocks[b]] = holds;  // loaded or computed
            if ((b + 1) * block_tokens <= place->valid) continue;
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
    const auto all = r.take({0, {}, 0, r.blocks() * block_tokens});
    REQUIRE(all);
    CHECK(all->valid == 0);
  }
}
