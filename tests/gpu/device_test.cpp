// The device as a whole: what it refuses, whose turn it is, and many queues at once.

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "gpu/host/thread_pool.hpp"
#include "gpu/host/turn_gate.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

TEST_CASE("weights of an unknown type, of broken rows or of the wrong size are refused with the reason") {
  for (const bool exact : {false, true}) {
    const auto d = make_host_device({.threads = 1, .exact = exact});
    const std::vector<std::byte> data(1000);
    const auto refused = [&](ggml_type type, std::size_t rows, std::size_t cols, ec code) {
      const auto w = d->load_weight(type, rows, cols, data);
      REQUIRE_FALSE(w.has_value());
      CHECK(w.error() == code);
      CHECK_FALSE(w.error().detail.empty());
    };
    refused(static_cast<ggml_type>(7), 1, 32, ec::unsupported);
    refused(static_cast<ggml_type>(4711), 1, 32, ec::unsupported);
    refused(ggml_type::q4_1, 50, 31, ec::invalid_argument);
    refused(ggml_type::q4_k, 1, 128, ec::invalid_argument);
    refused(ggml_type::q4_1, 49, 32, ec::invalid_argument);
    refused(ggml_type::q4_1, 51, 32, ec::invalid_argument);
    refused(ggml_type::f32, 0, 32, ec::invalid_argument);
    refused(ggml_type::f32, 250, 0, ec::invalid_argument);
    refused(ggml_type::f32, std::size_t{1} << 62, 4, ec::invalid_argument);
    CHECK(d->load_weight(ggml_type::q4_1, 50, 32, data).has_value());
  }
}

TEST_CASE("an instruction set that nobody knows or this processor lacks is refused by name") {
  const auto made = try_make_host_device({.isa = "sse9"});
  REQUIRE_FALSE(made.has_value());
  CHECK(made.error() == ec::unsupported);
  CHECK(made.error().detail.find("sse9") != std::string::npos);
}

TEST_CASE("a device says what it is") {
  const auto info = host(2, "portable")->info();
  CHECK(info.isa == "portable");
  CHECK(info.threads == 2);
  CHECK(info.memory_bytes > 0);
  CHECK(info.name == "host portable, 2 threads");
  CHECK(reference()->info().isa == "exact");
}

TEST_CASE("memory for activations is aligned to cache lines, and an impossible amount is an error") {
  const auto d = host(1);
  auto some = unwrap(d->allocate(1000));
  CHECK(reinterpret_cast<std::uintptr_t>(some->data()) % 64 == 0);
  CHECK(some->size_bytes() == 1000);
  const auto none = d->allocate(~std::size_t{0} / 2);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error() == ec::out_of_space);
}

TEST_CASE("every piece of a section runs exactly once, whatever the number of threads") {
  for (const unsigned threads : {1u, 2u, 5u}) {
    thread_pool pool(threads);
    for (std::size_t pieces = 0; pieces < 200; ++pieces) {
      std::vector<std::atomic<int>> runs(pieces);
      pool.run(pieces, [&](std::size_t i) { runs[i].fetch_add(1, std::memory_order_relaxed); });
      for (const auto& n : runs) REQUIRE(n.load() == 1);
    }
  }
}

TEST_CASE("turns go by priority, and among equals by order of arrival") {
  turn_gate gate;
  std::vector<int> order;
  gate.enter(0);
  std::vector<std::thread> waiters;
  const int priorities[] = {1, 0, 1, 0, 2};
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back([&, i] {
      gate.enter(priorities[i]);
      order.push_back(i);
      gate.leave();
    });
    while (gate.waiting() != static_cast<std::size_t>(i) + 1) std::this_thread::yield();
  }
  gate.leave();
  for (auto& t : waiters) t.join();
  CHECK(order == std::vector{1, 3, 0, 2, 4});
}

TEST_CASE("two queues of one priority alternate when both always want the device") {
  turn_gate gate;
  std::vector<int> order;
  gate.enter(0);
  const auto worker = [&](int me) {
    for (int i = 0; i < 20; ++i) {
      gate.enter(1);
      order.push_back(me);
      // Leave only when the other one waits, so that arrival is certain.
      while (order.size() < 39 && gate.waiting() == 0) std::this_thread::yield();
      gate.leave();
    }
  };
  std::thread a(worker, 0);
  while (gate.waiting() != 1) std::this_thread::yield();
  std::thread b(worker, 1);
  while (gate.waiting() != 2) std::this_thread::yield();
  gate.leave();
  a.join();
  b.join();
  REQUIRE(order.size() == 40);
  for (std::size_t i = 0; i < 40; ++i) CHECK(order[i] == static_cast<int>(i % 2));
}

TEST_CASE("queues on several threads get the same bits as one queue alone") {
  const auto d = host(2);
  random_source r(8);
  const auto data = random_weights(r, ggml_type::q4_1, 96, 128);
  const auto w = unwrap(d->load_weight(ggml_type::q4_1, 96, 128, data));
  auto x = matrix::random(r, 40, 128);
  const auto compute = [&](compute_queue& queue) {
    matrix out(40, 96);
    const device_turn turn(queue);
    const linear_job job{w.get(), nullptr, out.view()};
    queue.linear(x.view(), {&job, 1});
    queue.swiglu(out.view(), out.view(), out.view());
    queue.synchronize();
    return out.values;
  };
  const auto queue = d->make_queue(0);
  const auto want = compute(*queue);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto own = d->make_queue(t % 2);
      for (int i = 0; i < 50; ++i) wrong += compute(*own) != want;
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}
