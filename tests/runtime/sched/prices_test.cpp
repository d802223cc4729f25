// What moving bytes costs, as it is learned, and what a worker makes of it.

#include <doctest/doctest.h>

#include <random>

#include "runtime/sched/link_book.hpp"
#include "runtime/sched/load_plan.hpp"

using namespace mooncaf;
using namespace std::chrono_literals;

namespace {

constexpr node_id priced_peer{7}, other_priced{8};
constexpr std::uint8_t tcp = 3, shm = 2;
constexpr time_point t{};

/// What a path of this kind takes, with up to a fifth of noise.
struct true_path {
  double bytes_per_s;
  duration latency;
  std::mt19937_64 random{5};
  duration operator()(std::uint64_t bytes) {
    const double noise = 0.9 + 0.2 * static_cast<double>(random() % 1000) / 1000;
    return from_seconds((to_seconds(latency) + static_cast<double>(bytes) / bytes_per_s) * noise);
  }
};

}  // namespace

TEST_CASE("a price converges to the path's latency and rate, wherever it began") {
  for (const double rate : {2e6, 1e9, 2e10}) {
    for (const auto latency : {20us, 5000us}) {
      CAPTURE(rate);
      CAPTURE(latency.count());
      true_path path{rate, latency};
      transfer_price price;
      for (int i = 0; i < 200; ++i) {
        const std::uint64_t bytes = i % 2 ? 4 * KiB : 64 * MiB;
        price.observe(bytes, path(bytes));
      }
      for (const std::uint64_t bytes : {4 * KiB, 64 * MiB}) {
        const double truth = to_seconds(latency) + static_cast<double>(bytes) / rate;
        CHECK(to_seconds(price.estimate(bytes)) == doctest::Approx(truth).epsilon(0.15));
      }
    }
  }
}

TEST_CASE("the first measurement counts in full, and one that was held up does not decide alone") {
  transfer_price price{1e9, 1ms};
  price.observe(100 * MiB, 10s);
  CHECK(to_seconds(price.estimate(100 * MiB)) == doctest::Approx(10).epsilon(0.01));
  price.observe(100 * MiB, 1000s);
  CHECK(price.estimate(100 * MiB) < 16s);
  for (int i = 0; i < 20; ++i) price.observe(100 * MiB, 1s);
  CHECK(to_seconds(price.estimate(100 * MiB)) == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("a path that was slow long ago is worth another try") {
  const transfer_price usual{1e9, 1ms};
  ageing_price price;
  CHECK(price.at(t + 1h, usual).bytes_per_s() == doctest::Approx(1e9));
  price.observe(100 * MiB, 100s, t);
  CHECK(price.at(t, usual).estimate(100 * MiB) > 99s);
  CHECK(price.at(t + 60s, usual).estimate(100 * MiB) < 10s);
  CHECK(price.at(t + 1h, usual).estimate(100 * MiB) < 110ms);
}

TEST_CASE("nothing, or no time, teaches nothing") {
  transfer_price price{1e9, 1ms};
  price.observe(0, 5s);
  price.observe(5, 0s);
  CHECK(price.samples() == 0);
  CHECK(price.latency() == 1ms);
}

TEST_CASE("transfers to one priced_peer wait for each other_priced, and that is not taken for a slow link") {
  link_book book;
  book.ended(book.began(priced_peer, link_flow::in, 100 * MiB), tcp, 100ms, true, t);
  const auto alone = book.estimate(priced_peer, tcp, 100 * MiB, t);
  CHECK(to_seconds(alone) == doctest::Approx(0.1).epsilon(0.01));
  // Ten at once: the last one takes ten times as long.
  std::vector<link_book::entry> all;
  for (int i = 0; i < 10; ++i) all.push_back(book.began(priced_peer, link_flow::in, 100 * MiB));
  CHECK(to_seconds(book.estimate(priced_peer, tcp, 100 * MiB, t)) == doctest::Approx(1.1).epsilon(0.02));
  for (int i = 0; i < 10; ++i) book.ended(all[i], tcp, (i + 1) * 100ms, true, t);
  CHECK(to_seconds(book.estimate(priced_peer, tcp, 100 * MiB, t)) == doctest::Approx(0.1).epsilon(0.02));
}

TEST_CASE("transfers to several peers that share this node's network are not taken for slow links") {
  link_book book;
  const auto entered = [&](node_id with, link_flow flow) { return book.began(with, flow, 100 * MiB); };
  const auto lone = [&](node_id with) { return to_seconds(book.estimate(with, tcp, 100 * MiB, t)); };
  for (const auto with : {priced_peer, other_priced})
    book.ended(entered(with, link_flow::in), tcp, 100ms, true, t);
  for (int i = 0; i < 20; ++i) {
    const auto one = entered(priced_peer, link_flow::in), two = entered(other_priced, link_flow::in);
    book.ended(one, tcp, 200ms, true, t);
    book.ended(two, tcp, 200ms, true, t);
  }
  CHECK(lone(priced_peer) == doctest::Approx(0.1).epsilon(0.02));
  // What leaves the node does not hold up what comes, but a link that is slow shows beside it, too.
  const auto leaves = entered(other_priced, link_flow::out);
  CHECK(lone(priced_peer) == doctest::Approx(0.1).epsilon(0.02));
  for (int i = 0; i < 20; ++i) {
    const auto beside = entered(other_priced, link_flow::in);
    book.ended(entered(priced_peer, link_flow::in), tcp, 10s, true, t);
    book.ended(beside, tcp, 100ms, true, t);
  }
  CHECK(lone(priced_peer) > 4);
  CHECK(lone(other_priced) == doctest::Approx(0.1).epsilon(0.1));
  book.ended(leaves, tcp, 100ms, false, t);
}

TEST_CASE("paths and peers have prices of their own; an unused path costs what it costs with others") {
  link_book book;
  book.ended(book.began(priced_peer, link_flow::in, 100 * MiB), tcp, 10s, true, t);
  book.ended(book.began(priced_peer, link_flow::in, 100 * MiB), shm, 10ms, true, t);
  CHECK(book.estimate(priced_peer, tcp, 100 * MiB, t) > 9s);
  CHECK(book.estimate(priced_peer, shm, 100 * MiB, t) < 11ms);
  CHECK(book.estimate(other_priced, tcp, 100 * MiB, t) > 9s);
  book.ended(book.began(other_priced, link_flow::in, 100 * MiB), tcp, 1s, false, t);  // it failed
  CHECK(book.view(t).size() == 2);
  book.forget(priced_peer);
  CHECK(book.view(t).empty());
}

namespace {

/// 1 ms a token, and a prompt of ten blocks and a bit.
struct plan_world {
  plan_world() {
    const std::vector<timing_point> samples{{100, 0, 0.1}, {200, 0, 0.2}, {1000, 0, 1}, {1000, 1000, 1}};
    computing = prefill_model{samples};
    q.prompt_tokens = 1050;
    q.block_tokens = 100;
  }
  load_plan plan() {
    q.ask([this](std::uint32_t blocks) { return blocks * disk_block; },
          [this](std::uint32_t blocks) { return blocks * link_block; });
    return plan_load(q, computing);
  }

  prefill_model computing;
  load_question q;
  duration disk_block = 10ms, link_block = 10ms;
};

}  // namespace

TEST_CASE_FIXTURE(plan_world, "a disk is read where that beats computing, as far as anything is on it") {
  q.dram_blocks = 2;
  q.held_blocks = 8;
  CHECK(plan().from_disk == 6);
  disk_block = 99ms;
  CHECK(plan().from_disk == 6);
  disk_block = 101ms;
  CHECK(plan().from_disk == 0);
}

TEST_CASE_FIXTURE(plan_world, "a fetch may take as long as what it runs beside and what it saves") {
  q.remote_blocks = 10;
  CHECK(plan().from_remote == 10);
  CHECK(to_seconds(plan().worth) == doctest::Approx(1.05).epsilon(0.02));
  // Ten blocks in 1 s are no slower than computing them, and the last 50 tokens are computed meanwhile.
  link_block = 102ms;
  CHECK(plan().from_remote == 10);
  link_block = 110ms;
  CHECK(plan().from_remote == 0);
}

TEST_CASE_FIXTURE(plan_world, "of two sources the cheaper is taken, or both where each has its part") {
  q.held_blocks = 10;
  q.remote_blocks = 10;
  disk_block = 50ms;
  link_block = 1ms;
  CHECK(plan().from_disk == 0);
  CHECK(plan().from_remote == 10);
  link_block = 60ms;
  CHECK(plan().from_disk == 10);
  CHECK(plan().from_remote == 0);
  q.held_blocks = 5;
  disk_block = 1ms;
  CHECK(plan().from_disk == 5);
  CHECK(plan().from_remote == 5);
}

TEST_CASE_FIXTURE(plan_world, "what is shorter than the threshold is computed") {
  q.threshold_tokens = 300;
  q.held_blocks = 2;
  CHECK(plan().from_disk == 0);
  q.held_blocks = 3;
  CHECK(plan().from_disk == 3);
  q.dram_blocks = 3;
  q.remote_blocks = 5;
  CHECK(plan().from_remote == 0);
  q.remote_blocks = 6;
  CHECK(plan().from_remote == 3);
}
