// What a prefill worker loads and what it computes instead: prices, bad blocks, and how long it waits.

#include <rocksdb/db.h>

#include <algorithm>
#include <thread>

#include "runtime/sched/link_book.hpp"
#include "storage/block_record.hpp"
#include "tests/actors/worker_world.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;
using namespace std::chrono_literals;

namespace {

/// A prompt that node b has computed, to be computed by a.
generate_job known_to_b(worker_world& w) {
  const auto before = w.job(worker_world::prompt(30), w.b, w.b);
  w.serve(before);
  REQUIRE(w.until([&] { return w.all_idle(); }));
  auto j = w.job(worker_world::prompt(30), w.a, w.a);
  j.placement.source = w.b.id;
  j.placement.source_blocks = 7;
  return j;
}

/// A bit of what the disk holds of a part of a block.
void flip_on_disk(const std::string& folder, const block_key& block, std::uint32_t part) {
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  REQUIRE(rocksdb::DB::Open({}, folder, {{"default", {}}, {"metadata", {}}}, &families, &db).ok());
  const auto key = encode_key(block, part);
  std::string value;
  REQUIRE(db->Get({}, families[0], {key.data(), key.size()}, &value).ok());
  value.at(block_record::size_bytes + 10) ^= 4;
  REQUIRE(db->Put({}, families[0], {key.data(), key.size()}, value).ok());
  for (auto* family : families) REQUIRE(db->DestroyColumnFamilyHandle(family).ok());
  delete db;
}

void set_link(worker_world& w, std::uint64_t bytes, duration took) {
  const auto path = static_cast<std::uint8_t>(w.a.context->plane->preferred_path(w.b.id));
  auto& links = *w.a.context->links;
  links.ended(links.began(w.b.id, link_flow::in, bytes), path, took, true, clock_type::now());
}

}  // namespace

TEST_CASE_FIXTURE(worker_world,
                  "a prefix behind a slow link is computed, and every fetch teaches the price") {
  auto j = known_to_b(*this);
  SUBCASE("slow") {
    set_link(*this, 1 * KiB, 10s);
    serve(j);
    CHECK(log(j).first->stats.remote_tokens == 0);
    CHECK(log(j).first->stats.computed_tokens == 30);
  }
  SUBCASE("fast") {
    serve(j);
    CHECK(log(j).first->stats.remote_tokens == 28);
    const auto learned = a.context->links->view(clock_type::now());
    REQUIRE(learned.size() == 1);
    CHECK(learned.front().peer == b.id);
    CHECK(learned.front().samples > 0);
    const auto report = ask<transfer_report>(a.messenger, status_atom_v).value();
    REQUIRE(report.paths.size() == 1);
    CHECK(report.paths.front().learned_bytes_per_s > 0);
    CHECK(report.paths.front().preferred);
  }
  CHECK(log(j).tokens == reference(j));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world, "handing a prompt over teaches the price of the link, too") {
  const auto j = job(prompt(30), a, b);
  serve(j);
  // The answer may be over before the last acknowledgement is here.
  REQUIRE(until([&] { return a.context->links->view(clock_type::now()).size() == 1; }));
  CHECK(a.context->links->view(clock_type::now()).front().samples > 0);
}

TEST_CASE_FIXTURE(worker_world,
                  "blocks that went bad at their holder are computed: no token of them leaves") {
  auto j = known_to_b(*this);
  auto memory = b.context->memory->bytes();
  for (std::size_t at = 100; at < memory.size(); at += 1000) memory[at] ^= std::byte{1};
  serve(j);
  REQUIRE(!log(j).failed);
  CHECK(log(j).tokens == reference(j));
  CHECK(log(j).first->stats.remote_tokens == 0);
  CHECK(log(j).first->stats.computed_tokens == 30);
  CHECK(until([&] { return all_idle(); }));
  // What it published is right, too.
  const auto again = job(prompt(30), a, a);
  serve(again);
  CHECK(log(again).first->stats.cached_tokens == 28);
  CHECK(log(again).tokens == reference(again));
}

TEST_CASE_FIXTURE(worker_world,
                  "a request that is cancelled while its prefix comes in leaves nothing behind") {
  auto j = known_to_b(*this);
  send_job(j);
  run();  // the fetch is under way, its end a report that nobody has taken
  cancel(j);
  CHECK(until([&] { return all_idle(); }));
  CHECK(log(j).tokens.empty());
}

TEST_CASE("with best effort an idle device waits for no prefix, neither from a node nor from disk") {
  mooncaf::test::temp_dir folder;
  worker_world w{64, folder.path(), transfer_price{1e9, 100us}, prefetch_mode::best_effort};
  const auto j = known_to_b(w);
  w.serve(j);
  CHECK(w.log(j).first->stats.cached_tokens == 0);
  CHECK(w.log(j).tokens == w.reference(j));
  CHECK(w.until([&] { return w.all_idle(); }));
}

TEST_CASE("a prompt whose time is over goes on with what came, and is answered right") {
  worker_world w{64, {}, {}, prefetch_mode::timeout};  // no time at all
  const auto j = known_to_b(w);
  w.send_job(j);
  w.run();  // its fetch is under way
  w.advance_time(1ms);
  REQUIRE(w.until([&] { return w.over(j); }));
  REQUIRE(!w.log(j).failed);
  const auto& stats = w.log(j).first->stats;
  CHECK(stats.remote_tokens + stats.computed_tokens == 30);
  CHECK(w.log(j).tokens == w.reference(j));
  CHECK(w.until([&] { return w.all_idle(); }));
}

TEST_CASE("a prefix on disk is read where that beats computing it") {
  mooncaf::test::temp_dir folder;
  std::vector<std::int32_t> expected;
  {
    worker_world w{64, folder.path()};
    const auto j = w.job(worker_world::prompt(30), w.a, w.a);
    w.serve(j);
    expected = w.log(j).tokens;
    REQUIRE(w.until([&] { return w.status(w.a).ssd_blocks >= 7; }));
    REQUIRE(w.until([&] { return w.all_idle(); }));
  }
  SUBCASE("a fast disk") {
    worker_world w{64, folder.path(), transfer_price{1e9, 100us}};
    const auto j = w.job(worker_world::prompt(30), w.a, w.a);
    w.serve(j);
    CHECK(w.log(j).first->stats.ssd_tokens == 28);
    CHECK(w.log(j).tokens == expected);
    CHECK(w.status(w.a).ssd_read_bytes_per_s != 1'000'000'000);  // it was measured
  }
  SUBCASE("a slow disk") {
    worker_world w{64, folder.path(), transfer_price{1e3, 100us}};
    const auto j = w.job(worker_world::prompt(30), w.a, w.a);
    w.serve(j);
    CHECK(w.log(j).first->stats.ssd_tokens == 0);
    CHECK(w.log(j).first->stats.computed_tokens == 30);
    CHECK(w.log(j).tokens == expected);
    CHECK(w.status(w.a).ssd_read_bytes_per_s == doctest::Approx(1000).epsilon(0.01));
  }
  SUBCASE("a slow disk of another node") {
    worker_world w{64, folder.path(), transfer_price{1e3, 100us}};
    auto j = w.job(worker_world::prompt(30), w.b, w.b);
    j.placement.source = w.a.id;
    j.placement.source_blocks = 7;
    w.serve(j);
    CHECK(w.log(j).first->stats.remote_tokens == 0);
    CHECK(w.log(j).tokens == expected);
    CHECK(w.until([&] { return w.all_idle(); }));
  }
  SUBCASE("a fast disk of another node") {
    worker_world w{64, folder.path(), transfer_price{1e9, 100us}};
    auto j = w.job(worker_world::prompt(30), w.b, w.b);
    j.placement.source = w.a.id;
    j.placement.source_blocks = 7;
    w.serve(j);
    CHECK(w.log(j).first->stats.remote_tokens == 28);
    CHECK(w.log(j).tokens == expected);
  }
}

TEST_CASE(
    "a prefix on disk of which a layer has rotted is computed as far as it is bad, and answered right") {
  mooncaf::test::temp_dir folder;
  std::vector<std::int32_t> expected;
  std::vector<block_key> keys;
  {
    worker_world w{64, folder.path()};
    const auto j = w.job(worker_world::prompt(30), w.a, w.a);
    keys = j.keys;
    w.serve(j);
    expected = w.log(j).tokens;
    REQUIRE(w.until([&] { return w.status(w.a).ssd_blocks >= 7; }));
    REQUIRE(w.until([&] { return w.all_idle(); }));
  }
  std::uint32_t part = 0;
  SUBCASE("the first layer") {}
  SUBCASE("the last layer") { part = 1; }
  flip_on_disk(folder.path(), keys[3], part);
  for (const bool far : {false, true}) {
    CAPTURE(far);
    worker_world w{64, folder.path(), transfer_price{1e9, 100us}};
    const auto j = w.job(worker_world::prompt(30), w.a, far ? w.b : w.a);
    w.serve(j);
    REQUIRE(!w.log(j).failed);
    CHECK(w.log(j).tokens == expected);
    // The first time three blocks are good; computed again, all are.
    CHECK(w.log(j).first->stats.cached_tokens == (far ? 28 : 12));
    CHECK(w.until([&] { return w.all_idle(); }));
    REQUIRE(w.until([&] { return w.status(w.a).ssd_blocks >= 7; }));
  }
}

TEST_CASE("prompts with one prefix on disk read it once") {
  mooncaf::test::temp_dir folder;
  {
    worker_world w{64, folder.path()};
    w.serve(w.job(worker_world::prompt(30), w.a, w.a));
    REQUIRE(w.until([&] { return w.status(w.a).ssd_blocks >= 7; }));
    REQUIRE(w.until([&] { return w.all_idle(); }));
  }
  worker_world w{64, folder.path(), transfer_price{1e9, 100us}};
  const auto one = w.job(worker_world::prompt(30), w.a, w.a),
             other = w.job(worker_world::prompt(30), w.a, w.b);
  w.send_job(one);
  w.send_job(other);
  REQUIRE(w.until([&] { return w.over(one) && w.over(other); }));
  for (const auto* j : {&one, &other}) {
    CHECK(w.log(*j).first->stats.cached_tokens == 28);
    CHECK(w.log(*j).tokens == w.reference(*j));
  }
  CHECK(w.until([&] { return w.all_idle(); }));
  CHECK(w.status(w.a).slots_committed <= 7 + 3);  // and what the answers added
}

namespace {

/// A source that reads its SSD for as long as the test likes.
struct slow_source {
  caf::response_promise answer;
  std::vector<std::uint64_t> asked, released;
};

caf::behavior slow_shard(caf::event_based_actor* self, const std::shared_ptr<slow_source>& state) {
  return {
      [self, state](pin_remote_atom, std::uint64_t reader, const block_keys_t&, std::int64_t) {
        state->asked.push_back(reader);
        state->answer = self->make_response_promise();
        return state->answer;
      },
      [state](release_atom, std::uint64_t reader) { state->released.push_back(reader); },
      [state](const remote_blocks& read) { state->answer.deliver(read); },
  };
}

}  // namespace

TEST_CASE_FIXTURE(
    worker_world,
    "a request that ends before its prefix has begun to come lets it be, at the source and here, at once") {
  const auto j = known_to_b(*this);
  const auto committed = status(a).slots_committed;
  const auto state = std::make_shared<slow_source>();
  const auto shard = keep(sys.spawn(slow_shard, state));
  node_info source;
  source.id = b.id;
  source.data_plane = encode(b.context->plane->local_announcement());
  source.shard = shard;
  caf::anon_send(a.messenger, peer_up_atom_v, source);
  send_job(j);
  REQUIRE(until([&] { return state->asked.size() == 1; }));
  CHECK(status(a).slots_reserved > 0);
  CHECK(state->released.empty());
  cancel(j);
  CHECK(until([&] { return idle(a); }));
  CHECK(state->released == state->asked);
  // Its answer comes too late for anybody.
  remote_blocks late;
  late.region = b.context->region.id;
  late.blocks.resize(7);
  caf::anon_send(shard, late);
  run();
  state->answer = {};
  CHECK(idle(a));
  CHECK(status(a).slots_committed == committed);
  // Another one with the same prefix is served as ever.
  introduce(a, b);
  auto again = job(prompt(30), a, a);
  again.placement = j.placement;
  serve(again);
  CHECK(log(again).first->stats.remote_tokens == 28);
  CHECK(log(again).tokens == reference(again));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE("a pass waits for the layers of its prefix, and gives up on those that do not come") {
  prefix_load load{4, {}};
  SUBCASE("they come, in any order") {
    std::thread lander{[&] {
      for (const std::uint32_t layer : {1u, 0u, 3u, 2u}) load.landed(layer, 1);
    }};
    for (std::uint32_t layer = 0; layer < 4; ++layer) CHECK(load.wait(layer, 10s));
    lander.join();
    CHECK(load.leading() == 4);
  }
  SUBCASE("the load is given up") {
    load.landed(0, 1);
    CHECK(load.wait(0, 0s));
    std::thread ender{[&] { load.give_up(); }};
    CHECK(!load.wait(1, 10s));
    ender.join();
  }
  SUBCASE("nothing lands") { CHECK(!load.wait(0, 1ms)); }
}

namespace {

/// Nothing of what passes make comes to memory by itself.
struct far_world : worker_world {
  far_world() : worker_world(64, {}, {}, prefetch_mode::wait_complete, true) {}
  /// A prompt that node a has computed and answered; only its device has the KV.
  generate_job known_to_device_of_a() {
    const auto j = job(prompt(30), a, a);
    serve(j);
    REQUIRE(until([&] { return all_idle(); }));
    REQUIRE(status(a).slots_committed == 0);
    REQUIRE(a.context->device_blocks->match(j.keys) == 7);
    CHECK(log(j).tokens == reference(j));
    return j;
  }
};

}  // namespace

TEST_CASE_FIXTURE(far_world, "the next turn finds what its node's device alone has") {
  known_to_device_of_a();
  const auto again = job(prompt(30), a, a);
  serve(again);
  CHECK(log(again).first->stats.dram_tokens == 28);
  CHECK(log(again).tokens == reference(again));
  CHECK(status(a).slots_committed == 0);
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_world,
                  "what a device alone has leaves for decode on another node with what is computed") {
  known_to_device_of_a();
  const auto away = job(prompt(30), a, b);
  serve(away);
  CHECK(log(away).first->stats.dram_tokens == 28);
  CHECK(log(away).tokens == reference(away));
  CHECK(status(a).slots_committed == 7);  // on its way it came to memory
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_world, "what is fetched goes to the device behind the part of the prefix that it has") {
  const auto known = known_to_device_of_a();
  serve(job(prompt(13), b, b));
  REQUIRE(b.context->device_blocks->bring(std::span{known.keys}.first(3), 0) == 3);
  REQUIRE(until([&] { return status(b).slots_committed == 3; }));
  const auto loaded = b.context->device_blocks->stats().loaded_tokens;
  auto there = job(known.tokens, b, b);
  there.placement.source = a.id;
  there.placement.source_blocks = 7;
  serve(there);
  CHECK(log(there).first->stats.dram_tokens == 12);
  CHECK(log(there).first->stats.remote_tokens == 16);
  CHECK(b.context->device_blocks->stats().loaded_tokens - loaded == 16);
  CHECK(log(there).tokens == reference(there));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_world, "another node fetches what a device alone has: it comes to memory first") {
  auto there = job(known_to_device_of_a().tokens, b, b);
  there.placement.source = a.id;
  there.placement.source_blocks = 7;
  serve(there);
  CHECK(log(there).first->stats.remote_tokens == 28);
  CHECK(log(there).tokens == reference(there));
  CHECK(status(a).slots_committed == 7);
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_world, "what decode's own device alone has is not sent to it again") {
  const auto before = job(prompt(30), b, b);
  serve(before);
  REQUIRE(until([&] { return all_idle(); }));
  REQUIRE(b.context->device_blocks->match(before.keys) == 7);
  REQUIRE(status(b).slots_committed == 0);
  // The next turn is computed by the other node, which has nothing of it.
  auto tokens = before.tokens;
  const auto more = prompt(9, 77);
  tokens.insert(tokens.end(), more.begin(), more.end());
  const auto next = job(tokens, a, b);
  serve(next);
  CHECK(log(next).first->stats.computed_tokens == tokens.size());
  CHECK(log(next).tokens == reference(next));
  CHECK(until([&] { return all_idle(); }));
  std::uint64_t sent = 0;
  // Bytes are counted where they came from when the other side has said that they are there.
  CHECK(until([&] {
    const auto report = ask<transfer_report>(a.messenger, status_atom_v).value();
    sent = 0;
    for (const auto& p : report.paths) sent += p.bytes;
    return sent > 0;
  }));
  CHECK(sent == (tokens.size() - 28) * a.context->layout.block_bytes() / block_tokens);
}
