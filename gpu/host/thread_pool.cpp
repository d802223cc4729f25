#include "gpu/host/thread_pool.hpp"

#include <immintrin.h>

namespace mooncaf {

namespace {

/// About 30 µs: longer than the gap between two layers' sections, shorter than anyone would notice.
constexpr int spin_rounds = 2000;

}  // namespace

thread_pool::thread_pool(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

thread_pool::~thread_pool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (auto& w : workers_) w.join();
}

void thread_pool::section(std::size_t pieces, piece_function call, const void* work) {
  call_ = call;
  work_ = work;
  pending_.store(static_cast<std::uint32_t>(pieces), std::memory_order_relaxed);
  const auto generation = generation_.load(std::memory_order_relaxed) + 1;
  next_.store(std::uint64_t{generation} << 32 | pieces, std::memory_order_release);
  generation_.store(generation, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) generation_.notify_all();
  drain(generation);
  for (int i = 0; pending_.load(std::memory_order_acquire) != 0; ++i) {
    if (i < spin_rounds) {
      _mm_pause();
    } else {
      std::this_thread::yield();  // the last piece's thread lost its core
    }
  }
}

void thread_pool::drain(std::uint32_t generation) {
  auto next = next_.load(std::memory_order_acquire);
  // The generation in the upper half keeps a late worker from taking a piece of a section that it did not see
  // begin.
  while (next >> 32 == generation && (next & 0xFFFFFFFFu) != 0) {
    if (!next_.compare_exchange_weak(next, next - 1, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    call_(work_, static_cast<std::size_t>((next & 0xFFFFFFFFu) - 1));
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    next = next_.load(std::memory_order_acquire);
  }
}

void thread_pool::worker() {
  auto seen = std::uint32_t{0};
  while (true) {
    auto generation = generation_.load(std::memory_order_acquire);
    for (int i = 0; generation == seen && i < spin_rounds; ++i) {
      _mm_pause();
      generation = generation_.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      generation_.wait(seen, std::memory_order_seq_cst);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    if (stop_.load()) return;
    seen = generation;
    drain(generation);
  }
}

}  // namespace mooncaf
