#include "runtime/sched/prefix_turns.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

/// Keys of a prompt whose blocks have these contents: each stands for all before it.
prefix_turns::prompt prompt_of(const std::vector<std::uint64_t>& blocks, duration due = 1s,
                               std::uint8_t priority = 1) {
  prefix_turns::prompt out;
  std::uint64_t seed = 7;
  for (const auto b : blocks) {
    seed = seed * 1'000'003 + b;
    out.keys.push_back({seed, b});
  }
  out.priority = priority;
  out.deadline = time_point{} + due;
  return out;
}

}  // namespace

TEST_CASE("of prompts that begin alike the first computes the beginning, and the others wait for just that") {
  prefix_turns turns{2};
  CHECK_FALSE(turns.comes(1, prompt_of({1, 2, 3, 4, 5}, 1s)));
  CHECK(turns.comes(2, prompt_of({1, 2, 3, 9}, 2s)));
  CHECK_FALSE(turns.comes(3, prompt_of({1, 8, 8}, 2s)));        // one block is not worth it
  CHECK_FALSE(turns.comes(4, prompt_of({1, 2, 3, 4}, 500ms)));  // due before it
  CHECK_FALSE(turns.comes(5, prompt_of({1, 2, 3, 4}, 9s, 0)));  // more urgent
  turns.there(1, 2);
  CHECK(turns.take_ready().empty());
  turns.there(1, 3);
  CHECK(turns.take_ready() == std::vector<std::uint64_t>{2});
  CHECK(turns.take_ready().empty());
  turns.there(1, 5);
  turns.there(4, 4);
  turns.there(5, 4);
  CHECK_FALSE(turns.comes(6, prompt_of({1, 2, 3, 4, 5, 6}, 3s)));     // all of it is there
  CHECK_FALSE(turns.comes(7, prompt_of({1, 2, 3, 4, 5, 6, 7}, 4s)));  // the sixth computes one block more
}

TEST_CASE("nobody waits for a prompt that waits for a disk or another node") {
  prefix_turns turns{1};
  CHECK_FALSE(turns.comes(1, prompt_of({1, 2, 3}, 1s)));
  CHECK(turns.comes(2, prompt_of({1, 2, 4}, 2s)));
  CHECK(turns.comes(3, prompt_of({1, 2, 4, 5}, 3s)));  // for the second
  turns.loads(1, true);
  CHECK(turns.take_ready() == std::vector<std::uint64_t>{2});
  CHECK_FALSE(turns.comes(4, prompt_of({1, 2, 3}, 1100ms)));
  turns.loads(1, false);
  CHECK(turns.comes(5, prompt_of({1, 2, 3, 7}, 1050ms)));
  turns.there(1, 3);
  CHECK(turns.take_ready() == std::vector<std::uint64_t>{5});
}

TEST_CASE("where the one before ends early the next takes its turn, and the others wait for that one") {
  prefix_turns turns{1};
  CHECK_FALSE(turns.comes(1, prompt_of({1, 2, 3}, 1s)));
  CHECK(turns.comes(2, prompt_of({1, 2, 3}, 2s)));
  CHECK(turns.comes(3, prompt_of({1, 2, 3}, 3s)));
  turns.ends(1);
  CHECK(turns.take_ready() == std::vector<std::uint64_t>{2});
  turns.ends(3);  // while it waits
  turns.there(2, 3);
  CHECK(turns.take_ready().empty());
  turns.ends(2);
  turns.ends(2);
}

TEST_CASE("whatever comes, goes on and ends: each prompt that waits is named once, and none waits for ever") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    prefix_turns turns{1 + below(3)};
    std::map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> works;  // blocks there, of so many
    std::set<std::uint64_t> waits;
    std::map<std::uint64_t, std::uint32_t> sizes;
    std::uint64_t next = 1;
    const auto collect = [&] {
      for (const auto owner : turns.take_ready()) {
        REQUIRE(waits.erase(owner) == 1);
        works[owner] = {0, sizes[owner]};
      }
    };
    for (int step = 0; step < 200; ++step) {
      const auto any = [&] { return std::next(works.begin(), below(static_cast<unsigned>(works.size()))); };
      if (step < 150 && below(2) == 0) {
        std::vector<std::uint64_t> blocks;
        for (unsigned i = 0, n = below(7); i < n; ++i) blocks.push_back(below(2));
        sizes[next] = static_cast<std::uint32_t>(blocks.size());
        const auto due = std::chrono::milliseconds(below(5));
        if (turns.comes(next, prompt_of(blocks, due, static_cast<std::uint8_t>(below(2)))))
          waits.insert(next);
        else works[next] = {0, sizes[next]};
        ++next;
      } else if (!works.empty() && below(3) != 0) {
        auto& [owner, done] = *any();
        done.first = std::min(done.second, done.first + 1 + below(3));
        turns.there(owner, done.first);
      } else if (!works.empty()) {
        const auto gone = any();
        turns.ends(gone->first);
        works.erase(gone);
      } else if (!waits.empty()) {
        turns.ends(*waits.begin());
        waits.erase(waits.begin());
      }
      if (!works.empty() && below(4) == 0) turns.loads(any()->first, below(2) == 0);
      collect();
      REQUIRE((waits.empty() || !works.empty()));
    }
  }
}
