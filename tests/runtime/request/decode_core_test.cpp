// Continuous batching without a device: when a prompt joins, where its answer's blocks come from and what
// they are called, and that every way to the end gives back what was taken.

#include "runtime/request/decode_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/journal/worker_replay.hpp"
#include "tests/runtime/request/nodes.hpp"
#include "tests/support/kept_journal.hpp"

using namespace mooncaf;
using namespace mooncaf::test;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t block_tokens = 4;

decode_core_options options_with(std::uint64_t device_blocks, std::uint32_t max_batch) {
  decode_core_options out;
  out.block_tokens = block_tokens;
  out.max_attempts = 8;
  out.device_blocks = device_blocks;
  out.batch.max_batch = max_batch;
  out.reaches = [](node_id) { return true; };
  out.fences_of = [](node_id) { return std::uint64_t{4}; };
  return out;
}

work_order job_of(std::uint64_t request, std::size_t tokens, node_id prefill = here) {
  work_order out;
  out.id = {request_id{request}, 0};
  for (std::size_t i = 0; i < tokens; ++i) out.tokens.push_back(static_cast<std::int32_t>(request * 100 + i));
  out.prompt_tokens = static_cast<std::uint32_t>(tokens);
  out.keys = block_keys(out.tokens, block_tokens, out.root);
  out.sampling.max_tokens = 1000;
  out.placement.prefill_node = prefill;
  out.gateway_node = gateway_node;
  return out;
}

struct decode_world {
  explicit decode_world(std::uint64_t device_blocks = 0, std::uint32_t max_batch = 2)
      : core(here, options_with(device_blocks, max_batch), decode_model{}) {}

  /// The actions since the last call.
  void look() { seen = core.take_actions(); }
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& a : seen) {
      if (const auto* found = std::get_if<T>(&a)) out.push_back(*found);
    }
    return out;
  }
  template <class T>
  std::size_t count() const {
    return all<T>().size();
  }
  prefill_done handed_over(const work_order& j) {
    prefill_done out;
    out.id = j.id;
    out.first.id = 7;
    out.computed_tokens = 5;
    for (std::size_t i = 0; i < (j.tokens.size() + block_tokens - 1) / block_tokens; ++i)
      out.slots.push_back(next_slot++);
    out.checksums.resize(j.keys.size(), 77);
    return out;
  }
  /// A prompt of this node that has been computed.
  void arrive(const work_order& j) {
    core.take(j, now);
    core.prefill_finished(handed_over(j), now);
    look();
  }
  /// The step that was asked for last; each part chooses the token `chosen`.
  void step(std::int32_t chosen = 9, finish_reason finish = finish_reason::none, const error& failure = {}) {
    const auto orders = all<decode_action::compute>();
    REQUIRE(orders.size() == 1);
    std::vector<decode_outcome> outcomes;
    for (const auto& part : orders[0].parts) {
      const auto after = part.sequence->position() + 1;
      decode_outcome out{part.owner, {}, finish, part.sequence->position() / block_tokens, {}};
      out.token.id = chosen;
      if (after % block_tokens == 0) out.checksums = {after};
      outcomes.push_back(std::move(out));
    }
    core.step_ended(std::move(outcomes), 5ms, failure, now);
    look();
  }
  /// Answers what was reserved with slots; what else was seen is seen still.
  void reserve() {
    const auto orders = all<decode_action::reserve>();
    std::erase_if(seen, [](const auto& a) { return std::holds_alternative<decode_action::reserve>(a); });
    for (const auto& order : orders)
      core.reserved(order.owner, std::vector<slot_index>(order.count, next_slot++), now);
    std::ranges::move(core.take_actions(), std::back_inserter(seen));
  }

  decode_core core;
  decode_actions seen;
  slot_index next_slot = 1;
  time_point now = time_point{} + 1h;
};

}  // namespace

TEST_CASE_FIXTURE(decode_world, "an answer is told token by token, and its end gives everything back") {
  const auto j = job_of(1, 5);
  arrive(j);
  CHECK(all<decode_action::begin>().at(0).first == 7);
  step(11);
  const auto told = all<decode_action::send_tokens>().at(0);
  CHECK(told.gateway == gateway_node);
  CHECK(told.tokens.runs.at(0).position == 1);  // the first token was the prefill worker's to tell
  CHECK(told.tokens.runs.at(0).tokens.at(0).id == 11);
  CHECK(core.load().running == 1);
  CHECK(core.load().context_tokens == 6);
  step(12, finish_reason::stop);
  CHECK(all<decode_action::send_tokens>().at(0).tokens.runs.at(0).finish == finish_reason::stop);
  CHECK(count<decode_action::release>() == 1);
  CHECK(count<decode_action::forget>() == 1);
  CHECK(count<decode_action::compute>() == 0);
  CHECK(core.size() == 0);
  CHECK(core.load().steps == 2);
}

TEST_CASE_FIXTURE(decode_world,
                  "a block is published when it is full, under the key of all tokens before it") {
  const auto j = job_of(1, 5);
  arrive(j);
  auto tokens = j.tokens;
  tokens.push_back(7);
  for (std::int32_t chosen = 20; tokens.size() < 12; ++chosen) {
    reserve();
    step(chosen);
    const auto full = all<decode_action::commit>();
    REQUIRE(full.size() == (tokens.size() % block_tokens == 0));
    if (!full.empty()) {
      const auto keys = block_keys(tokens, block_tokens, j.root);
      CHECK(full[0].items.at(0).name.key == keys.back());
      CHECK(full[0].items.at(0).name.parent == keys.at(keys.size() - 2));
      CHECK(full[0].items.at(0).name.depth == keys.size() - 1);
      CHECK(full[0].items.at(0).checksum == tokens.size());
    }
    tokens.push_back(chosen);
  }
}

TEST_CASE_FIXTURE(decode_world, "a slot is asked for half a block ahead, and the answer goes on without it") {
  arrive(job_of(1, 5));
  CHECK(count<decode_action::reserve>() == 0);
  step();  // six tokens: the block is half full
  const auto asked = all<decode_action::reserve>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].count == 1);
  CHECK(count<decode_action::compute>() == 1);
  core.refused(asked[0].owner, {ec::out_of_space, "full"}, now);
  step();  // seven: it is asked for again
  CHECK(count<decode_action::reserve>() == 1);
  CHECK(count<attempt_failed>() == 0);
  step();  // eight: no place for the next token
  CHECK(count<decode_action::compute>() == 0);
  core.refused(asked[0].owner, {ec::out_of_space, "full"}, now);
  look();
  REQUIRE(count<attempt_failed>() == 1);
  CHECK(all<attempt_failed>()[0].retriable);
  CHECK(all<attempt_failed>()[0].cause.code == ec::out_of_space);
  CHECK(count<decode_action::release>() == 1);
}

TEST_CASE_FIXTURE(decode_world, "a prompt that fills its blocks has the slot behind them by its first step") {
  arrive(job_of(1, 5));
  const auto at_work = all<decode_action::compute>().at(0);
  const auto full = job_of(2, 8);
  arrive(full);
  const auto asked = all<decode_action::reserve>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].owner == full.id.owner());
  CHECK(asked[0].count == 1);
  SUBCASE("it joins the next step") {
    core.reserved(full.id.owner(), std::vector<slot_index>{50}, now);
    seen = {at_work};
    step();
    CHECK(all<decode_action::compute>().at(0).parts.size() == 2);
  }
  SUBCASE("there is none: it asks again when it is to be computed") {
    core.refused(full.id.owner(), {ec::out_of_space, "full"}, now);
    seen = {at_work};
    step();
    CHECK(count<attempt_failed>() == 0);
    CHECK(all<decode_action::compute>().at(0).parts.size() == 1);
    CHECK(std::ranges::count(all<decode_action::reserve>(), full.id.owner(),
                             &decode_action::reserve::owner) == 1);
  }
}

TEST_CASE_FIXTURE(decode_world, "the slot behind a prompt's blocks is asked for while it is on its way") {
  const auto j = job_of(1, 8, prefill_node);
  core.take(j, now);
  look();
  core.pinned(j.id.owner(), all<decode_action::pin>().at(0).what.turn, {}, now);
  look();
  CHECK(all<decode_action::reserve>().at(0).count == 2);
  core.reserved(j.id.owner(), std::vector<slot_index>{1, 2}, now);
  look();
  CHECK(all<decode_action::receive>().at(0).slots.size() == 2);
  CHECK(all<decode_action::reserve>().at(0).count == 1);
}

TEST_CASE_FIXTURE(decode_world, "a slot that comes during a step is used by the next one") {
  const auto j = job_of(1, 7);
  arrive(j);
  REQUIRE(count<decode_action::reserve>() == 1);
  core.reserved(j.id.owner(), std::vector<slot_index>{50}, now);
  CHECK(core.slots_of(j.id.owner()).size() == 2);  // the step reads them
  step();
  CHECK(core.slots_of(j.id.owner()).size() == 3);
  CHECK(count<decode_action::compute>() == 1);
}

TEST_CASE_FIXTURE(decode_world, "answers beyond the batch wait, and join as soon as another one has ended") {
  for (std::uint64_t i = 1; i <= 3; ++i) arrive(job_of(i, 5));
  CHECK(core.load().running == 1);
  CHECK(core.load().waiting == 2);  // the first one's step is at work
  core.cancel(job_of(1, 5).id, now);
  look();
  CHECK(count<decode_action::withdraw>() == 1);
  CHECK(count<decode_action::release>() == 0);  // its step reads the blocks
  std::vector<decode_outcome> gone(1);
  gone[0].owner = job_of(1, 5).id.owner();
  core.step_ended(gone, 5ms, {}, now);
  look();
  CHECK(count<decode_action::release>() == 1);
  CHECK(count<decode_action::send_tokens>() == 0);  // not of a request that was cancelled
  CHECK(all<decode_action::compute>().at(0).parts.size() == 2);
}

TEST_CASE_FIXTURE(decode_world,
                  "an answer that the batch is too slow for is refused when its prompt is there") {
  arrive(job_of(1, 5));
  auto strict = job_of(2, 6), resumed = job_of(3, 6);
  for (auto* j : {&strict, &resumed}) {
    j->placement.check_at_decode = true;
    j->tbt_slo_ns = 1;  // no step is that short
  }
  resumed.prompt_tokens -= 2;  // the client has two tokens of it: it is not cut off
  arrive(strict);
  REQUIRE(count<attempt_failed>() == 1);
  const auto refused = all<attempt_failed>()[0];
  CHECK(refused.cause.code == ec::slo_unreachable);
  CHECK(!refused.retriable);
  CHECK(refused.wasted_prefill_tokens == 5);
  CHECK(refused.retry_after_ns > 0);
  CHECK(count<decode_action::release>() == 1);
  CHECK(count<decode_action::begin>() == 0);
  arrive(resumed);
  CHECK(count<attempt_failed>() == 0);
  CHECK(count<decode_action::begin>() == 1);
}

TEST_CASE_FIXTURE(decode_world, "whom decode's last check refused, and why, can be replayed") {
  std::string file;
  auto o = options_with(0, 2);
  o.journal = kept_in(file);
  core = decode_core{here, std::move(o), decode_model{}};
  auto first = job_of(1, 5), strict = job_of(2, 6);
  for (auto* j : {&first, &strict}) {
    j->placement.check_at_decode = true;
    j->tbt_slo_ns = 1;
  }
  arrive(first);  // alone it is as fast as it gets
  const auto steps = all<decode_action::compute>().at(0).parts.at(0).sequence;
  arrive(strict);
  CHECK(count<attempt_failed>() == 1);
  seen = {decode_action::compute{{{first.id.owner(), steps}}}};
  now += 40ms;
  step(11);
  now += 90ms;
  step(12, finish_reason::stop);
  core.close_journal();
  std::vector<journal::worker_line> lines;
  const auto again = journal::replay_worker(file, "j", &lines);
  REQUIRE(again);
  CHECK(!again->first);
  CHECK(again->end == journal::ending::closed);
  REQUIRE(lines.size() == 3);
  CHECK(lines[2].text ==
        "answered 3 tokens in 130.000 ms, 0.000 ms after its prompt came; longest between two 90.000 ms");
  CHECK(lines[0].text.ends_with("; taken into the batch"));
  CHECK(lines[1].one_try == request_id{strict.id.owner()});
  CHECK(lines[1].text.starts_with("would be one of 2 in a batch of 11 tokens: "));
}

TEST_CASE("a prompt goes to the device before it joins, but not at the cost of those who run") {
  decode_world w{5};
  const auto first = job_of(1, 11), second = job_of(2, 11);
  w.arrive(first);
  REQUIRE(w.count<decode_action::make_room>() == 1);
  CHECK(w.count<decode_action::load>() == 1);
  CHECK(w.count<decode_action::compute>() == 0);
  w.core.loaded(first.id.owner(), w.now);
  w.look();
  CHECK(w.count<decode_action::compute>() == 1);
  w.arrive(second);  // three blocks, beside the three of the first one
  CHECK(w.count<decode_action::make_room>() == 0);
  CHECK(w.count<decode_action::begin>() == 1);  // its first step loads it
}

TEST_CASE("a prompt that the device has no room for joins at once") {
  decode_world w{50};
  const auto j = job_of(1, 11);
  w.arrive(j);
  w.core.no_room(j.id.owner());
  w.core.loaded(j.id.owner(), w.now);
  w.look();
  CHECK(w.count<decode_action::compute>() == 1);
}

TEST_CASE("whoever is cancelled while it goes to the device never joins") {
  decode_world w{50};
  const auto j = job_of(1, 11);
  w.arrive(j);
  w.core.cancel(j.id, w.now);
  w.core.loaded(j.id.owner(), w.now);
  w.look();
  CHECK(w.count<decode_action::release>() == 1);
  CHECK(w.count<decode_action::begin>() == 0);
}

TEST_CASE_FIXTURE(decode_world, "a step that fails ends its answers, a lost device gives all of them back") {
  arrive(job_of(1, 5));
  step(9, finish_reason::none, {ec::internal, "no"});
  REQUIRE(count<attempt_failed>() == 1);
  CHECK(!all<attempt_failed>()[0].retriable);
  CHECK(core.load().steps == 0);
  arrive(job_of(2, 5));
  arrive(job_of(3, 5));
  const auto compute = seen;
  core.device_lost({ec::unavailable, "gone"}, now);
  look();
  REQUIRE(count<attempt_failed>() == 2);
  for (const auto& f : all<attempt_failed>()) {
    CHECK(f.retriable);
    CHECK(f.lost_device == (f.id.request.value == 2));  // it was in the step
  }
  arrive(job_of(4, 5));
  CHECK(count<attempt_failed>() == 1);
}

TEST_CASE_FIXTURE(decode_world,
                  "a worker that leaves gives back all that it has, and no device is to blame") {
  arrive(job_of(1, 5));
  arrive(job_of(2, 5));
  core.leave({ec::unavailable, "the node leaves"}, now);
  look();
  REQUIRE(count<attempt_failed>() == 2);
  for (const auto& f : all<attempt_failed>()) {
    CHECK(f.retriable);
    CHECK_FALSE(f.lost_device);
  }
  arrive(job_of(3, 5));
  REQUIRE(count<attempt_failed>() == 1);
  CHECK(all<attempt_failed>()[0].retriable);
}

// ---- histories
// ----------------------------------------------------------------------------------------------------------

namespace {

/// A shard, prefill workers and a device that answer when a seed says so, and hold the core to its promises.
class decode_history {
 public:
  explicit decode_history(std::uint32_t seed)
      : random_(seed), core_(here, options_with(random_() % 2 ? 12 : 0, 3), decode_model{}) {}

  void run() {
    for (int i = 0; i < 400; ++i) {
      now_ += 1ms;
      event();
      carry_out();
    }
    drain();
    CHECK(core_.size() == 0);
    CHECK(core_.load().running == 0);
    CHECK(core_.load().waiting == 0);
    CHECK(held_.empty());
  }

 private:
  struct known {
    work_order job;
    std::vector<std::int32_t> tokens;
    std::set<std::uint32_t> published;
    bool forgotten = false;
  };

  bool chance(std::uint32_t percent) { return random_() % 100 < percent; }

  void begin() {
    auto j = job_of(++requests_, 1 + random_() % 14, chance(50) ? here : prefill_node);
    j.placement.check_at_decode = chance(20);
    j.tbt_slo_ns = 3'000'000;
    known_[j.id.owner()] = {j, j.tokens, {}, false};
    if (j.placement.prefill_node != here) held_.insert(j.id.owner());
    core_.take(j, now_);
    if (j.placement.prefill_node != here) return;
    later_.push_back([this, j] { hand_over(j); });
  }
  void hand_over(const work_order& j) {
    prefill_done done;
    done.id = j.id;
    done.first.id = 7;
    done.slots.resize((j.tokens.size() + block_tokens - 1) / block_tokens);
    done.checksums.resize(j.keys.size());
    held_.insert(j.id.owner());  // the blocks are decode's to release from now on
    core_.prefill_finished(done, now_);
  }
  void event() {
    if (chance(20)) return begin();
    if (chance(8) && !known_.empty()) {
      auto victim = known_.begin();
      std::advance(victim, random_() % known_.size());
      return core_.cancel(victim->second.job.id, now_);
    }
    if (chance(1)) return core_.peer_lost(chance(50) ? prefill_node : gateway_node, now_);
    if (chance(5)) return void(core_.sweep(now_));
    if (!later_.empty()) happen(random_() % later_.size());
  }
  void happen(std::size_t which) {
    const auto what = std::move(later_[which]);
    later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(which));
    what();
  }
  void drain() {
    for (const auto& [owner, k] : std::map{known_}) core_.cancel(k.job.id, now_);
    carry_out();
    while (!later_.empty()) {
      happen(0);
      carry_out();
    }
    now_ += 1min;
    core_.sweep(now_);
    carry_out();
  }
  void carry_out() {
    for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
      for (auto& a : actions) std::visit([this](auto& what) { on(what); }, a);
    }
  }

  known& live(std::uint64_t owner) {
    auto& k = known_.at(owner);
    CHECK(!k.forgotten);
    return k;
  }
  void on(const decode_action::pin& what) {
    live(what.owner);
    later_.push_back([this, what] {
      pinned_slots none;
      if (chance(10)) core_.refused(what.owner, {ec::out_of_space, "no"}, now_);
      else core_.pinned(what.owner, what.what.turn, none, now_);
    });
  }
  void on(const decode_action::reserve& what) {
    live(what.owner);
    later_.push_back([this, what] {
      if (chance(15)) core_.refused(what.owner, {ec::out_of_space, "no"}, now_);
      else core_.reserved(what.owner, std::vector<slot_index>(what.count, 1), now_);
    });
  }
  void on(const decode_action::receive& what) {
    const auto j = live(what.owner).job;
    later_.push_back([this, j] {
      prefill_done done;
      done.id = j.id;
      done.first.id = 7;
      done.transfers = 1;
      done.checksums.resize(j.keys.size());
      core_.prefill_finished(done, now_);
    });
  }
  void on(const decode_action::expect& what) {
    live(what.owner);
    later_.push_back([this, what] {
      if (!known_.at(what.owner).forgotten) core_.landed(what.owner, !chance(10), now_);
    });
  }
  void on(const decode_action::confirm&) {}
  void on(const decode_action::commit& what) {
    auto& k = live(what.owner);
    const auto keys = block_keys(k.tokens, block_tokens, k.job.root);
    for (const auto& item : what.items) {
      CHECK(k.published.insert(item.name.depth).second);  // named once
      REQUIRE(item.name.depth < keys.size());             // and only when it is full
      CHECK(item.name.key == keys[item.name.depth]);
    }
  }
  void on(const decode_action::make_room& what) {
    live(what.owner);
    if (chance(30)) core_.no_room(what.owner);
  }
  void on(const decode_action::load& what) {
    live(what.owner);
    later_.push_back([this, what] { core_.loaded(what.owner, now_); });
  }
  void on(const decode_action::begin& what) { live(what.owner).tokens.push_back(what.first); }
  void on(const decode_action::compute& what) {
    CHECK(!computing_);
    computing_ = true;
    later_.push_back([this, what] { computed(what); });
  }
  void computed(const decode_action::compute& what) {
    computing_ = false;
    std::vector<decode_outcome> outcomes;
    for (const auto& part : what.parts) {
      auto& k = live(part.owner);
      const auto position = part.sequence->position();
      REQUIRE(position + 1 == k.tokens.size());
      CHECK(part.sequence->next()[0] == k.tokens.back());
      REQUIRE(core_.slots_of(part.owner).size() * block_tokens > position);
      decode_outcome out{part.owner, {}, finish_reason::none, position / block_tokens, {}};
      if ((position + 1) % block_tokens == 0) out.checksums = {1};
      out.token.id = static_cast<std::int32_t>(random_() % 1000);
      if (chance(10)) out.finish = finish_reason::stop;
      outcomes.push_back(out);
    }
    const auto chosen = outcomes;
    core_.step_ended(outcomes, 2ms, chance(3) ? error{ec::internal, "no"} : error{}, now_);
    carry_out();  // what is published now was filled before the next token
    for (const auto& out : chosen) known_.at(out.owner).tokens.push_back(out.token.id);
  }
  void on(const decode_action::send_tokens& what) {
    for (const auto& run : what.tokens.runs) {
      const auto& k = live(run.id.owner());
      CHECK(run.position == k.tokens.size() - k.job.prompt_tokens);
    }
  }
  void on(const decode_action::withdraw& what) { live(what.owner); }
  void on(const decode_action::release& what) { CHECK(held_.erase(what.owner) == 1); }  // once
  void on(const decode_action::stop_prefill& what) {
    later_.push_back([this, what] { core_.prefill_stopped(what.id, chance(70), now_); });
  }
  void on(const decode_action::fence& what) {
    later_.push_back([this, what] { core_.fenced(what.owner, now_); });
  }
  void on(const decode_action::forget& what) { live(what.owner).forgotten = true; }
  void on(const attempt_failed& what) { live(what.id.owner()); }

  std::mt19937 random_;
  decode_core core_;
  time_point now_ = time_point{} + 1h;
  std::uint64_t requests_ = 0;
  std::map<std::uint64_t, known> known_;
  std::set<std::uint64_t> held_;  ///< owners that hold something, which is to be released once
  std::vector<std::function<void()>> later_;
  bool computing_ = false;
};

}  // namespace

TEST_CASE("blocks are named once and when they are full, and every end gives back what was taken") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    decode_history{seed}.run();
  }
}
