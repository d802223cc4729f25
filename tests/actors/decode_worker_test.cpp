// Decode behind a local and behind a remote prefill: the tokens are those of the model alone, and whatever
// goes wrong on the way, no slot stays behind.

#include <random>

#include "tests/actors/worker_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

struct far_decode : worker_world {
  far_decode() : worker_world(64, {}, {}, prefetch_mode::wait_complete, true) {}

  device_kv_stats device() const { return b.context->device_blocks->stats(); }
  std::uint64_t prompt_bytes(const generate_job& j) const {
    return j.tokens.size() * b.context->layout.bytes_per_token();
  }
};

/// Positions 1, 2, 3, … : what decode reports after the first token.
bool in_order(const attempt_log& log) {
  for (std::size_t i = 0; i < log.positions.size(); ++i) {
    if (log.positions[i] != i + 1) return false;
  }
  return true;
}

}  // namespace

TEST_CASE_FIXTURE(worker_world,
                  "the tokens are those of the model alone, over block borders, on one node and on two") {
  for (auto* decode : {&a, &b}) {
    for (const std::size_t tokens : {1, 3, 4, 5, 8, 21}) {
      CAPTURE(tokens);
      CAPTURE(decode->id.value);
      const auto j = job(prompt(tokens, 7), a, *decode, 13);
      serve(j);
      CHECK(!log(j).failed);
      CHECK(log(j).finish == finish_reason::length);
      CHECK(log(j).tokens == reference(j));
      CHECK(in_order(log(j)));
      CHECK(until([&] { return all_idle(); }));
    }
  }
}

TEST_CASE_FIXTURE(worker_world, "requests of a batch do not disturb each other") {
  std::vector<generate_job> jobs;
  for (std::uint32_t i = 0; i < 10; ++i) {
    jobs.push_back(job(prompt(3 + i, i), a, i % 2 ? a : b, 5 + i));
    send_job(jobs.back());
  }
  for (const auto& j : jobs) {
    REQUIRE(until([&] { return over(j); }));
    CHECK(log(j).tokens == reference(j));
  }
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world,
                  "an attempt that continues another one goes on with the very tokens it would have had") {
  const auto whole = job(prompt(9), a, a, 12);
  const auto wanted = reference(whole);
  for (auto* decode : {&a, &b}) {
    auto j = whole;
    j.id.request = request_id{500 + decode->id.value};
    j.id.attempt = 3;
    j.tokens.insert(j.tokens.end(), wanted.begin(), wanted.begin() + 5);
    j.keys = block_keys(j.tokens, block_tokens, j.root);
    j.placement.decode_node = decode->id;
    j.decode = caf::actor_cast<caf::actor>(decode->decode);
    serve(j);
    CHECK(log(j).tokens == std::vector<std::int32_t>(wanted.begin() + 5, wanted.end()));
    CHECK(log(j).positions.front() == 6);
  }
}

TEST_CASE_FIXTURE(worker_world, "blocks that decode's node has already do not travel again") {
  serve(job(prompt(24), b, b));
  const auto sent = [&] {
    std::uint64_t bytes = 0;
    for (const auto& s : a.context->plane->stats()) bytes += s.bytes();
    return bytes;
  };
  REQUIRE(sent() == 0);
  const auto j = job(prompt(24), a, b);
  serve(j);
  CHECK(log(j).tokens == reference(j));
  CHECK(sent() == 0);
  const auto longer = job(
      [] {
        auto p = worker_world::prompt(24);
        p.push_back(5);
        return p;
      }(),
      a, b);
  serve(longer);
  CHECK(log(longer).tokens == reference(longer));
  // The sender counts when it hears that the bytes landed, which the answer need not wait for.
  CHECK(until([&] { return sent() >= a.context->layout.bytes_per_token(); }));
  CHECK(sent() == a.context->layout.bytes_per_token());
}

TEST_CASE_FIXTURE(
    worker_world,
    "slots may be told before the prefill worker has its job, and prefill may end before decode has it") {
  const auto remote = job(prompt(10), a, b);
  caf::anon_send(b.decode, job_atom_v, remote);
  run();
  caf::anon_send(a.prefill, job_atom_v, remote);
  REQUIRE(until([&] { return over(remote); }));
  CHECK(log(remote).tokens == reference(remote));

  for (auto* decode : {&a, &b}) {
    const auto late = job(prompt(10, 3), a, *decode);
    caf::anon_send(a.prefill, job_atom_v, late);
    REQUIRE(until([&] { return log(late).first.has_value(); }));
    caf::anon_send(decode->decode, job_atom_v, late);
    REQUIRE(until([&] { return over(late); }));
    CHECK(log(late).tokens == reference(late));
  }
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world, "a hand-over for a request that was cancelled frees its blocks") {
  const auto j = job(prompt(10), a, a);
  SUBCASE("cancelled before the hand-over") {
    caf::anon_send(a.decode, cancel_atom_v, j.id);
    caf::anon_send(a.prefill, job_atom_v, j);
  }
  SUBCASE("cancelled after it, and the job never came") {
    caf::anon_send(a.prefill, job_atom_v, j);
    run();
    CHECK(status(a).owners == 1);
    caf::anon_send(a.decode, cancel_atom_v, j.id);
  }
  CHECK(until([&] { return all_idle(); }));
  CHECK(log(j).tokens.size() == 1);
}

TEST_CASE_FIXTURE(worker_world,
                  "a request that is cancelled after any number of messages leaves nothing behind") {
  for (auto* decode : {&a, &b}) {
    for (int messages = 0; messages < 90; messages += 1 + messages / 12) {
      CAPTURE(messages);
      CAPTURE(decode->id.value);
      // A prompt of its own each time, so that nothing is found in the cache.
      const auto j = job(prompt(19, static_cast<std::uint32_t>(messages)), a, *decode, 12);
      send_job(j);
      for (int i = 0; i < messages; ++i) {
        if (!sched.try_run_once()) reports->drain();
      }
      cancel(j);
      REQUIRE(until([&] { return all_idle(); }));
      const auto tokens = log(j).tokens;
      CHECK(!log(j).failed);
      advance_time(std::chrono::seconds(1));
      CHECK(log(j).tokens == tokens);  // none after the cancel was handled
    }
  }
}

TEST_CASE_FIXTURE(worker_world, "bytes that are corrupted on the way are never decoded") {
  faults_of_a.kind = fault::kind::corrupt;
  const auto j = job(prompt(15), a, b);
  serve(j);
  REQUIRE(log(j).failed);
  CHECK(log(j).failed->retriable);
  CHECK(log(j).tokens.size() <= 1);
  cancel(j);
  CHECK(until([&] { return all_idle(); }));
  faults_of_a.kind = fault::kind::none;
  auto again = j;
  again.id.attempt = 1;
  serve(again);
  CHECK(log(again).tokens == reference(j));
}

TEST_CASE(
    "a request that needs a block when none is to be had is given back, and its prompt stays in the cache") {
  worker_world w{5};
  const auto j = w.job(worker_world::prompt(15), w.a, w.a, 40);
  w.serve(j);
  REQUIRE(w.log(j).failed);
  CHECK(w.log(j).failed->cause.code == ec::out_of_space);
  CHECK(w.log(j).failed->retriable);
  // Five blocks hold twenty tokens: five answered ones, and the sixth needs no room of its own.
  CHECK(w.log(j).tokens.size() == 6);
  CHECK(w.until([&] { return w.all_idle(); }));
  CHECK(w.status(w.a).slots_committed == 5);
}

TEST_CASE("an answer that fits into the blocks it has is finished, however full the node is") {
  worker_world w{5};
  const auto j = w.job(worker_world::prompt(15), w.a, w.a, 6);
  w.serve(j);
  CHECK(!w.log(j).failed);
  CHECK(w.log(j).tokens == w.reference(j));
  CHECK(w.until([&] { return w.all_idle(); }));
}

TEST_CASE_FIXTURE(worker_world,
                  "any mixture of requests and cancels ends with idle shards and right tokens") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    std::vector<generate_job> jobs;
    std::vector<bool> cancelled;
    for (int i = 0; i < 12; ++i) {
      auto& from = random() % 2 ? a : b;
      auto& to = random() % 2 ? a : b;
      // Few different prompts, so that prefixes are shared.
      auto j = job(prompt(1 + random() % 25, random() % 3), from, to, 1 + random() % 9);
      if (random() % 3 == 0) {
        j.placement.source = from.id == a.id ? b.id : a.id;
        j.placement.source_blocks = static_cast<std::uint32_t>(random() % (j.keys.size() + 1));
      }
      jobs.push_back(j);
      cancelled.push_back(random() % 3 == 0);
      send_job(j);
      for (auto n = random() % 40; n > 0; --n) {
        if (!sched.try_run_once()) reports->drain();
      }
      const auto victim = random() % jobs.size();
      if (cancelled[victim]) cancel(jobs[victim]);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (cancelled[i]) cancel(jobs[i]);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (cancelled[i]) continue;
      REQUIRE(until([&] { return over(jobs[i]); }));
      if (!log(jobs[i]).failed) CHECK(log(jobs[i]).tokens == reference(jobs[i]));
      if (log(jobs[i]).failed) {
        CHECK(log(jobs[i]).failed->cause.code == ec::out_of_space);
        cancel(jobs[i]);
      }
    }
    REQUIRE(until([&] { return all_idle(); }));
  }
}

TEST_CASE_FIXTURE(
    worker_world,
    "a batch that is too slow for a request's SLO refuses it after its prefill, but a lone one is served") {
  for (auto* decode : {&a, &b}) {
    CAPTURE(decode->id.value);
    generate_job long_one, strict, resumed;
    // Who is decoded meanwhile depends on when each prompt's KV lands: ask again until they met.
    REQUIRE(until([&] {
      long_one = job(prompt(9, 1), a, *decode, 200);
      strict = job(prompt(10, 2), a, *decode, 5);
      resumed = job(prompt(11, 3), a, *decode, 5);
      for (auto* j : {&long_one, &strict, &resumed}) {
        j->placement.check_at_decode = true;
        j->tbt_slo_ns = 1;  // no step is that short
      }
      // The client has its last two tokens already: its answer is not cut off.
      resumed.prompt_tokens -= 2;
      for (const auto& j : {long_one, strict, resumed}) send_job(j);
      REQUIRE(until([&] { return over(long_one) && over(strict) && over(resumed); }));
      CHECK(!log(resumed).failed);
      return log(strict).failed && !log(long_one).failed;
    }));
    const auto& refused = *log(strict).failed;
    CHECK(refused.cause.code == ec::slo_unreachable);
    CHECK(!refused.retriable);
    CHECK(refused.wasted_prefill_tokens > 0);
    CHECK(refused.retry_after_ns > 0);
    CHECK(log(strict).tokens.size() == 1);  // prefill's
    CHECK(until([&] { return all_idle(); }));
  }
}

TEST_CASE_FIXTURE(far_decode, "a batch does not wait while somebody else's prompt comes to the device") {
  const auto running = job(prompt(9, 1), a, b, 40);
  send_job(running);
  REQUIRE(until([&] { return log(running).tokens.size() > 2; }));
  // The link stands still. What lands is handed to it piece by piece; the others' steps go on without it.
  b.loads->open = false;
  const auto late = job(prompt(21, 2), a, b, 10);
  send_job(late);
  // Three chunks of two layers, and the wait for all of them.
  REQUIRE(until([&] { return over(running) && b.loads->waiting.size() == 7; }));
  CHECK(log(running).tokens == reference(running));
  CHECK(log(late).tokens.size() == 1);  // prefill's
  const auto before = device().loaded_bytes;
  b.loads->run_all();
  CHECK(device().loaded_bytes - before == prompt_bytes(late));
  b.loads->open = true;
  REQUIRE(until([&] { return over(late); }));
  CHECK(log(late).tokens == reference(late));
  CHECK(device().loaded_bytes - before == prompt_bytes(late));  // no step loaded anything
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_decode,
                  "what decode's memory has of a prompt goes to the device before the rest lands") {
  const auto known = job(prompt(24, 3), a, b);
  serve(known);
  b.context->device_blocks->let_go(known.id.owner());
  REQUIRE(until([&] { return all_idle(); }));
  b.context->device_blocks->start_over();  // it has left the device since
  auto tokens = known.tokens;
  const auto more = prompt(9, 4);
  tokens.insert(tokens.end(), more.begin(), more.end());
  const auto next = job(tokens, a, b);
  serve(next);
  CHECK(log(next).tokens == reference(next));
  CHECK(device().loaded_bytes == prompt_bytes(next));
  CHECK(until([&] { return all_idle(); }));
}

TEST_CASE_FIXTURE(far_decode,
                  "whoever is cancelled while its prompt comes to the device leaves nothing behind") {
  for (int messages = 0; messages < 90; messages += 2 + messages / 10) {
    CAPTURE(messages);
    const auto j = job(prompt(19, static_cast<std::uint32_t>(messages)), a, b, 12);
    b.loads->open = messages % 4 != 0;  // some while the link stands still
    send_job(j);
    for (int i = 0; i < messages; ++i) {
      if (!sched.try_run_once()) reports->drain();
    }
    cancel(j);
    // Copies under way read its slots: they are given back when there are none.
    run();
    while (reports->drain()) run();
    b.loads->open = true;
    b.loads->run_all();
    REQUIRE(until([&] { return all_idle(); }));
    CHECK(!log(j).failed);
  }
  const auto all = b.context->device_blocks->take({0, {}, 0, 64 * block_tokens});
  REQUIRE(all);  // nothing is held on the device
  b.context->device_blocks->give_back(all->ticket, 0);
}

TEST_CASE_FIXTURE(far_decode,
                  "any mixture of requests and cancels over a link that halts ends with right tokens") {
  for (std::uint32_t seed = 1; seed <= 25; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    std::vector<generate_job> jobs;
    std::vector<bool> cancelled;
    for (int i = 0; i < 10; ++i) {
      jobs.push_back(job(prompt(1 + random() % 40, random() % 4), random() % 3 ? a : b, b, 1 + random() % 9));
      cancelled.push_back(random() % 3 == 0);
      send_job(jobs.back());
      b.loads->open = random() % 2 == 0;
      for (auto n = random() % 60; n > 0; --n) {
        if (!sched.try_run_once()) reports->drain();
      }
      if (b.loads->open) b.loads->run_all();
      const auto victim = random() % jobs.size();
      if (cancelled[victim]) cancel(jobs[victim]);
    }
    b.loads->open = true;
    b.loads->run_all();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (cancelled[i]) {
        cancel(jobs[i]);
        continue;
      }
      REQUIRE(until([&] { return over(jobs[i]); }));
      CHECK(!log(jobs[i]).failed);
      CHECK(log(jobs[i]).tokens == reference(jobs[i]));
    }
    REQUIRE(until([&] { return all_idle(); }));
    const auto all = b.context->device_blocks->take({0, {}, 0, 64 * block_tokens});
    REQUIRE(all);
    b.context->device_blocks->give_back(all->ticket, 0);
  }
}
