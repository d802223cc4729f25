// Nodes that join a conductor and get to know each other, over links that the test breaks. A link is a pair
// of relays, one per end: an end that dies is a loss that this side alone notices.

#include "actors/node.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/conductor.hpp"
#include "actors/executor.hpp"
#include "actors/metrics/report_metrics.hpp"
#include "runtime/api/cluster_view.hpp"
#include "tests/actors/silent_node.hpp"
#include "tests/support/actor_fixture.hpp"
#include "tests/support/golden_text.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

/// What one node told its actors, in order: "up 100", "down 100".
using peer_log = std::vector<std::string>;

messenger_actor::behavior_type listening_messenger(messenger_actor::pointer, std::shared_ptr<peer_log> log,
                                                   std::shared_ptr<std::vector<node_id>> fenced) {
  return {
      [=](peer_up_atom, const node_info& peer) { log->push_back("up " + to_string(peer.id)); },
      [=](peer_down_atom, node_id peer) { log->push_back("down " + to_string(peer)); },
      [](fetch_atom, const fetch_plan&) { return remote_blocks{}; },
      [](load_atom, const fetch_plan&, const prefix_load_ptr&) { return remote_blocks{}; },
      [](stop_atom, const attempt_id&) {},
      [](fence_atom, node_id, std::uint64_t) {},
      [=](status_atom) {
        transfer_report out;
        out.fenced = *fenced;
        return out;
      },
      [](read_atom, std::uint64_t, const error&) {},
      [](tick_atom, node_id) {},
  };
}

/// One end of a link: passes everything on, and stands for the far end.
class relay final : public node_actor::base {
 public:
  relay(caf::actor_config& config, node_actor far, std::shared_ptr<node_actor> back)
      : node_actor::base(config), far_(std::move(far)), back_(std::move(back)) {}
  behavior_type make_behavior() override {
    return {
        [this](hello_atom, node_info who) -> caf::result<node_info> {
          who.node = caf::actor_cast<caf::actor>(*back_);
          auto promise = make_response_promise();
          request(far_, 10s, hello_atom_v, std::move(who))
              .then(
                  [this, promise](node_info answer) mutable {
                    answer.node = caf::actor_cast<caf::actor>(node_actor{this});
                    promise.deliver(answer);
                  },
                  [promise](caf::error& e) mutable { promise.deliver(std::move(e)); });
          return promise;
        },
        [](status_atom) { return node_report{}; },
        [this](claim_atom, const lead_claim& claim) { return delegate(far_, claim_atom_v, claim); },
        [](drain_atom) {},
        [](listen_atom, std::uint16_t) {},
        [](tick_atom) {},
    };
  }
  void on_exit() override {
    far_ = nullptr;
    back_ = nullptr;
  }

 private:
  node_actor far_;
  std::shared_ptr<node_actor> back_;
};

struct node_world : testing::actor_fixture<caf::id_block::mooncaf> {
  struct machine {
    node_id id;
    node_actor root;
    std::shared_ptr<peer_log> log = std::make_shared<peer_log>();
    std::shared_ptr<std::vector<node_id>> fenced = std::make_shared<std::vector<node_id>>();
    int dials = 0;
    std::vector<std::string> directories;  ///< of the object store, as it was told
  };

  node_world() {
    conductor_setup setup;
    setup.core.block_tokens = 4;
    setup.core.admission = admission_policy::none;
    setup.fingerprint = fingerprint;
    setup.model = "the model";
    boss = keep(sys.spawn<conductor>(setup));
    add(1, boss);
  }
  ~node_world() {
    for (auto& [id, m] : machines) stop(m.root);
    machines.clear();
    ends.clear();
  }

  /// A node whose control port is its id; it joins node 1 unless it has the conductor itself.
  machine& add(std::uint64_t id, const conductor_actor& local_conductor = {},
               const block_key& model = fingerprint) {
    auto& m = machines[id];
    m.id = node_id{id};
    auto context = std::make_shared<node_context>();
    context->id = m.id;
    local_actors local;
    local.conductor = local_conductor;
    local.messenger = keep(sys.spawn(listening_messenger, m.log, m.fenced));
    node_info info;
    info.id = m.id;
    info.name = "node-" + std::to_string(id);
    info.host = "test";
    info.fingerprint = model;
    info.model = model == fingerprint ? "the model" : "another model";
    if (local_conductor) info.conductor = caf::actor_cast<caf::actor>(local_conductor);
    if (local_conductor) info.directory = "test:7460";
    const std::vector<std::array<std::int64_t, 3>> samples{{16, 0, 10'000'000}, {64, 0, 40'000'000}};
    const auto nobody = caf::actor_cast<caf::actor>(local.messenger);
    info.workers = {{worker_id{id * 10 + 1}, worker_role::prefill, nobody, 64, samples},
                    {worker_id{id * 10 + 2}, worker_role::decode, nobody, 8, samples}};
    conductor_seats seats;
    if (local_conductor) seats.here = 0;
    else seats.at = {host_port{"test", 1}};
    m.root = sys.spawn<node>(
        context, local, std::make_shared<node_info>(info), seats, leadership_voter{0s, {}},
        [this, id](const std::string&, std::uint16_t port) { return dial(id, port); },
        keep(sys.spawn(executor_behavior)),
        [&m](const node_info& found) {
          if (!found.directory.empty()) m.directories.push_back(found.directory);
        });
    caf::anon_send(m.root, listen_atom_v, static_cast<std::uint16_t>(id));
    run();
    return m;
  }

  result<node_actor> dial(std::uint64_t from, std::uint64_t to) {
    ++machines[from].dials;
    if (const auto heir = heirs.find(to); heir != heirs.end()) to = heir->second;
    if (cuts.contains({from, to}) || cuts.contains({to, from}))
      return fail(ec::peer_lost, "the cable is cut");
    const auto far = machines.find(to);
    if (far == machines.end() || !far->second.root) return fail(ec::peer_lost, "nobody is there");
    // Links are kept, as CAF keeps them, until an end dies.
    auto& mine = ends[{from, to}];
    auto& theirs = ends[{to, from}];
    if (!mine) mine = std::make_shared<node_actor>();
    if (!theirs) theirs = std::make_shared<node_actor>();
    if (!*mine) *mine = keep(sys.spawn<relay>(machines[to].root, theirs));
    if (!*theirs) *theirs = keep(sys.spawn<relay>(machines[from].root, mine));
    return *mine;
  }
  /// The link's end at `at` dies: that side notices.
  void breaks(std::uint64_t at, std::uint64_t towards) {
    auto& end = ends[{at, towards}];
    REQUIRE(end);
    const auto gone = std::exchange(*end, node_actor{});
    stop(gone);
  }
  void cut(std::uint64_t a, std::uint64_t b) {
    cuts.emplace(a, b);
    breaks(a, b);
    breaks(b, a);
  }
  void pass(duration time) {
    for (duration done{}; done < time; done += 100ms) advance_time(100ms);
  }
  peer_log& log(std::uint64_t id) { return *machines.at(id).log; }
  nlohmann::json cluster() {
    return nlohmann::json::parse(cluster_json(ask<cluster_status>(boss, status_atom_v).value()).value());
  }
  placement_msg schedule(std::uint64_t gateway) {
    schedule_job job;
    job.id = {request_id{++requests}, 0};
    job.prompt_tokens = 10;
    job.max_tokens = 5;
    job.gateway = node_id{gateway};
    return ask<placement_msg>(boss, schedule_atom_v, job).value();
  }

  conductor_actor boss;
  std::map<std::uint64_t, machine> machines;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<node_actor>> ends;
  std::set<std::pair<std::uint64_t, std::uint64_t>> cuts;
  std::map<std::uint64_t, std::uint64_t> heirs;  ///< who lives where another node did
  std::uint64_t requests = 0;
};

}  // namespace

TEST_CASE_FIXTURE(node_world, "nodes that join get to know each other, once") {
  add(2);
  add(3);
  pass(5s);
  CHECK(log(1) == peer_log{"up 2", "up 3"});
  CHECK(log(2) == peer_log{"up 1", "up 3"});
  CHECK(log(3) == peer_log{"up 1", "up 2"});
  CHECK(cluster()["broken_links"].empty());
  CHECK(machines[2].dials == 1);
  CHECK(machines[3].dials == 2);
}

TEST_CASE_FIXTURE(node_world,
                  "a pair whose link broke calls until it is together again, and gets no work meanwhile") {
  add(2);
  add(3);
  pass(1s);
  cut(2, 3);
  pass(1s);
  CHECK(cluster()["broken_links"] == nlohmann::json::parse(R"([["node-2","node-3"]])"));
  for (int i = 0; i < 20; ++i) {
    const auto placed = schedule(1);
    REQUIRE(placed.rejection.code == ec::none);
    const auto apart = std::pair{std::min(placed.prefill_node, placed.decode_node),
                                 std::max(placed.prefill_node, placed.decode_node)};
    CHECK(apart != std::pair{node_id{2}, node_id{3}});
    CHECK(schedule(2).decode_node != node_id{3});
  }
  pass(10min);
  CHECK(machines[2].dials < 1000);  // with back-off
  cuts.clear();
  pass(5s);
  CHECK(log(2) == peer_log{"up 1", "up 3", "down 3", "up 3"});
  CHECK(log(3) == peer_log{"up 1", "up 2", "down 2", "up 2"});
  CHECK(log(1) == peer_log{"up 2", "up 3"});
  CHECK(cluster()["broken_links"].empty());
}

TEST_CASE_FIXTURE(node_world, "when one side alone lost the other, both begin anew") {
  add(2);
  add(3);
  pass(1s);
  for (const auto& [one, other] : {std::pair{2, 3}, std::pair{3, 2}}) {
    log(2).clear();
    log(3).clear();
    breaks(static_cast<std::uint64_t>(one), static_cast<std::uint64_t>(other));
    pass(10s);
    CHECK(log(2) == peer_log{"down 3", "up 3"});
    CHECK(log(3) == peer_log{"down 2", "up 2"});
  }
}

TEST_CASE_FIXTURE(node_world, "a peer that was fenced is greeted anew by both sides") {
  add(2);
  add(3);
  pass(1s);
  machines[3].fenced->push_back(node_id{2});
  pass(400ms);
  machines[3].fenced->clear();
  pass(10s);
  CHECK(log(3) == peer_log{"up 1", "up 2", "down 2", "up 2"});
  CHECK(log(2) == peer_log{"up 1", "up 3", "down 3", "up 3"});
}

TEST_CASE_FIXTURE(node_world,
                  "who is called under its predecessor's id begins anew on both sides or on none") {
  add(2);
  add(3);
  pass(1s);
  // Started again at once, at the same address: the others still call the one that died there.
  bool noticed_late = false;
  SUBCASE("its death is noticed first") {}
  SUBCASE("its death is noticed when the new one is there") { noticed_late = true; }
  stop(std::exchange(machines[3].root, {}));
  heirs[3] = 4;
  if (noticed_late) add(4);
  for (const std::uint64_t id : {1, 2}) breaks(id, 3);
  if (!noticed_late) add(4);
  pass(10s);
  for (const std::uint64_t id : {1, 2}) {
    CAPTURE(id);
    const auto other = std::to_string(id);
    for (const std::string what : {"up ", "down "})
      CHECK(std::ranges::count(log(id), what + "4") == std::ranges::count(log(4), what + other));
    CHECK(std::ranges::count(log(id), "up 4") == std::ranges::count(log(id), "down 4") + 1);
  }
  CHECK(cluster()["broken_links"].empty());
}

TEST_CASE_FIXTURE(node_world, "a node that the conductor dropped, and that is alive, joins again") {
  add(2);
  pass(1s);
  CHECK(cluster()["nodes"].size() == 2);
  for (const std::uint64_t id : {1, 2}) {
    // Somebody else dies under its id, as when a word about its death was late.
    node_info ghost;
    ghost.id = node_id{id};
    ghost.name = "ghost";
    ghost.fingerprint = fingerprint;
    const auto dying = sys.spawn(executor_behavior);
    ghost.node = caf::actor_cast<caf::actor>(dying);
    REQUIRE(ask<std::vector<node_info>>(boss, join_atom_v, ghost));
    stop(dying);
    CHECK(cluster()["nodes"].size() == 1);
    pass(1s);
    CHECK(cluster()["nodes"].size() == 2);
    CHECK(schedule(id).rejection.code == ec::none);
  }
}

TEST_CASE_FIXTURE(node_world,
                  "a node that was told to stop gets no work, is shown as draining, and knows it") {
  add(2);
  pass(1s);
  CHECK_FALSE(ask<node_report>(machines.at(2).root, status_atom_v)->announced);
  caf::anon_send(machines.at(2).root, drain_atom_v);
  pass(500ms);
  const auto standing = ask<node_report>(machines.at(2).root, status_atom_v).value();
  CHECK(standing.announced);
  CHECK_FALSE(standing.last);
  const auto shown = cluster();
  for (const auto& n : shown["nodes"]) CHECK(n["draining"] == (n["name"] == "node-2"));
  for (int i = 0; i < 8; ++i) {
    const auto where = schedule(1);
    REQUIRE(where.rejection.code == ec::none);
    CHECK(where.prefill_node == node_id{1});
    CHECK(where.decode_node == node_id{1});
  }
}

TEST_CASE_FIXTURE(node_world, "a process that was stopped for minutes, conductor and all, serves as before") {
  pass(2s);
  advance_time(3min);
  pass(2s);
  CHECK(cluster()["nodes"].size() == 1);
  CHECK(schedule(1).rejection.code == ec::none);
}

TEST_CASE_FIXTURE(node_world, "a conductor's node that is lost is looked for with back-off, and found") {
  add(2);
  pass(1s);
  const auto before = machines[2].dials;
  cut(1, 2);
  pass(60s);
  CHECK(machines[2].dials - before < 60);
  CHECK(machines[2].dials - before > 20);
  cuts.clear();
  pass(5s);
  CHECK(log(2) == peer_log{"up 1", "down 1", "up 1"});
  CHECK(cluster()["nodes"].size() == 2);
}

TEST_CASE_FIXTURE(node_world, "who finds a conductor is told where its directory of objects is") {
  add(2);
  pass(1s);
  CHECK(machines[2].directories == std::vector<std::string>{"test:7460"});
  CHECK(machines[1].directories.empty());
  cut(1, 2);
  pass(2s);
  cuts.clear();
  pass(10s);
  CHECK(machines[2].directories == std::vector<std::string>(2, "test:7460"));
}

TEST_CASE_FIXTURE(node_world, "a node with another model gives up, and says whose model is which") {
  const auto& stranger = add(2, {}, hash_text128("another model"));
  bool ended = false;
  std::string reason;
  self->monitor(stranger.root);
  self->receive(
      [&](const caf::down_msg& down) {
        ended = true;
        reason = from_caf(down.reason).detail;
      },
      caf::after(0s) >> [] {});
  REQUIRE(ended);
  CHECK(reason.find("node-1 at test:1 serves the model") != std::string::npos);
  CHECK(reason.find("node-2 has another model") != std::string::npos);
}

TEST_CASE_FIXTURE(node_world, "what a node's actors count is what its scraper reads") {
  shard_status shard;
  shard.slots_total = 100;
  shard.slots_free = 31;
  shard.slots_reserved = 12;
  shard.slots_committed = 43;
  shard.slots_pinned = 14;
  shard.slots_private = 5;
  shard.slots_quarantined = 6;
  shard.slots_withheld = 7;
  shard.ssd_blocks = 88;
  shard.hits_device = 9;
  shard.hits_dram = 10;
  shard.hits_ssd = 11;
  shard.hits_remote = 12;
  shard.ssd_read_bytes_per_s = 123'456'789;
  transfer_report moved;
  moved.paths = {{node_id{7}, "tcp", 1000, 1, 2, 3, 4, 5, 6, 7, 5'000'000, 250'000, true},
                 {node_id{8}, "tcp", 500, 1, 2, 3, 4, 5, 6, 7, 0, 0, false},
                 {node_id{8}, "rdma", 300, 1, 2, 3, 4, 5, 6, 7, 6'000'000, 1'500, false}};
  moved.rails = {{"mlx5_0/1", "fe80::1", true, 21, 22, 23, 24, 2500, {}}};
  const auto answering = [](auto what) {
    return
        [what](caf::event_based_actor*) -> caf::behavior { return {[what](status_atom) { return what; }}; };
  };
  const auto load = [](worker_id id, std::uint32_t running, std::uint32_t waiting) {
    worker_load out;
    out.id = id;
    out.running = running;
    out.waiting = waiting;
    return out;
  };
  auto context = std::make_shared<node_context>();
  context->id = node_id{5};
  context->meters = std::make_shared<metrics>("m");
  local_actors local;
  local.shard = caf::actor_cast<cache_shard_actor>(keep(sys.spawn(answering(shard))));
  local.messenger = caf::actor_cast<messenger_actor>(keep(sys.spawn(answering(moved))));
  local.prefill = {
      caf::actor_cast<prefill_worker_actor>(keep(sys.spawn(answering(load(worker_id{51}, 3, 5)))))};
  local.decode = {
      caf::actor_cast<decode_worker_actor>(keep(sys.spawn(answering(load(worker_id{52}, 4, 6)))))};
  node_info info;
  info.id = node_id{5};
  info.workers = {{worker_id{51}, worker_role::prefill, {}, 64, {}},
                  {worker_id{52}, worker_role::decode, {}, 8, {}}};
  const auto under_test = sys.spawn<node>(
      context, local, std::make_shared<node_info>(info), conductor_seats{}, leadership_voter{0s, {}},
      [](const std::string&, std::uint16_t) -> result<node_actor> { return fail(ec::peer_lost, "nobody"); },
      keep(sys.spawn(executor_behavior)), [](const node_info&) {});
  caf::anon_send(under_test, listen_atom_v, std::uint16_t{5});
  run();
  pass(3s);
  auto& m = *context->meters;
  node_report device;
  device.device = {10, 4, 11, 12, 13, 14, 15, 16, 17, {}};
  device.workers = {load(worker_id{51}, 3, 5), load(worker_id{52}, 4, 6)};
  show(m, device, std::array{worker_id{51}});
  m.set(series::ssd, 1, {"refuses_writes"});
  m.set(series::queued, 2);
  m.device_failed("decode");
  m.request_over("rejected", "a tenant", 1s);
  m.tokens_of_tenant("a tenant", 5, 4, 3);
  testing::check_golden("status/metrics.txt", m.text());
  stop(under_test);
}
