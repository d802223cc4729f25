#pragma once
// Runs kernels of gpu/cuda on the processor, and looks at every access that they make.
//
// A block's threads are fibers of one thread of the host: each runs until it waits at a barrier or in a
// function of its warp. Sources with kernels are compiled so that each access to memory calls the machine
// (GCC's -fsanitize=thread, with what it calls defined in accesses.cpp), so kernels use plain pointers and
// are checked all the same. A kernel that breaks a rule ends with `kernel_fault`, before the access is made:
//
//  - memory: an address outside every allocation and shared array, or not aligned for its access; shared
//  memory that
//    this block has not written
//  - barriers: threads of a block at different barriers, or some at one and others at their end; lanes of a
//  warp in
//    different warp functions
//  - races: two threads at the same place, one of them writing, without a barrier between them; two blocks at
//  the same
//    place in one launch, one of them writing
//  - asynchronous copies: their target touched before they were waited for
//
// Blocks and warps take turns in an order that changes from launch to launch.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/simt/access_log.hpp"
#include "tests/support/simt/fiber.hpp"

namespace mooncaf::simt {

class kernel_fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct dimensions {
  unsigned x = 1, y = 1, z = 1;
};

using kernel_entry_fn = void (*)(const void* params);

/// One device: its memory, and the block that runs now.
/// @thread  Safe: one call at a time, others wait.
class machine {
 public:
  /// @param capacity_bytes  of memory that can be given out; taken from the system as it is written
  /// @param reached_by_nics  a NIC can register the memory, which the system allows for what a process can
  /// touch itself; so a false step of the host is not seen
  explicit machine(std::size_t capacity_bytes, bool reached_by_nics = false);
  ~machine();
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// Memory that only kernels and `copy` can touch: from the host, following its address is a segmentation
  /// fault. Null if there is no such room.
  std::byte* allocate(std::size_t bytes);
  void release(std::byte* memory);
  /// Whether it is an address of the device's.
  bool owns(const std::byte* memory) const noexcept {
    return static_cast<std::size_t>(memory - memory_) < capacity_;
  }
  /// Memory of the host that kernels may touch, too, until it is unpinned. @returns whether it is: not twice.
  bool pin(std::span<std::byte> memory);
  bool unpin(const std::byte* memory);
  /// Like memcpy, with either side on the device.
  void copy(void* to, const void* from, std::size_t bytes);
  /// Hands the kernel a copy of `params`, which it may read.
  /// @throws kernel_fault
  void launch(const char* name, kernel_entry_fn entry, std::span<const std::byte> params, unsigned threads,
              dimensions grid);

  /// What kernels call; see gpu/cuda/simt_plain.hpp.
  static machine& running();
  static bool is_running();
  unsigned thread_index() const { return current_; }
  dimensions block() const { return block_; }
  void* shared_array(const char* name, std::size_t bytes);
  void barrier(int line);
  /// Hands `mine` to all lanes of the warp. The last one to come calls finish(all, results) on arrays of 32
  /// slots; each gets its result's address, good until its next but one call.
  using slot = std::byte[64];
  const std::byte* collect(const char* what, int line, const void* mine, std::size_t bytes,
                           void (*finish)(const slot* all, slot* results));
  void access(std::uintptr_t at, std::size_t bytes, bool write);
  /// A read and a write of shared memory that races with those of no other thread that does the same.
  void access_atomically(std::uintptr_t at, std::size_t bytes);
  void copy_async(void* shared, const void* global, bool there);
  void commit_async();
  void wait_async(int pending);

 private:
  enum class standing { ready, at_barrier, in_warp, ended };
  struct async_copy {
    std::byte* to;
    std::byte data[16];
    unsigned group;
  };
  struct thread_state {
    fiber runs;
    standing at = standing::ready;
    const char* what = "";
    int line = 0;
    std::vector<async_copy> copies;
    unsigned groups = 0;
  };
  struct warp_state {
    unsigned arrived = 0;
    unsigned parity = 0;
    const char* what = "";
    int line = 0;
    alignas(64) slot in[2][32];
    alignas(64) slot out[2][32];
  };
  struct shared_range {
    const char* name;
    std::size_t at, bytes;
  };

  void touch(const access_place& place, std::uintptr_t at, std::size_t bytes, bool write);
  [[noreturn]] void fault(const std::string& what);
  void run_block();
  bool run_ready();
  bool open_barrier();
  std::string where(unsigned thread) const;
  void wait_here(standing how, const char* what, int line);
  moment moment_of(const access_place& place) const;
  access_place find(std::uintptr_t at, std::size_t bytes, bool write);
  static void thread_main(void* self);

  std::mutex mutex_;
  const std::size_t capacity_;
  const int closed_;  ///< what the host may do with the memory while no kernel runs
  std::byte* memory_ = nullptr;
  std::map<std::uintptr_t, std::size_t> taken_;
  struct pinned_range {
    std::size_t bytes;
    std::unique_ptr<access_log> log;
  };
  std::map<std::uintptr_t, pinned_range> pinned_;
  std::uintptr_t last_at_ = 0;  ///< the allocation that was found last
  std::size_t last_bytes_ = 0;
  access_log global_log_, shared_log_;
  std::byte* shared_ = nullptr;
  std::vector<shared_range> ranges_;

  kernel_entry_fn entry_ = nullptr;
  std::vector<std::byte> params_;
  const char* kernel_ = "";
  dimensions block_;
  unsigned threads_ = 0;
  unsigned current_ = 0;
  std::uint32_t launches_ = 0;
  moment now_;
  std::vector<std::unique_ptr<thread_state>> states_;
  std::vector<warp_state> warps_;
  void* scheduler_ = nullptr;
  std::string fault_;
};

}  // namespace mooncaf::simt
