// A group whose first stages are ranks of their own, each with a data plane, as in other processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "gpu/device_failure.hpp"
#include "runtime/compute/pipeline_pass.hpp"
#include "runtime/ranks/rank_link.hpp"
#include "runtime/ranks/rank_order.hpp"
#include "runtime/ranks/rank_session.hpp"
#include "storage/arena.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t block_tokens = 16, context = 200, most_tokens = 64;

/// A process of the group: its data plane, and the notices that land there.
struct party {
  node_id id;
  rank_notices notices;
  std::shared_ptr<std::atomic<std::uint64_t>> ids = std::make_shared<std::atomic<std::uint64_t>>(1);
  std::unique_ptr<data_plane> plane;

  party(std::uint64_t number, bool shm) : id{number} {
    data_plane_options o;
    o.node = id;
    o.cluster_secret = "the secret of the tests";
    o.shm = shm;
    o.connect_timeout = std::chrono::milliseconds(500);
    o.peer_timeout = std::chrono::milliseconds(500);
    plane = unwrap(data_plane::start(o, [this](const landing& l) { notices.take(l); }));
  }
  region_desc region(region_id wanted) const {
    const auto all = plane->local_announcement().regions;
    return *std::ranges::find(all, wanted, &region_desc::id);
  }
  void meet(const party& other) const {
    const auto a = other.plane->local_announcement();
    REQUIRE(plane->add_peer(a.address, a.regions).has_value());
  }
};

/// A stage in a process of its own.
struct rank {
  std::unique_ptr<device> hardware = make_host_device({.threads = 1});
  std::shared_ptr<const model> net;
  std::unique_ptr<party> here;
  std::unique_ptr<rank_session> session;
  std::shared_ptr<rank_link> link;  ///< the leader's
};

/// A leader with the last stage, and ranks with the others.
struct group_world {
  model_config shape;
  bool shm;
  std::unique_ptr<device> hardware = make_host_device({.threads = 1});
  std::shared_ptr<const model> whole, last;
  kv_layout layout;
  arena pages = unwrap(arena::create("mooncaf-test", std::size_t{8} << 20));
  party leader;
  std::vector<std::unique_ptr<rank>> ranks;
  std::vector<std::string> said;
  std::uint32_t slots = 0;  ///< of the pages, that sequences have taken

  group_world(std::string_view spec, std::uint32_t stages, bool over_shm = true)
      : shape(unwrap(dummy_shape(spec))),
        shm(over_shm),
        whole(unwrap(model::dummy(*hardware, shape, 1))),
        last(unwrap(model::dummy(*hardware, shape, 1, stage_layers(shape.n_layers, stages, stages - 1)))),
        layout(whole->layout(block_tokens, kv_dtype::f16)),
        leader(1, over_shm) {
    unwrap(leader.plane->register_region(pages.bytes(), pages.fd()));
    for (std::uint32_t i = 0; i + 1 < stages; ++i) {
      auto& r = *ranks.emplace_back(std::make_unique<rank>());
      r.net = unwrap(model::dummy(*r.hardware, shape, 1, stage_layers(shape.n_layers, stages, i)));
      r.here = std::make_unique<party>(2 + i, over_shm);
      greet(r);
    }
  }

  /// As a leader that has found a rank: each learns of the other's memory.
  void greet(rank& r, std::size_t kv_blocks = 14) {
    rank_place place{"rank",   r.here->id, {}, r.net->part(), r.net->layout(block_tokens, kv_dtype::f16),
                     shape.dim};
    place.inbox.length = rank_link::call_bytes(most_tokens, shape.dim);
    r.link = unwrap(rank_link::make(*leader.plane, leader.ids, leader.notices, pages.bytes(), place));
    r.here->meet(leader);
    rank_terms terms;
    terms.leader = leader.id;
    terms.pages = leader.region(region_id{1});
    terms.replies = leader.region(r.link->replies());
    terms.max_batch_tokens = most_tokens;
    terms.context_tokens = context;
    terms.layout = place.layout;
    r.session = unwrap(rank_session::make(*r.here->plane, r.here->ids, r.here->notices, *r.hardware, r.net,
                                          terms, kv_blocks * terms.layout.block_bytes(),
                                          [this](const std::string& line) { said.push_back(line); }));
    leader.meet(*r.here);
    place.inbox = r.here->region(r.session->inbox());
    r.link->found("rank", r.here->id, place.inbox);
  }

  std::unique_ptr<model_runner> runner(const std::shared_ptr<const model>& net) const {
    runner_options o;
    o.max_batch_tokens = context;
    o.max_logit_rows = 8;
    o.layout = net->layout(block_tokens, kv_dtype::f16);
    return unwrap(model_runner::make(net, *hardware, o));
  }
  std::unique_ptr<pipeline_pass> group() const {
    std::vector<std::unique_ptr<pass_stage>> stages;
    for (const auto& r : ranks) stages.push_back(std::make_unique<remote_stage>(r->link));
    stages.push_back(runner(last));
    return unwrap(pipeline_pass::make(std::move(stages), {layout, shape.vocab_size, shape.dim}));
  }
  /// Pages for a sequence.
  std::vector<std::byte*> blocks(std::size_t tokens) {
    std::vector<std::byte*> out;
    for (std::size_t i = 0; i < layout.blocks_for(tokens); ++i)
      out.push_back(pages.base() + layout.pieces().offset(slots++));
    return out;
  }
  std::vector<float> feed(forward_pass& pass, std::span<std::byte* const> at,
                          std::span<const std::int32_t> ids, std::size_t chunk, std::uint32_t start = 0,
                          std::uint64_t sequence = 0) const {
    std::vector<float> logits(shape.vocab_size);
    for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
      const auto n = std::min(chunk, ids.size() - begin);
      const bool end = begin + n == ids.size();
      batch_item item{ids.subspan(begin, n), start + static_cast<std::uint32_t>(begin), at, end};
      item.sequence = sequence;
      auto done = pass.forward({&item, 1}, end ? std::span{logits} : std::span<float>{});
      if (!done) throw std::runtime_error(to_string(done.error()));
    }
    return logits;
  }
  bool same(std::span<std::byte* const> a, std::span<std::byte* const> b) const {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (std::memcmp(a[i], b[i], layout.block_bytes()) != 0) return false;
    return true;
  }
};

constexpr std::string_view usual = "dummy:layers=5,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1";

}  // namespace

TEST_CASE("ranks give the bits of one device: logits, and KV in the leader's pages") {
  for (const bool shm : {true, false}) {
    for (const std::uint32_t stages : {2u, 3u, 5u}) {
      CAPTURE(stages);
      group_world w(usual, stages, shm);
      const auto ids = random_tokens(150, 300, 3);
      const auto alone = w.blocks(150), apart = w.blocks(150);
      const auto expected = w.feed(*w.runner(w.whole), alone, ids, 150);
      const auto group = w.group();
      CHECK(w.feed(*group, apart, ids, 48, 0, 7) == expected);
      CHECK(w.same(alone, apart));
      CHECK(w.said.empty());
    }
  }
}

TEST_CASE("a prefix that others put into the pages is read by the ranks, and what they forgot is read anew") {
  group_world w(usual, 3);
  const auto ids = random_tokens(120, 300, 5);
  const auto alone = w.blocks(120), apart = w.blocks(120);
  const auto one = w.runner(w.whole);
  const auto expected = w.feed(*one, alone, ids, 120);
  w.feed(*one, apart, std::span(ids).first(64), 64);  // as a node that fetched it
  const auto group = w.group();
  CHECK(w.feed(*group, apart, std::span(ids).subspan(64), 56, 64, 9) == expected);
  // Others push the sequence out of the ranks' memory, which has room for 14 blocks.
  for (std::uint64_t i = 0; i < 4; ++i)
    w.feed(*group, w.blocks(100), random_tokens(100, 300, 50 + i), 50, 0, 100 + i);
  const auto more = random_tokens(9, 300, 6);
  const auto longer = w.blocks(129);
  for (std::size_t b = 0; b < alone.size(); ++b) std::memcpy(longer[b], alone[b], w.layout.block_bytes());
  const auto next = w.feed(*one, longer, more, 9, 120);
  auto same = apart;
  const auto last = w.blocks(16);
  same.push_back(last.front());
  CHECK(w.feed(*group, same, more, 9, 120, 9) == next);
}

TEST_CASE("layers are told while a rank computes, in order; a prefix is waited for before it is called") {
  group_world w(usual, 3);
  const auto group = w.group();
  const auto ids = random_tokens(40, 300, 1);
  const auto at = w.blocks(40);
  std::vector<std::uint32_t> before, done;
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, at, true};
  const auto wait = [&](std::uint32_t layer) -> result<void> {
    before.push_back(layer);
    return layer == 4 && before.size() == 10 ? result<void>{fail(ec::timed_out, "no prefix")}
                                             : result<void>{};
  };
  CHECK(group
            ->forward(
                {&item, 1}, logits, [&](std::uint32_t layer) { done.push_back(layer); }, nullptr, wait)
            .has_value());
  CHECK(before == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(done == before);
  CHECK(group->forward({&item, 1}, logits, {}, nullptr, wait).error() == ec::timed_out);
  const std::atomic<bool> cancelled{true};
  CHECK(group->forward({&item, 1}, logits, {}, &cancelled).error() == ec::cancelled);
  CHECK(group->forward({&item, 1}, logits).has_value());
}

TEST_CASE("workers that share a rank take turns, and chunks of one prompt are at several stages at once") {
  group_world w(usual, 3);
  const auto ids = random_tokens(96, 300, 8);
  const auto alone = w.blocks(96);
  const auto expected = w.feed(*w.runner(w.whole), alone, ids, 96);
  std::vector<std::jthread> workers;
  std::array<std::vector<float>, 4> logits;
  std::array<std::vector<std::byte*>, 4> at;
  for (auto& blocks : at) blocks = w.blocks(96);
  for (std::size_t i = 0; i < 4; ++i)
    workers.emplace_back([&, i] { logits[i] = w.feed(*w.group(), at[i], ids, 16, 0, 20 + i); });
  workers.clear();
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(logits[i] == expected);
    CHECK(w.same(at[i], alone));
  }
}

TEST_CASE("a rank that is gone is a device that failed, within seconds; one that comes back computes again") {
  group_world w(usual, 2);
  const auto group = w.group();
  const auto ids = random_tokens(40, 300, 2);
  const auto at = w.blocks(40);
  const auto expected = w.feed(*group, at, ids, 40);
  auto& r = *w.ranks.front();
  const auto number = r.here->id.value;
  r.session.reset();
  r.here.reset();
  CHECK_THROWS_AS(w.feed(*group, at, ids, 40), device_failure);
  // The process was started again, as another node; its weights are those of before here, where it is a thread.
  r.here = std::make_unique<party>(number + 100, true);
  w.greet(r);
  CHECK(w.feed(*w.group(), w.blocks(40), ids, 40) == expected);
}

TEST_CASE("a leader that is gone ends its session, and the next one finds the weights loaded") {
  group_world w(usual, 2);
  const auto ids = random_tokens(40, 300, 2);
  const auto expected = w.feed(*w.group(), w.blocks(40), ids, 40);
  auto& r = *w.ranks.front();
  r.session.reset();
  w.greet(r);
  CHECK(w.feed(*w.group(), w.blocks(40), ids, 40) == expected);
}

TEST_CASE("what is too much for a rank is said, and the next pass is computed") {
  group_world w(usual, 2);
  const auto group = w.group();
  const auto ids = random_tokens(80, 300, 2);
  const auto at = w.blocks(80);
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, at, true};
  // 80 tokens fit its memory for calls, but not its passes of 64.
  CHECK_THROWS_AS((void)group->forward({&item, 1}, logits), device_failure);
  CHECK(w.said.size() == 1);
  CHECK(w.feed(*w.group(), at, ids, 40).size() == 300);
}

TEST_CASE("orders survive their encoding, and no bytes that are none are taken for one") {
  std::mt19937 random{4};
  const rank_limits limits{1000, 1 << 20, 4096};
  for (int i = 0; i < 300; ++i) {
    rank_order order;
    order.tells_layers = random() % 2;
    for (auto n = 1 + random() % 4; n > 0; --n) {
      auto& item = order.items.emplace_back();
      item.start = static_cast<std::uint32_t>(random() % 5000);
      item.tokens = 1 + static_cast<std::uint32_t>(random() % 200);
      item.sequence = random();
      item.blocks.resize(random() % 6);
      for (auto& b : item.blocks) b = random() % ((1 << 20) - 4096);
      item.keys.resize(random() % 4, block_key{random(), random()});
    }
    if (random() % 2) order.ids.resize(order.tokens(), 5);
    std::vector<std::byte> bytes;
    encode(order, bytes);
    const auto whole = bytes.size();
    bytes.resize(whole + 12);
    std::span<const std::byte> rest{bytes};
    CHECK(unwrap(decode_rank_order(rest, limits)) == order);
    CHECK(rest.size() == 12);
    std::span<const std::byte> cut{bytes.data(), random() % whole};
    CHECK(decode_rank_order(cut, limits).error() == ec::corrupt);
    for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    std::span<const std::byte> damaged{bytes};
    if (const auto got = decode_rank_order(damaged, limits)) {
      CHECK(got->tokens() <= limits.tokens);
      for (const auto& item : got->items)
        for (const auto b : item.blocks) CHECK(b + limits.block_bytes <= limits.pages_bytes);
    }
  }
}
