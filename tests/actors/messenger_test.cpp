// Fetches of a messenger whose blocks lie at one node, or at several: real data planes, shards that only pin.
// Which piece comes from where is decided, and tested, in tests/runtime/request/fetch_core_test.cpp.

#include "actors/messenger.hpp"

#include <array>
#include <random>

#include "actors/executor.hpp"
#include "runtime/sched/link_book.hpp"
#include "tests/actors/worker_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// What the shard of a node answers to a remote pin, and who let go there.
struct holder {
  remote_blocks pinned;
  std::vector<std::size_t> asked;  ///< keys
  std::vector<std::uint64_t> released;
};

class pinning_shard final : public cache_shard_actor::base {
 public:
  pinning_shard(caf::actor_config& config, std::shared_ptr<holder> what)
      : cache_shard_actor::base(config), holder_(std::move(what)) {}
  behavior_type make_behavior() override {
    return {
        [](look_atom, const block_keys_t&) { return prefix_view{}; },
        [](pin_atom, std::uint64_t, const block_keys_t&, std::uint32_t) { return pinned_slots{}; },
        [](pin_atom, std::uint64_t, const block_keys_t&) { return pinned_slots{}; },
        [this](pin_remote_atom, std::uint64_t, const block_keys_t& keys, std::int64_t) {
          holder_->asked.push_back(keys.size());
          auto out = holder_->pinned;
          out.blocks.resize(std::min(out.blocks.size(), keys.size()));
          return out;
        },
        [](load_atom, const fetch_plan&, const prefix_load_ptr&) { return remote_blocks{}; },
        [](reserve_atom, std::uint64_t, std::uint32_t) { return std::vector<slot_index>{}; },
        [](commit_atom, std::uint64_t, const std::vector<commit_item>&) {},
        [](found_atom, std::uint64_t, std::uint64_t) {},
        [](renew_atom, const std::vector<std::uint64_t>&) {},
        [](fence_atom, std::uint64_t) {},
        [](confirm_atom, std::uint64_t) {},
        [this](release_atom, std::uint64_t owner) { holder_->released.push_back(owner); },
        [](status_atom) { return shard_status{}; },
        [](flush_atom) -> std::uint64_t { return 0; },
        [](keep_atom, std::uint64_t, const block_keys_t&, const std::vector<keep_mark>&) {
          return std::vector<std::uint32_t>{};
        },
        [](keep_atom, std::uint64_t, const block_key&) { return std::vector<kept_status>{}; },
        [](withhold_atom, std::uint64_t) { return boundary_state{}; },
        [](follow_atom, const caf::actor&) {},
        [](tick_atom) {},
    };
  }

 private:
  const std::shared_ptr<holder> holder_;
};

/// 1 MiB a block, 128 KiB a layer: each layer is a piece of its own.
constexpr kv_layout large{
    .n_layers = 8, .n_kv_heads = 8, .head_dim = 64, .block_tokens = 64, .dtype = kv_dtype::f16};
/// 4 KiB a block, of which runs are made.
constexpr kv_layout small{
    .n_layers = 2, .n_kv_heads = 2, .head_dim = 64, .block_tokens = 4, .dtype = kv_dtype::f16};

constexpr std::uint64_t source = 2, beside = 3;

/// A node that fetches, and two that have the same blocks, in another order each.
struct fetch_world : actor_fixture<caf::id_block::mooncaf> {
  fetch_world(const kv_layout& of_blocks, std::uint32_t blocks) : layout(of_blocks), count(blocks) {
    for (std::uint64_t id = 1; id <= 3; ++id) open(id);
    auto& here = *context;
    here.id = node_id{1};
    here.layout = layout;
    here.memory = memory[0];
    here.plane = planes[0];
    here.region = planes[0]->local_announcement().regions.front();
    here.links = std::make_shared<link_book>();
    here.transfer_ids = std::make_shared<std::atomic<std::uint64_t>>(1);
    under_test = sys.spawn<messenger>(context, keep(sys.spawn(executor_behavior)));
    std::mt19937_64 random{7};
    for (std::uint32_t b = 0; b < blocks; ++b) keys.push_back({random(), random()});
    for (const auto id : {source, beside}) fill(id);
    run();
  }
  ~fetch_world() {
    stop(under_test);
    under_test = nullptr;
    context->plane.reset();
    for (auto& plane : planes) plane.reset();
    while (reports->drain()) run();
  }

  void open(std::uint64_t id) {
    auto made = arena::create("mooncaf-test", layout.pieces().bytes_for(count));
    REQUIRE(made);
    memory[id - 1] = std::make_shared<arena>(std::move(*made));
    data_plane_options o;
    o.node = node_id{id};
    o.cluster_secret = "the secret of the tests";
    auto started = data_plane::start(
        o, [](const landing&) {},
        [queue = reports](std::function<void()> report) { queue->put(std::move(report)); });
    REQUIRE_MESSAGE(started, to_string(started.error()));
    planes[id - 1] = std::move(*started);
    REQUIRE(planes[id - 1]->register_region(memory[id - 1]->bytes(), memory[id - 1]->fd()));
  }

  /// Block b lies in slot count - 1 - b of the source, in slot b of the other.
  void fill(std::uint64_t id) {
    auto& h = *holders.at(id);
    h.pinned.region = planes[id - 1]->local_announcement().regions.front().id;
    for (std::uint32_t b = 0; b < count; ++b) {
      const auto offset = layout.pieces().offset(id == source ? count - 1 - b : b);
      auto* const at = memory[id - 1]->base() + offset;
      std::mt19937_64 random{b};
      for (std::size_t i = 0; i < layout.block_bytes(); i += sizeof(std::uint64_t)) {
        const auto word = random();
        std::memcpy(at + i, &word, sizeof word);
      }
      h.pinned.blocks.push_back({keys[b], offset, checksum64({at, layout.block_bytes()})});
    }
    const auto there = planes[id - 1]->local_announcement();
    const auto here = planes[0]->local_announcement();
    REQUIRE(planes[id - 1]->add_peer(here.address, here.regions));
    node_info info;
    info.id = node_id{id};
    info.data_plane = encode(there);
    info.shard = caf::actor_cast<caf::actor>(keep(sys.spawn<pinning_shard>(holders.at(id))));
    caf::anon_send(under_test, peer_up_atom_v, info);
  }

  fetch_plan plan(std::uint32_t skip, std::uint32_t blocks_beside) const {
    fetch_plan p;
    p.id = {request_id{5}, 1};
    p.source = node_id{source};
    p.keys = keys;
    p.skip = skip;
    for (auto b = skip; b < count; ++b) p.slots.push_back(b);
    p.beside = {{node_id{beside}, blocks_beside}};
    return p;
  }

  /// Layer by layer with a load, else in runs. Every block that is said to be here is here.
  /// @param meanwhile  called again and again.
  remote_blocks fetch(
      const fetch_plan& p, const prefix_load_ptr& load = nullptr, std::function<void()> meanwhile = [] {}) {
    std::optional<remote_blocks> got;
    caf::scoped_actor asker{sys, true};
    auto question = load ? asker->request(under_test, caf::infinite, load_atom_v, p, load)
                         : asker->request(under_test, caf::infinite, fetch_atom_v, p);
    REQUIRE(eventually([&] {
      run();
      while (reports->drain()) {
        meanwhile();
        run();
      }
      return asker->has_next_message();
    }));
    question.receive([&](remote_blocks& blocks) { got = std::move(blocks); },
                     [](const caf::error& e) { FAIL(caf::to_string(e)); });
    for (std::size_t i = 0; i < got->blocks.size(); ++i) {
      const auto* const at = context->slot(p.slots[i]);
      CHECK(got->blocks[i].key == keys[p.skip + i]);
      CHECK(checksum64({at, layout.block_bytes()}) == got->blocks[i].checksum);
    }
    return std::move(*got);
  }
  std::uint64_t bytes_from(std::uint64_t id) const {
    std::uint64_t bytes = 0;
    for (const auto& s : planes[0]->stats())
      if (s.peer == node_id{id}) bytes += s.bytes();
    return bytes;
  }
  holder& at(std::uint64_t id) { return *holders.at(id); }

  const kv_layout layout;
  const std::uint32_t count;
  std::shared_ptr<report_queue> reports = std::make_shared<report_queue>();
  std::shared_ptr<node_context> context = std::make_shared<node_context>();
  std::array<std::shared_ptr<arena>, 3> memory;
  std::array<std::shared_ptr<data_plane>, 3> planes;
  std::map<std::uint64_t, std::shared_ptr<holder>> holders{{source, std::make_shared<holder>()},
                                                           {beside, std::make_shared<holder>()}};
  block_keys_t keys;
  messenger_actor under_test;
};

prefix_load_ptr layers_of(const kv_layout& layout) {
  return std::make_shared<prefix_load>(layout.n_layers, [] {});
}

}  // namespace

TEST_CASE("layers of a prefix come from all who have it, and all are let go") {
  fetch_world w{large, 6};
  const auto load = layers_of(large);
  const auto p = w.plan(2, 6);
  CHECK(w.fetch(p, load).blocks.size() == 4);
  CHECK(load->leading() == large.n_layers);
  const auto all = 4 * large.block_bytes();
  CHECK(w.bytes_from(source) + w.bytes_from(beside) == all);
  CHECK(w.bytes_from(source) >= all / 4);
  CHECK(w.bytes_from(beside) >= all / 4);
  w.run();
  for (const auto id : {source, beside}) {
    CHECK(w.at(id).asked == std::vector<std::size_t>{6});
    CHECK(w.at(id).released == std::vector{p.id.reader()});
  }
}

TEST_CASE("runs come from who has all of them") {
  fetch_world w{small, 128};
  w.at(beside).pinned.blocks.resize(100);
  CHECK(w.fetch(w.plan(0, 100)).blocks.size() == 128);
  // Of four runs of 32 blocks the last is at the source alone.
  CHECK(w.bytes_from(source) >= 64 * small.block_bytes());
  CHECK(w.bytes_from(beside) >= 32 * small.block_bytes());
  CHECK(w.bytes_from(source) + w.bytes_from(beside) == 128 * small.block_bytes());
  CHECK(w.at(beside).asked == std::vector<std::size_t>{100});
}

TEST_CASE("what a node beside the source has and cannot be read comes from the source") {
  fetch_world w{large, 4};
  w.at(beside).pinned.region = region_id{12'345};
  CHECK(w.fetch(w.plan(0, 4), layers_of(large)).blocks.size() == 4);
  CHECK(w.bytes_from(beside) == 0);
  CHECK(w.bytes_from(source) == 4 * large.block_bytes());
}

/// Tells of a node that is gone, once it has sent so many bytes.
std::function<void()> gone_after(fetch_world& w, std::uint64_t id, std::uint64_t bytes) {
  return [&w, id, bytes, told = false]() mutable {
    if (told || w.bytes_from(id) < bytes) return;
    told = true;
    caf::anon_send(w.under_test, peer_down_atom_v, node_id{id});
  };
}

// In these each has two pieces under way at most, so most of them are yet to be asked for when one leaves.

TEST_CASE("who leaves in the middle of it is replaced by who is left and has the blocks") {
  constexpr auto run = 32 * small.block_bytes();
  fetch_world w{small, 1024};
  SUBCASE("somebody beside the source") {
    CHECK(w.fetch(w.plan(0, 1024), nullptr, gone_after(w, beside, run)).blocks.size() == 1024);
  }
  SUBCASE("the source, and the other has all") {
    CHECK(w.fetch(w.plan(0, 1024), nullptr, gone_after(w, source, run)).blocks.size() == 1024);
  }
  SUBCASE("the source, and the other has half") {
    w.at(beside).pinned.blocks.resize(512);
    const auto got = w.fetch(w.plan(0, 512), nullptr, gone_after(w, source, run)).blocks.size();
    CHECK(got >= 512);
    CHECK(got < 1024);
    CHECK(got % 32 == 0);
  }
  SUBCASE("the source, and nobody is beside it") {
    auto p = w.plan(0, 0);
    p.beside.clear();
    const auto got = w.fetch(p, nullptr, gone_after(w, source, 4 * run)).blocks.size();
    CHECK(got >= 32);
    CHECK(got < 1024);
    CHECK(got % 32 == 0);
  }
}

TEST_CASE("layers go on without their source where another has all of the blocks") {
  constexpr kv_layout deep{
      .n_layers = 64, .n_kv_heads = 8, .head_dim = 64, .block_tokens = 64, .dtype = kv_dtype::f16};
  fetch_world w{deep, 2};
  const auto load = layers_of(deep);
  SUBCASE("it has") {
    CHECK(w.fetch(w.plan(0, 2), load, gone_after(w, source, 1)).blocks.size() == 2);
    CHECK(load->leading() == deep.n_layers);
    CHECK(w.bytes_from(beside) > deep.block_bytes());
  }
  SUBCASE("it has one of two") {
    w.at(beside).pinned.blocks.resize(1);
    CHECK(w.fetch(w.plan(0, 1), load, gone_after(w, source, 1)).blocks.empty());
    CHECK(load->leading() < deep.n_layers);
  }
}
