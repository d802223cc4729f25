#pragma once
// The threads of a host device. One parallel section at a time; the turn gate sees to that.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace mooncaf {

/// Persistent workers for short parallel sections: the caller takes part, pieces are handed out dynamically.
///
/// Between sections workers spin for some tens of microseconds, since the next layer's section is that near,
/// and then sleep in the kernel: an idle device burns nothing.
/// @thread  `run` from one thread at a time.
class thread_pool {
 public:
  explicit thread_pool(unsigned threads);
  ~thread_pool();
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  unsigned size() const noexcept { return static_cast<unsigned>(workers_.size()) + 1; }

  /// Calls work(i) for every i in [0, pieces), each once, on any thread; returns when all are done.
  template <class Work>
  void run(std::size_t pieces, const Work& work) {
    if (pieces <= 1 || workers_.empty()) {
      for (std::size_t i = 0; i < pieces; ++i) work(i);
      return;
    }
    section(
        pieces, [](const void* w, std::size_t i) { (*static_cast<const Work*>(w))(i); }, &work);
  }

 private:
  using piece_function = void (*)(const void* work, std::size_t index);

  void section(std::size_t pieces, piece_function call, const void* work);
  void drain(std::uint32_t generation);
  void worker();

  std::vector<std::thread> workers_;
  piece_function call_ = nullptr;
  const void* work_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> generation_{
      0};  ///< of the section that runs or ran last; 0 mod 2^32 is fine
  alignas(64) std::atomic<std::uint64_t> next_{0};     ///< generation << 32 | pieces still to hand out
  alignas(64) std::atomic<std::uint32_t> pending_{0};  ///< pieces that are not done
  alignas(64) std::atomic<unsigned> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace mooncaf
