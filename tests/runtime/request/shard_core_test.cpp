// Who waits in a shard, for what and for how long; what the disk is given, and what is told of it.

#include "runtime/request/shard_core.hpp"

#include <doctest/doctest.h>

#include <map>

#include "tests/storage/tiered_world.hpp"

using namespace mooncaf;
using namespace mooncaf::test;

namespace {

constexpr std::uint64_t reader = 21, writer = 22;

/// A shard whose disk works when the test says so, and whose device has what the test says.
struct shard_world {
  explicit shard_world(write_policy write = write_policy::write_through, bool ssd = true,
                       std::size_t slots = 8)
      : memory(pool::make(slots, {tiered_block_bytes})), core(store_of(write, ssd), options(ssd)) {}

  tiered_store store_of(write_policy write, bool ssd) {
    auto o = options_for(write);
    o.ssd = ssd;
    return {memory.slots, o};
  }
  shard_core_options options(bool ssd) {
    shard_core_options o;
    o.self = node_id{3};
    o.region = region_id{4};
    o.disk = ssd;
    o.disk_price = transfer_price{256e3, 1ms};  // 1 ms a block, behind another millisecond
    o.lease = 30s;
    o.keeps = {6, 4};
    o.bring = [this](std::span<const block_key>, std::uint32_t here) { return std::max(here, on_device); };
    return o;
  }

  void act() {
    for (auto& action : core.take_actions()) std::visit([this](auto& what) { carry_out(what); }, action);
  }
  void carry_out(shard_action::answer& what) {
    REQUIRE(answers.emplace(what.asked, std::move(what.what)).second);
  }
  void carry_out(shard_action::run_jobs& what) {
    REQUIRE(jobs.empty());
    jobs = std::move(what.jobs);
    load = what.load;
  }
  void carry_out(shard_action::tell_device&) { ++device_told; }
  void carry_out(shard_action::disk_state& what) { states.push_back(what); }
  void carry_out(shard_action::give_pages_back& what) { pages.push_back(what.offset); }
  void carry_out(shard_action::announce& what) { told.push_back(std::move(what.batch)); }
  void carry_out(shard_action::ask_for_copies& what) { copies_asked.push_back(std::move(what.keys)); }

  /// One turn of the disk. @returns whether it had work.
  bool run_disk(duration took = 1ms) {
    act();
    if (jobs.empty()) return false;
    std::vector<io_result> done;
    for (const auto& job : std::exchange(jobs, {})) done.push_back(disk.run(job));
    core.ran(done, took, now);
    act();
    return true;
  }
  void run_all() {
    while (run_disk()) {
    }
  }
  void write(const std::vector<block_name>& names, std::uint64_t owner = writer) {
    const auto slots = core.reserve(owner, static_cast<std::uint32_t>(names.size()), now);
    REQUIRE_MESSAGE(slots, to_string(slots.error()));
    std::vector<commit_item> items;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto slot = core.store().slot((*slots)[i]);
      fill({slot.address, tiered_block_bytes}, names[i].key);
      items.push_back({slot.index, names[i], checksum64({slot.address, tiered_block_bytes})});
    }
    core.commit(owner, items, now);
    core.release(owner);
    act();
  }
  /// Writes so much else that nothing of what was there before is in memory any more.
  void push_out() {
    for (int i = 0; i < 16; ++i) {
      write(prompt({9000 + i}));
      run_all();
    }
  }
  void pass(duration time) {
    now += time;
    core.tick(now);
    act();
  }
  template <class T>
  const T& answer(shard_question asked) {
    REQUIRE(answers.contains(asked));
    REQUIRE(std::holds_alternative<T>(answers.at(asked)));
    return std::get<T>(answers.at(asked));
  }

  pool memory;
  std::uint32_t on_device = 0;  ///< leading blocks of any prompt
  shard_core core;
  fake_disk disk;
  time_point now{1000s};
  std::map<shard_question, decltype(shard_action::answer::what)> answers;
  std::vector<io_job> jobs;
  std::optional<shard_question> load;
  int device_told = 0;
  std::vector<shard_action::disk_state> states;
  std::vector<std::uint64_t> pages;
  std::vector<block_event_batch> told;
  std::vector<block_keys_t> copies_asked;
};

}  // namespace

TEST_CASE_FIXTURE(shard_world, "what is in memory is pinned at once, what is on SSD when it has been read") {
  const auto names = prompt({1, 2, 3});
  write(names);
  run_all();
  core.pin(1, reader, keys_of(names), 0, now);
  act();
  CHECK(answer<pinned_slots>(1).slots.size() == 3);
  CHECK(answer<pinned_slots>(1).from_ssd == 0);
  core.release(reader);
  push_out();
  core.pin(2, reader, keys_of(names), 0, now);
  core.pin(3, reader, keys_of(names), all_blocks, now);
  act();
  CHECK(answer<pinned_slots>(2).slots.empty());
  CHECK(!answers.contains(3));
  CHECK(core.look(keys_of(names), now).disk_wait_ns > core.look({}, now).disk_block_ns);
  CHECK(run_disk());
  CHECK(answer<pinned_slots>(3).slots.size() == 3);
  CHECK(answer<pinned_slots>(3).from_ssd == 3);
  CHECK(answer<pinned_slots>(3).checksums[0] == checksum64(bytes_of(names[0].key, tiered_block_bytes)));
}

TEST_CASE_FIXTURE(shard_world,
                  "what a client wants kept stays in memory until its time is over, and counts as nobody's") {
  const auto names = prompt({1, 2, 3});
  write(names);
  run_all();
  const auto keys = keys_of(names);
  const std::vector<keep_mark> marks{{2, duration{5min}.count()}, {9, duration{1min}.count()}};
  CHECK(core.keep(7, keys, marks, now) == std::vector<std::uint32_t>{2, 3});
  push_out();
  CHECK(core.look(keys, now).dram_blocks == 3);
  CHECK(core.status(now).kept_prefixes == 2);
  CHECK(core.status(now).slots_kept == 3);
  CHECK(core.status(now).owners == 0);
  REQUIRE(core.kept(7, {}, now).size() == 2);
  CHECK(core.kept(7, {}, now)[0].name == keys[1]);
  CHECK(core.kept(8, {}, now).empty());
  pass(2min);
  push_out();
  CHECK(core.look(keys, now).dram_blocks == 2);
  CHECK(core.kept(7, keys[2], now).empty());
  CHECK(core.kept(7, every_prefix, now).size() == 1);
  push_out();
  CHECK(core.look(keys, now).dram_blocks == 0);
  CHECK(core.status(now).slots_pinned == 0);
  // What is not in memory is not kept.
  CHECK(core.keep(7, keys, marks, now) == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE_FIXTURE(shard_world, "decode waits a second for what the device alone has, and takes what came") {
  const auto names = prompt({1, 2});
  on_device = 2;
  core.pin_for_decode(1, reader, keys_of(names), now);
  core.pin_for_decode(2, reader, keys_of(prompt({5, 6})), now);
  pass(900ms);
  CHECK(answers.empty());
  write(names);  // as the device writer does
  CHECK(answer<pinned_slots>(1).slots.size() == 2);
  CHECK(!answers.contains(2));
  pass(200ms);
  CHECK(answer<pinned_slots>(2).slots.empty());
}

TEST_CASE_FIXTURE(shard_world, "a reader on another node waits for as long as the blocks are worth to it") {
  const auto names = prompt({1, 2});
  on_device = 2;
  core.pin_remote(1, reader, keys_of(names), std::chrono::nanoseconds(300ms).count(), now);
  core.pin_remote(2, reader, keys_of(names), 0, now);
  pass(290ms);
  CHECK(answers.empty());
  pass(20ms);
  CHECK(answer<remote_blocks>(1).blocks.empty());
  CHECK(answer<remote_blocks>(1).region == region_id{4});
  pass(4s);
  CHECK(!answers.contains(2));
  pass(1s);
  CHECK(answer<remote_blocks>(2).blocks.empty());
}

TEST_CASE_FIXTURE(shard_world, "no more is read from SSD for a reader than is worth its while") {
  const auto names = prompt({1, 2, 3, 4});
  write(names);
  run_all();
  push_out();
  const auto block = core.look(keys_of(names), now).disk_block_ns;
  const auto wait = core.look(keys_of(names), now).disk_wait_ns;
  core.pin_remote(1, reader, keys_of(names), wait + 2 * block + block / 2, now);
  run_all();
  CHECK(answer<remote_blocks>(1).blocks.size() == 2);
}

TEST_CASE_FIXTURE(shard_world, "the end of an owner answers all that it waits for, and leaves nothing") {
  const auto names = prompt({1, 2});
  write(names);
  run_all();
  push_out();
  core.pin(1, reader, keys_of(names), all_blocks, now);
  on_device = 2;
  core.pin_remote(2, reader, keys_of(prompt({5, 6})), 0, now);
  core.pin_remote(3, writer, keys_of(prompt({5, 6})), 0, now);
  core.release(reader);
  act();
  CHECK(answer<error>(1).code == ec::cancelled);
  CHECK(answer<error>(2).code == ec::cancelled);
  CHECK(!answers.contains(3));
  run_all();
  CHECK(core.status(now).slots_reserved == 0);
  CHECK(core.status(now).slots_pinned == 0);
}

TEST_CASE_FIXTURE(shard_world,
                  "an owner that is not renewed ends with its lease, and so does what it waits for") {
  REQUIRE(core.reserve(writer, 2, now));
  REQUIRE(core.reserve(reader, 3, now));
  on_device = 1;
  pass(20s);
  core.renew(std::array{reader}, now);
  pass(15s);
  CHECK(core.status(now).slots_reserved == 3);
  core.pin_remote(1, reader, keys_of(prompt({5})), 0, now);
  pass(4s);
  CHECK(answers.empty());
  pass(30s);
  CHECK(answers.size() == 1);
  CHECK(core.status(now).slots_reserved == 0);
}

TEST_CASE_FIXTURE(shard_world, "a load's reads name the question that they are for, as long as it is open") {
  const auto names = prompt({1, 2});
  write(names);
  run_all();
  push_out();
  const attempt_id attempt{request_id{9}, 0};
  fetch_plan plan;
  plan.id = attempt;
  plan.keys = keys_of(names);
  plan.slots = core.reserve(attempt.owner(), 2, now).value();
  act();
  core.load(1, plan, now);
  act();
  CHECK(load == 1);
  CHECK(run_disk());
  CHECK(answer<remote_blocks>(1).blocks.size() == 2);
  // They are in memory now: a pin finds them, a load does not.
  core.load(2, plan, now);
  act();
  CHECK(answer<error>(2).code == ec::unavailable);
}

TEST_CASE_FIXTURE(shard_world, "the conductor that follows gets a snapshot in parts, then what changes") {
  write(prompt({1, 2}));
  pass(20ms);
  CHECK(told.empty());
  core.follow();
  act();
  REQUIRE(told.size() == 1);
  CHECK(told[0].snapshot);
  CHECK(told[0].node == node_id{3});
  CHECK(told[0].events.size() == 2);
  write(prompt({7}));
  pass(20ms);
  REQUIRE(told.size() == 2);
  CHECK(!told[1].snapshot);
  CHECK(told[1].first_seq == told[0].first_seq + 1);
  CHECK(told[1].events.front().what == block_change::stored);
  pass(20ms);
  CHECK(told.size() == 2);
}

TEST_CASE("a snapshot of many blocks goes in messages of a bounded size") {
  shard_world w{write_policy::write_through, false, 1100};
  for (int i = 0; i < 1030; ++i) w.write(prompt({i}));
  w.core.follow();
  w.act();
  REQUIRE(w.told.size() == 3);
  CHECK(w.told[0].events.size() == 512);
  CHECK(w.told[2].events.size() == 6);
  CHECK(w.told[2].part == 2);
  CHECK(w.told[2].first_seq == w.told[0].first_seq);
}

TEST_CASE_FIXTURE(shard_world,
                  "that the disk refuses writes is said once, and once that it takes them again") {
  disk.writes_fail = true;
  write(prompt({1, 2}));
  CHECK(run_disk());
  REQUIRE(states.size() == 1);
  CHECK(states[0].turned);
  CHECK(states[0].refusal->code == ec::io_error);
  CHECK(states[0].write_failures > 0);
  CHECK(device_told == 1);
  disk.writes_fail = false;
  pass(2s);
  run_all();
  pass(2s);
  run_all();
  REQUIRE(states.size() == 2);
  CHECK(states[1].turned);
  CHECK(!states[1].refusal);
}

TEST_CASE("a flush is answered with what it wrote, when nothing is under way any more") {
  shard_world w{write_policy::write_back};
  w.write(prompt({1, 2, 3}));
  w.run_all();
  w.core.flush(1);
  w.act();
  w.core.flush(2);
  w.act();
  CHECK(w.answers.empty());
  w.run_all();
  CHECK(w.answer<std::uint64_t>(1) == 3);
  CHECK(w.answer<std::uint64_t>(2) == 3);
  shard_world without{write_policy::write_back, false};
  without.core.flush(1);
  without.act();
  CHECK(without.answer<std::uint64_t>(1) == 0);
}

TEST_CASE_FIXTURE(shard_world,
                  "what the blocks do without is told slot by slot, and comes back when it may") {
  const auto less = core.withhold(3 * tiered_block_bytes);
  act();
  CHECK(less.withheld_bytes == 3 * tiered_block_bytes);
  CHECK(pages.size() == 3);
  CHECK(core.status(now).slots_total == 5);
  CHECK(core.status(now).slots_withheld == 3);
  CHECK(core.withhold(0).withheld_bytes == 0);
  act();
  CHECK(pages.size() == 3);
  CHECK(core.status(now).slots_total == 8);
}

TEST_CASE_FIXTURE(shard_world, "blocks that were found elsewhere are hits there, not misses") {
  core.pin(1, reader, keys_of(prompt({1, 2, 3})), 0, now);
  CHECK(core.status(now).misses == 3);
  core.found(2, 1);
  const auto status = core.status(now);
  CHECK(status.hits_remote == 2);
  CHECK(status.hits_device == 1);
  CHECK(status.misses == 0);
}
