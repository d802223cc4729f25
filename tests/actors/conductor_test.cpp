// The conductor as nodes, shards and gateways see it. What it decides is tested below (tests/runtime/sched);
// here it is who may join, what it believes about blocks, and that no load stays charged.

#include "actors/conductor.hpp"

#include <doctest/doctest.h>

#include "runtime/api/cluster_view.hpp"
#include "tests/actors/silent_node.hpp"
#include "tests/support/actor_fixture.hpp"
#include "tests/support/golden_text.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

/// A shard that only counts who follows it.
cache_shard_actor::behavior_type counting_shard(cache_shard_actor::pointer, std::shared_ptr<int> follows) {
  return {
      [](look_atom, const block_keys_t&) { return prefix_view{}; },
      [](pin_atom, std::uint64_t, const block_keys_t&, std::uint32_t) { return pinned_slots{}; },
      [](pin_atom, std::uint64_t, const block_keys_t&) { return pinned_slots{}; },
      [](pin_remote_atom, std::uint64_t, const block_keys_t&, std::int64_t) { return remote_blocks{}; },
      [](load_atom, const fetch_plan&, const prefix_load_ptr&) { return remote_blocks{}; },
      [](reserve_atom, std::uint64_t, std::uint32_t) { return std::vector<slot_index>{}; },
      [](commit_atom, std::uint64_t, const std::vector<commit_item>&) {},
      [](found_atom, std::uint64_t, std::uint64_t) {},
      [](renew_atom, const std::vector<std::uint64_t>&) {},
      [](fence_atom, std::uint64_t) {},
      [](confirm_atom, std::uint64_t) {},
      [](release_atom, std::uint64_t) {},
      [](status_atom) { return shard_status{}; },
      [](flush_atom) -> std::uint64_t { return 0; },
      [](keep_atom, std::uint64_t, const block_keys_t&, const std::vector<keep_mark>&) {
        return std::vector<std::uint32_t>{};
      },
      [](keep_atom, std::uint64_t, const block_key&) { return std::vector<kept_status>{}; },
      [](withhold_atom, std::uint64_t) { return boundary_state{}; },
      [=](follow_atom, const caf::actor&) { ++*follows; },
      [](tick_atom) {},
  };
}

struct conductor_world : testing::actor_fixture<caf::id_block::mooncaf> {
  explicit conductor_world(admission_policy admission = admission_policy::none) {
    conductor_setup setup;
    setup.core.block_tokens = 4;
    setup.core.bytes_per_token = 1000;
    setup.core.admission = admission;
    setup.fingerprint = fingerprint;
    setup.model = "the model";
    setup.layout = "its layout";
    under_test = keep(sys.spawn<conductor>(setup));
    for (int i = 0; i < 8; ++i) keys.push_back(hash_text128("block " + std::to_string(i)));
  }

  /// A node with one worker of each role and a shard.
  node_info make(std::uint64_t id) {
    node_info n;
    n.id = node_id{id};
    n.name = "node-" + std::to_string(id);
    n.fingerprint = fingerprint;
    const auto self_handle = keep(sys.spawn(silent_node));
    n.node = caf::actor_cast<caf::actor>(self_handle);
    n.shard = caf::actor_cast<caf::actor>(keep(sys.spawn(counting_shard, follows)));
    const std::vector<std::array<std::int64_t, 3>> samples{
        {16, 0, 10'000'000}, {64, 0, 40'000'000}, {64, 64, 50'000'000}};
    n.workers = {{worker_id{id + 1}, worker_role::prefill, n.node, 64, samples},
                 {worker_id{id + 2}, worker_role::decode, n.node, 8, samples}};
    return n;
  }
  result<std::vector<node_info>> join(const node_info& n) {
    return ask<std::vector<node_info>>(under_test, join_atom_v, n);
  }
  placement_msg schedule(std::uint64_t request, std::uint32_t attempt = 0, std::uint64_t gateway = 0) {
    schedule_job job;
    job.gateway = node_id{gateway};
    job.id = {request_id{request}, attempt};
    job.keys = keys;
    job.prompt_tokens = 33;
    job.max_tokens = 10;
    return ask<placement_msg>(under_test, schedule_atom_v, job).value();
  }
  void tell(request_stage stage, std::uint64_t request, std::uint32_t attempt = 0) {
    request_event e;
    e.id = {request_id{request}, attempt};
    e.stage = stage;
    e.new_tokens = 33;
    e.compute_ns = 20'000'000;
    caf::anon_send(under_test, event_atom_v, e);
    run();
  }
  void blocks(std::uint64_t node, std::uint64_t seq, bool snapshot, std::uint32_t part, std::size_t from,
              std::size_t to, block_change what = block_change::stored) {
    block_event_batch batch;
    batch.node = node_id{node};
    batch.first_seq = seq;
    batch.snapshot = snapshot;
    batch.part = part;
    for (auto i = from; i < to; ++i) {
      block_event e;
      e.name.key = keys[i];
      e.name.depth = static_cast<std::uint32_t>(i);
      e.what = what;
      batch.events.push_back(e);
    }
    caf::anon_send(under_test, blocks_atom_v, batch);
    run();
  }
  /// The number behind `"name":` in the status.
  std::uint64_t count(const std::string& name) {
    const auto json = cluster_json(ask<cluster_status>(under_test, status_atom_v).value()).value();
    const auto at = json.find("\"" + name + "\":");
    REQUIRE_MESSAGE(at != std::string::npos, name);
    return std::stoull(json.substr(at + name.size() + 3));
  }

  std::shared_ptr<int> follows = std::make_shared<int>(0);
  block_keys_t keys;
  conductor_actor under_test;
};

struct early_world : conductor_world {
  early_world() : conductor_world(admission_policy::early) {}
};

}  // namespace

TEST_CASE_FIXTURE(early_world,
                  "a node's full memory is foreseen: what would not fit is refused, and counted") {
  auto node = make(100);
  node.workers[1].memory_tokens = 100;
  REQUIRE(join(node));
  CHECK(schedule(1).rejection.code == ec::none);  // 33 tokens of prompt and 10 of answer
  CHECK(schedule(2).rejection.code == ec::none);
  const auto third = schedule(3);
  CHECK(third.rejection.code == ec::overloaded);
  CHECK(third.retry_after_ns > 0);
  CHECK(count("rejected_memory") == 1);
  tell(request_stage::failed, 1);
  CHECK(schedule(4).rejection.code == ec::none);
}

TEST_CASE_FIXTURE(conductor_world,
                  "a node that joins is told who is there, and those with another model stay out") {
  const auto a = make(100), b = make(200);
  CHECK(join(a)->empty());
  const auto others = join(b);
  REQUIRE(others);
  REQUIRE(others->size() == 1);
  CHECK(others->front().id == a.id);
  auto stranger = make(300);
  stranger.fingerprint = hash_text128("another model");
  stranger.model = "another model";
  const auto refused = join(stranger);
  REQUIRE(!refused);
  CHECK(refused.error().code == ec::incompatible);
  CHECK(refused.error().detail.find("another model") != std::string::npos);
  CHECK(join(make(400))->size() == 2);
  // Again, as after a broken link: it is not its own peer.
  CHECK(join(a)->size() == 2);
}

TEST_CASE_FIXTURE(conductor_world,
                  "without instances nothing is placed, and with the last of them gone neither") {
  CHECK(schedule(1).rejection.code == ec::unavailable);
  const auto a = make(100);
  REQUIRE(join(a));
  const auto placed = schedule(2);
  CHECK(placed.rejection.code == ec::none);
  CHECK(placed.prefill == worker_id{101});
  CHECK(placed.decode == worker_id{102});
  CHECK(placed.prefill_node == a.id);
  CHECK(placed.decode_node == a.id);
  stop(a.node);
  CHECK(schedule(3).rejection.code == ec::unavailable);
  CHECK(count("charged_requests") == 0);
}

TEST_CASE_FIXTURE(conductor_world, "requests go where their prefix is, as long as it is there") {
  REQUIRE(join(make(100)));
  REQUIRE(join(make(200)));
  blocks(200, 0, true, 0, 0, 8);
  auto placed = schedule(1);
  CHECK(placed.prefill_node == node_id{200});
  CHECK(placed.local_blocks == 8);
  tell(request_stage::finished, 1);
  blocks(200, 1, false, 0, 3, 8, block_change::removed);
  CHECK(schedule(2).local_blocks == 3);
  tell(request_stage::finished, 2);
  CHECK(*follows == 0);
}

TEST_CASE_FIXTURE(conductor_world,
                  "lost block events are noticed, and a snapshot in parts sets things right") {
  REQUIRE(join(make(100)));
  blocks(100, 5, true, 0, 0, 4);
  CHECK(schedule(1).local_blocks == 4);
  blocks(100, 6, false, 0, 4, 5);
  CHECK(schedule(2).local_blocks == 5);
  blocks(100, 9, false, 0, 5, 6);  // 7 and 8 never came
  CHECK(*follows == 1);
  blocks(100, 10, false, 0, 5, 6);
  CHECK(*follows == 1);  // asked once
  CHECK(count("resyncs") == 1);
  blocks(100, 20, true, 0, 0, 2);
  CHECK(schedule(3).local_blocks == 2);  // part 0 replaces everything
  blocks(100, 20, true, 1, 2, 7);
  CHECK(schedule(4).local_blocks == 7);  // later parts add
  blocks(100, 21, false, 0, 7, 8);
  CHECK(schedule(5).local_blocks == 8);
  CHECK(*follows == 1);
  blocks(100, 30, false, 0, 0, 1);
  CHECK(*follows == 2);
}

TEST_CASE_FIXTURE(conductor_world,
                  "what a node held is forgotten when it leaves, and strangers' events are ignored") {
  const auto a = make(100);
  REQUIRE(join(a));
  blocks(100, 0, true, 0, 0, 8);
  blocks(999, 0, true, 0, 0, 8);
  CHECK(count("blocks") == 8);
  CHECK(schedule(1).local_blocks == 8);
  stop(a.node);
  REQUIRE(join(make(100)));
  CHECK(schedule(2).local_blocks == 0);
}

TEST_CASE_FIXTURE(conductor_world, "load is given back on every way a request can end, and only its own") {
  REQUIRE(join(make(100)));
  const auto b = make(200);
  REQUIRE(join(b));
  for (std::uint64_t r = 1; r <= 4; ++r) schedule(r);
  CHECK(count("charged_requests") == 4);
  tell(request_stage::first_token, 1);
  CHECK(count("charged_requests") == 4);
  tell(request_stage::finished, 1);
  CHECK(count("charged_requests") == 3);
  tell(request_stage::failed, 2);
  CHECK(count("charged_requests") == 2);
  // A second attempt is charged by itself; late words about the first do not release it.
  tell(request_stage::failed, 3);
  schedule(3, 1);
  tell(request_stage::failed, 3);
  tell(request_stage::finished, 3);
  CHECK(count("charged_requests") == 2);
  tell(request_stage::finished, 3, 1);
  tell(request_stage::finished, 3, 1);
  tell(request_stage::failed, 77);
  CHECK(count("charged_requests") == 1);
  tell(request_stage::finished, 4);
  CHECK(count("charged_requests") == 0);
}

TEST_CASE_FIXTURE(conductor_world,
                  "a lost part of a snapshot is noticed, and what comes after it is not believed") {
  REQUIRE(join(make(100)));
  blocks(100, 20, true, 0, 0, 2);
  blocks(100, 20, true, 2, 4, 7);  // part 1 never came
  CHECK(*follows == 1);
  blocks(100, 21, false, 0, 7, 8);
  CHECK(*follows == 1);
  CHECK(count("resyncs") == 1);
  CHECK(schedule(1).local_blocks == 2);
  blocks(100, 30, true, 0, 0, 4);
  blocks(100, 30, true, 1, 4, 8);
  CHECK(schedule(2).local_blocks == 8);
  CHECK(*follows == 1);
}

TEST_CASE_FIXTURE(conductor_world,
                  "a gateway that dies leaves no charge behind, and one that is unknown makes none") {
  REQUIRE(join(make(100)));
  auto gateways = std::vector{make(200), make(300)};
  for (auto& g : gateways) {
    g.workers.clear();
    REQUIRE(join(g));
  }
  for (std::uint64_t r = 1; r <= 48; ++r) CHECK(schedule(r, 0, 200).rejection.code == ec::none);
  CHECK(schedule(49, 0, 300).rejection.code == ec::none);
  tell(request_stage::first_token, 1);
  CHECK(count("charged_requests") == 49);
  stop(gateways[0].node);
  CHECK(count("charged_requests") == 1);
  // Its question was still on the way when it died.
  const auto late = schedule(50, 0, 200);
  CHECK(late.rejection.code == ec::unavailable);
  CHECK(late.retry_after_ns > 0);
  CHECK(count("charged_requests") == 1);
}

TEST_CASE_FIXTURE(conductor_world, "charges of whose end nobody tells are given back in the end") {
  const auto a = make(100);
  REQUIRE(join(a));
  CHECK(schedule(1).rejection.code == ec::none);
  node_report sign_of_life;
  sign_of_life.node = a.id;
  for (int minute = 0; minute < 61 * 12; ++minute) {
    advance_time(std::chrono::seconds(5));
    REQUIRE(ask<roster_msg>(under_test, report_atom_v, sign_of_life));
  }
  CHECK(count("charged_requests") == 0);
  CHECK(schedule(2).rejection.code == ec::none);
}

TEST_CASE_FIXTURE(conductor_world,
                  "a report is answered with how its sender stands, and with the members when they changed") {
  const auto a = make(100);
  node_report mine;
  mine.node = a.id;
  CHECK(!ask<roster_msg>(under_test, report_atom_v, mine)->member);
  REQUIRE(join(a));
  auto answer = ask<roster_msg>(under_test, report_atom_v, mine).value();
  CHECK(answer.member);
  CHECK(answer.news);
  CHECK(answer.others.empty());
  mine.roster = answer.version;
  CHECK(!ask<roster_msg>(under_test, report_atom_v, mine)->news);
  const auto b = make(200);
  REQUIRE(join(b));
  answer = ask<roster_msg>(under_test, report_atom_v, mine).value();
  CHECK(answer.news);
  REQUIRE(answer.others.size() == 1);
  CHECK(answer.others[0].id == b.id);
  CHECK(answer.others[0].name == b.name);
  CHECK(!answer.others[0].node);  // handles come from the node itself
  mine.roster = answer.version;
  stop(b.node);
  CHECK(ask<roster_msg>(under_test, report_atom_v, mine)->news);
}

namespace {

/// A report in which no two numbers are alike.
node_report report_of(const node_info& from, std::uint64_t n) {
  node_report out;
  out.node = from.id;
  for (const auto& w : from.workers)
    out.workers.push_back({w.id,
                           static_cast<std::uint32_t>(n += 1),
                           static_cast<std::uint32_t>(n += 1),
                           n += 1,
                           n += 1,
                           n += 1,
                           static_cast<std::int64_t>(n += 1) * 1234567,
                           static_cast<std::uint32_t>(n += 1),
                           n += 1,
                           {}});
  out.has_shard = true;
  auto& s = out.shard;
  for (auto* field : {&s.slots_total,
                      &s.slots_free,
                      &s.slots_reserved,
                      &s.slots_committed,
                      &s.slots_pinned,
                      &s.slots_private,
                      &s.slots_quarantined,
                      &s.slots_withheld,
                      &s.ssd_blocks,
                      &s.ssd_bytes,
                      &s.ssd_capacity_bytes,
                      &s.ssd_written_bytes,
                      &s.ssd_read_bytes,
                      &s.ssd_copies,
                      &s.ssd_evictions,
                      &s.ssd_copies_dropped,
                      &s.ssd_last_copies_kept,
                      &s.owners,
                      &s.evictions,
                      &s.evictions_lost,
                      &s.hits_device,
                      &s.hits_dram,
                      &s.hits_ssd,
                      &s.hits_remote,
                      &s.misses,
                      &s.ssd_read_bytes_per_s})
    *field = n += 1;
  out.device = {n + 90, n + 91, n + 92, n + 93, n + 94, n + 95, n + 96, n + 97, n + 98, "no NIC \"there\""};
  path_status path{node_id{200}, "tcp", n + 1,   n + 2, n + 3,  n + 4, n + 5,
                   n + 6,        n + 7, 1234567, n + 8, 765432, true};
  out.moved.paths = {path, path};
  out.moved.paths[1].peer = node_id{999};  // nobody knows it
  out.ranks = {{"other", "10.0.0.2:7401", "1 to 10", "host avx2, 4 threads", "10.0.0.2:9400"},
               {"node", "", "11 to 20", "host avx2, 4 threads", ""}};
  out.moved.rails = {{"mlx5_0/1", "fe80::1", true, n + 11, n + 12, n + 13, n + 14, 54321, "broken \xC3\xA4"}};
  out.requests_live = n + 20;
  return out;
}

}  // namespace

TEST_CASE_FIXTURE(conductor_world,
                  "what is told of the cluster has the names and numbers that scripts read") {
  const auto a = make(100), b = make(200), pool = [&] {
    auto n = make(300);
    n.workers.clear();
    n.roles = "cache";
    n.host = "10.0.0.3";
    return n;
  }();
  for (const auto& node : {a, b, pool}) REQUIRE(join(node));
  blocks(100, 0, true, 0, 0, 4);
  blocks(200, 0, true, 0, 0, 8);
  advance_time(std::chrono::milliseconds(1500));
  auto of_a = report_of(a, 1000), of_b = report_of(b, 2000), of_pool = report_of(pool, 3000);
  of_b.workers[1].failure = "the device is gone";
  of_b.shard.consistent = false;
  of_pool.device = {};
  of_pool.unreachable = {a.id};
  for (const auto& r : {of_a, of_b, of_pool}) REQUIRE(ask<roster_msg>(under_test, report_atom_v, r));
  advance_time(std::chrono::milliseconds(700));
  for (std::uint64_t r = 1; r <= 3; ++r) schedule(r);
  tell(request_stage::first_token, 1);
  tell(request_stage::finished, 2);
  const auto cluster = ask<cluster_status>(under_test, status_atom_v).value();
  testing::check_golden("status/cluster.json", cluster_json(cluster).value() + "\n" +
                                                   integrity_of(cluster).value() + "\n" +
                                                   health_of(cluster).value() + "\n");
}
