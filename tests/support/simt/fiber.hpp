#pragma once
// A stack to run on, and the way there and back.

#include <cstddef>
#include <cstdint>

namespace mooncaf::simt {

/// Runs a function that may be left at any point, and resumed or forgotten: nothing on its stack is
/// destroyed.
class fiber {
 public:
  static constexpr std::size_t stack_bytes = 64 << 10;

  fiber();
  ~fiber();
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// From now on `resume` begins with main(argument), which must not return.
  void start(void (*main)(void*), void* argument);
  /// Goes there; returns when somebody there goes to `*back`.
  void resume(void** back);
  /// Leaves this fiber, whose code is running, for what called `resume`.
  void leave(void* back);
  bool has(std::uintptr_t address) const noexcept {
    return address - reinterpret_cast<std::uintptr_t>(stack_) < stack_bytes;
  }

 private:
  std::byte* stack_ = nullptr;
  void* at_ = nullptr;
};

}  // namespace mooncaf::simt
