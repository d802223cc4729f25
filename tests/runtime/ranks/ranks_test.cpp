// A group whose stages, and shares of stages, are ranks of their own, each with a data plane, as in other processes.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <random>
#include <thread>

#include "gpu/device_failure.hpp"
#include "runtime/compute/pipeline_pass.hpp"
#include "runtime/compute/tensor_pass.hpp"
#include "runtime/ranks/rank_host.hpp"
#include "runtime/ranks/rank_link.hpp"
#include "runtime/ranks/rank_order.hpp"
#include "runtime/ranks/rank_session.hpp"
#include "storage/arena.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr std::uint32_t block_tokens = 16, context = 200, most_tokens = 64;

// Built a second time for the virtual machine with RDMA, where nothing else leads from rank to rank, and all is slow.
#ifdef MOONCAF_RANKS_OF_RDMA
constexpr bool emulated = true;
constexpr std::array ways{false};
constexpr auto patience = std::chrono::seconds(20);
#else
constexpr bool emulated = false;
constexpr std::array ways{true, false};  ///< shared memory, and TCP
constexpr auto patience = std::chrono::milliseconds(500);
#endif

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
#ifdef MOONCAF_RANKS_OF_RDMA
    o.shm = o.tcp = false;
#endif
    o.connect_timeout = o.peer_timeout = patience;
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

/// A leader with the last stage or the first share of it, and ranks with the others.
struct group_world {
  model_config shape;
  bool shm;
  std::uint32_t stages, tensor;
  std::unique_ptr<device> hardware = make_host_device({.threads = 1});
  std::shared_ptr<const model> whole, last;
  kv_layout layout;
  arena pages = unwrap(arena::create("mooncaf-test", std::size_t{8} << 20));
  party leader;
  std::vector<std::unique_ptr<rank>> ranks;
  struct {
    std::mutex mutex;
    std::vector<std::string> lines;
    bool empty() { return size() == 0; }
    std::size_t size() {
      const std::lock_guard lock{mutex};
      return lines.size();
    }
  } said;                                                  ///< by ranks, on threads of theirs
  std::vector<std::shared_ptr<group_exchange>> exchanges;  ///< by stage, of a tensor group
  std::shared_ptr<far_exchange> own;                       ///< the leader's end
  std::uint32_t formed = 0;
  std::uint32_t slots = 0;  ///< of the pages, that sequences have taken

  group_world(std::string_view spec, std::uint32_t in_line, bool over_shm = true, std::uint32_t abreast = 1,
              kv_dtype dtype = kv_dtype::f16, bool whole_experts = false)
      : shape(unwrap(dummy_shape(spec))),
        shm(over_shm),
        stages(in_line),
        tensor(abreast),
        whole(unwrap(model::dummy(*hardware, shape, 1))),
        last(unwrap(model::dummy(*hardware, shape, 1, stage_layers(shape.n_layers, stages, stages - 1),
                                 {0, tensor, whole_experts}))),
        layout(whole->layout(block_tokens, dtype)),
        leader(1, over_shm) {
    unwrap(leader.plane->register_region(pages.bytes(), pages.fd()));
    for (std::uint32_t i = 0; i < stages * tensor; ++i) {
      if (i == (stages - 1) * tensor) continue;  // the leader's
      auto& r = *ranks.emplace_back(std::make_unique<rank>());
      r.net = unwrap(model::dummy(*r.hardware, shape, 1, stage_layers(shape.n_layers, stages, i / tensor),
                                  {i % tensor, tensor, whole_experts}));
      r.here = std::make_unique<party>(2 + i, over_shm);
      greet(r);
    }
    join_all();
  }

  kv_layout layout_of(const model& net) const {
    auto out = layout;
    out.n_layers = net.part().count;
    return net.share().whole() ? out : layout_of_share(out, net.share());
  }
  /// As a leader that has greeted all ranks.
  void join_all() {
    if (tensor == 1) return;
    own = unwrap(far_exchange::make(*leader.plane, leader.ids, leader.notices, {0, tensor},
                                    far_exchange::widest_row(shape)));
    exchanges.assign(stages - 1, std::make_shared<elsewhere>());
    exchanges.push_back(own);
    ++formed;
    for (std::uint32_t s = 0; s < stages; ++s) {
      rank_group group{formed, {}};
      std::vector<rank*> here;
      if (s + 1 == stages)
        group.ranks.push_back({0, encode(leader.plane->local_announcement()), own->slots()});
      for (const auto& r : ranks) {
        if (r->net->part() != stage_layers(shape.n_layers, stages, s)) continue;
        here.push_back(r.get());
        group.ranks.push_back({r->net->share().rank, encode(r->here->plane->local_announcement()),
                               r->session->exchange()->slots()});
      }
      for (auto* r : here) REQUIRE(join(*r->here->plane, *r->session->exchange(), group).has_value());
      if (s + 1 == stages) REQUIRE(join(*leader.plane, *own, group).has_value());
    }
  }

  /// As a leader that has found a rank: each learns of the other's memory.
  void greet(rank& r, std::size_t kv_blocks = 14) {
    rank_place place{"rank", r.here->id, {}, r.net->part(), r.net->share(), layout_of(*r.net), shape.dim};
    place.inbox.length = rank_link::call_bytes(most_tokens, shape.dim);
    r.link = unwrap(rank_link::make(*leader.plane, leader.ids, leader.notices, pages.bytes(), place));
    r.here->meet(leader);
    rank_terms terms;
    terms.leader = leader.id;
    terms.pages = leader.region(region_id{1});
    terms.replies = leader.region(r.link->replies());
    terms.max_batch_tokens = most_tokens;
    terms.max_logit_rows = 8;
    terms.widest_row = far_exchange::widest_row(shape);
    terms.context_tokens = context;
    terms.layout = place.layout;
    r.session =
        unwrap(rank_session::make(*r.here->plane, r.here->ids, r.here->notices, *r.hardware, r.net, terms,
                                  kv_blocks * terms.layout.block_bytes(), [this](const std::string& line) {
                                    const std::lock_guard lock{said.mutex};
                                    said.lines.push_back(line);
                                  }));
    leader.meet(*r.here);
    place.inbox = r.here->region(r.session->inbox());
    r.link->found("rank", r.here->id, place.inbox);
  }

  std::unique_ptr<model_runner> runner(const std::shared_ptr<const model>& net) const {
    runner_options o;
    o.max_batch_tokens = context;
    o.max_logit_rows = 8;
    o.layout = layout_of(*net);
    if (!net->share().whole()) o.exchange = own;
    return unwrap(model_runner::make(net, *hardware, o));
  }
  std::unique_ptr<pipeline_pass> group() const {
    std::vector<std::unique_ptr<pass_stage>> all, made;
    for (const auto& r : ranks) all.push_back(std::make_unique<remote_stage>(r->link));
    all.insert(all.end() - (tensor - 1), runner(last));
    for (std::size_t s = 0; s < stages; ++s) {
      auto whole_stage = layout;
      whole_stage.n_layers = all[s * tensor]->layers().count;
      std::vector<std::unique_ptr<pass_stage>> share;
      for (std::size_t k = 0; k < tensor; ++k) share.push_back(std::move(all[s * tensor + k]));
      if (tensor == 1) made.push_back(std::move(share.front()));
      else
        made.push_back(
            unwrap(tensor_pass::make(std::move(share), exchanges[s], whole_stage, shape.vocab_size)));
    }
    return unwrap(pipeline_pass::make(std::move(made), {layout, shape.vocab_size, shape.dim}));
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

TEST_CASE(
    "ranks give the bits of one device, logits and KV, whatever stages, shares, family and format of KV") {
  struct shape {
    const char* name;
    const char* spec;
    std::uint32_t stages, tensor;
    kv_dtype dtype;
    bool whole_experts = false;
    bool emulated =
        false;  ///< among the few that also an emulated machine computes: each way that ranks talk, once
  };
  const std::array cases{
      shape{"two stages", usual.data(), 2, 1, kv_dtype::f16, false, true},
      shape{"three stages", usual.data(), 3, 1, kv_dtype::f16},
      shape{"five stages", usual.data(), 5, 1, kv_dtype::f16},
      shape{"two ranks", "dummy:layers=3,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1", 1, 2,
            kv_dtype::f16},
      shape{"four ranks of two KV heads",
            "dummy:layers=3,dim=128,heads=4,kv_heads=2,ffn=320,vocab=300,type=q4_1", 1, 4, kv_dtype::int8,
            false, true},
      shape{"two stages of two ranks", usual.data(), 2, 2, kv_dtype::k8v4, false, true},
      shape{"latents", "dummy:deepseek-v2-lite,layers=3,dim=256,heads=4,ffn=128,vocab=512,type=q4_0", 1, 2,
            kv_dtype::f16},
      shape{"a mixture with windows",
            "dummy:gpt-oss-20b,layers=4,dim=256,heads=8,kv_heads=2,ffn=128,vocab=512,type=q4_0", 2, 4,
            kv_dtype::f16},
      shape{"experts divided whole",
            "dummy:gpt-oss-20b,layers=4,dim=256,heads=8,kv_heads=2,ffn=128,vocab=512,type=q4_0", 2, 4,
            kv_dtype::f16, true, true},
      shape{"experts divided whole, latents",
            "dummy:deepseek-v2-lite,layers=3,dim=256,heads=4,ffn=128,vocab=512,type=q4_0", 1, 2,
            kv_dtype::f16, true},
  };
  for (const auto& c : cases) {
    if (emulated && !c.emulated) continue;
    for (const bool shm : ways) {
      CAPTURE(c.name);
      group_world w(c.spec, c.stages, shm, c.tensor, c.dtype, c.whole_experts);
      const auto ids = random_tokens(150, static_cast<int>(w.shape.vocab_size), 3);
      const auto alone = w.blocks(150), apart = w.blocks(150);
      const auto expected = w.feed(*w.runner(w.whole), alone, ids, 150);
      const auto group = w.group();
      CHECK(w.feed(*group, apart, ids, 48, 0, 7) == expected);
      CHECK(w.same(alone, apart));
      CHECK(w.said.empty());
    }
  }
}

TEST_CASE(
    "ranks elsewhere compute a batch in parts that all of them have room for, and rows and log-probabilities "
    "too") {
  for (const std::uint32_t stages : {1u, 2u}) {
    group_world w(usual, stages, true, 2);
    const auto one = w.runner(w.whole);
    const auto group = w.group();
    // Four contexts of 6 blocks: a rank has room for 14.
    std::vector<std::vector<std::int32_t>> ids;
    std::vector<std::vector<std::byte*>> alone, apart;
    for (std::uint32_t i = 0; i < 4; ++i) {
      ids.push_back(random_tokens(90 + i, 300, 40 + i));
      alone.push_back(w.blocks(ids[i].size()));
      w.feed(*one, alone[i], std::span(ids[i]).first(80), 80);
      apart.push_back(alone[i]);  // as another node's prefix, and blocks of its own behind it
      apart[i].back() = w.blocks(1).front();
    }
    const auto all_of = [&](forward_pass& pass, const std::vector<std::vector<std::byte*>>& at) {
      std::vector<batch_item> items;
      std::vector<float> rows;
      for (std::uint32_t i = 0; i < 4; ++i) {
        auto& item = items.emplace_back(batch_item{std::span(ids[i]).subspan(80), 80, at[i], i != 1});
        item.sequence = 60 + i;
        if (i == 1 || i == 3)
          item.each_row = [&](std::uint32_t, std::span<float> row) {
            rows.insert(rows.end(), row.begin(), row.end());
          };
        if (i == 2)
          item.each_hidden = [&](std::uint32_t, std::span<const float> row) {
            rows.insert(rows.end(), row.begin(), row.end());
          };
      }
      std::vector<float> logits(3 * w.shape.vocab_size);
      const auto done = pass.forward(items, logits);
      REQUIRE_MESSAGE(done.has_value(), done.error().detail);
      rows.insert(rows.end(), logits.begin(), logits.end());
      return rows;
    };
    CHECK(all_of(*group, apart) == all_of(*one, alone));
    for (std::uint32_t i = 0; i < 4; ++i) CHECK(w.same(apart[i], alone[i]));
    CHECK(w.said.empty());
  }
}

TEST_CASE("a layer of a tensor group is told once all ranks have told of it, in order") {
  group_world w(usual, 1, true, 4);
  const auto group = w.group();
  const auto ids = random_tokens(40, 300, 1);
  const auto at = w.blocks(40), alone = w.blocks(40);
  const auto expected = w.feed(*w.runner(w.whole), alone, ids, 40);
  std::vector<std::uint32_t> before, done;
  std::vector<float> logits(w.shape.vocab_size);
  const batch_item item{ids, 0, at, true};
  const auto wait = [&](std::uint32_t layer) -> result<void> {
    before.push_back(layer);
    return before.size() == 10 ? result<void>{fail(ec::timed_out, "no prefix")} : result<void>{};
  };
  const auto tell = [&](std::uint32_t layer) {
    done.push_back(layer);
    // Whoever is told may send it on.
    const auto stride = w.layout.layer_bytes();
    for (std::size_t b = 0; b < at.size(); ++b)
      CHECK(std::memcmp(at[b] + layer * stride, alone[b] + layer * stride, stride) == 0);
  };
  REQUIRE(group->forward({&item, 1}, logits, tell, nullptr, wait).has_value());
  CHECK(before == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(done == before);
  CHECK(logits == expected);
  CHECK(group->forward({&item, 1}, logits, {}, nullptr, wait).error() == ec::timed_out);
  const std::atomic<bool> cancelled{true};
  CHECK(group->forward({&item, 1}, logits, {}, &cancelled).error() == ec::cancelled);
  CHECK(group->forward({&item, 1}, logits).has_value());
}

TEST_CASE(
    "a tensor group whose rank is gone fails as a device does, and is formed anew with the others' weights") {
  group_world w(usual, 1, true, 4);
  const auto ids = random_tokens(40, 300, 2);
  const auto expected = w.feed(*w.group(), w.blocks(40), ids, 40);
  auto& r = *w.ranks[1];
  const auto number = r.here->id.value;
  r.session.reset();
  r.here.reset();
  const auto group = w.group();
  CHECK_THROWS_AS(w.feed(*group, w.blocks(40), ids, 40), device_failure);
  CHECK_FALSE(w.said.empty());  // the others have been told, and wait for the next leader
  CHECK_THROWS_AS(w.feed(*group, w.blocks(40), ids, 40), device_failure);
  for (auto& other : w.ranks)
    if (other->session) other->session.reset();
  r.here = std::make_unique<party>(number + 100, true);
  for (auto& each : w.ranks) w.greet(*each);
  w.join_all();
  CHECK(w.feed(*w.group(), w.blocks(40), ids, 40) == expected);
}

TEST_CASE("a step moves each rank's share of four tensors a layer, and of the logits, to each other rank") {
  group_world w(usual, 1, false, 4);
  const auto group = w.group();
  const auto ids = random_tokens(41, 300, 1);
  const auto at = w.blocks(41);
  w.feed(*group, at, std::span(ids).first(40), 40, 0, 5);
  const auto to_the_next = [&] {
    path_stats sum;
    for (const auto& s : w.ranks[0]->here->plane->stats()) {
      if (s.peer != w.ranks[1]->here->id) continue;
      sum.bytes_written += s.bytes_written;
      sum.transfers += s.transfers;
    }
    return sum;
  };
  // Columns are counted once their arrival is confirmed, which a pass does not wait for.
  const std::uint64_t a_pass = w.shape.n_layers * 4 + 2;
  const auto behind = [&](std::uint64_t passes) {
    const auto limit = clock_type::now() + std::chrono::seconds(10);
    while (to_the_next().transfers < passes * a_pass && clock_type::now() < limit) std::this_thread::yield();
    return to_the_next();
  };
  const auto before = behind(1);
  w.feed(*group, at, std::span(ids).last(1), 1, 40, 5);
  const auto after = behind(2);
  const auto& c = w.shape;
  const std::size_t a_layer = c.q_dim() + c.dim + c.ffn_dim + c.dim;
  CHECK(after.bytes_written - before.bytes_written ==
        (c.n_layers * a_layer + c.vocab_size) / 4 * sizeof(float) +
            sizeof(float));  // and a word that all go on
  CHECK(before.transfers == a_pass);
  CHECK(after.transfers == 2 * a_pass);
}

TEST_CASE("ranks of one host write columns into each other's memory, and transfer none but the first") {
  group_world w(usual, 1, true, 4);
  const auto group = w.group();
  const auto ids = random_tokens(41, 300, 1);
  const auto at = w.blocks(41);
  w.feed(*group, at, ids, 40, 0, 5);
  CHECK(w.own->by_transfer() == 0);
  for (const auto& s : w.ranks[0]->here->plane->stats())
    if (s.peer == w.ranks[1]->here->id) CHECK(s.transfers == 1);
}

TEST_CASE("workers that share a tensor group's ranks take turns") {
  group_world w(usual, 2, true, 2);
  const auto ids = random_tokens(96, 300, 8);
  const auto alone = w.blocks(96);
  const auto expected = w.feed(*w.runner(w.whole), alone, ids, 96);
  std::vector<std::jthread> workers;
  std::array<std::vector<float>, 3> logits;
  std::array<std::vector<std::byte*>, 3> at;
  for (auto& blocks : at) blocks = w.blocks(96);
  for (std::size_t i = 0; i < at.size(); ++i)
    workers.emplace_back([&, i] { logits[i] = w.feed(*w.group(), at[i], ids, 16, 0, 20 + i); });
  workers.clear();
  for (std::size_t i = 0; i < at.size(); ++i) {
    CHECK(logits[i] == expected);
    CHECK(w.same(at[i], alone));
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
      item.logits = random() % 2;
      item.each_row = random() % 2;
      item.each_hidden = random() % 2;
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
