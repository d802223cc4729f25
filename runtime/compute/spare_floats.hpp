#pragma once
// Memory that each pass wants, kept from one to the next: made anew, its pages would have to be given out each time.

#include <cstddef>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace mooncaf {

/// @thread  Safe. Outlives what it lends.
class spare_floats {
 public:
  class loan {
   public:
    loan(spare_floats& of, std::vector<float> memory, std::size_t count)
        : of_(of), memory_(std::move(memory)), count_(count) {}
    ~loan() {
      const std::lock_guard lock{of_.mutex_};
      of_.spare_.push_back(std::move(memory_));
    }
    loan(const loan&) = delete;
    loan& operator=(const loan&) = delete;
    /// Whatever they were left with.
    std::span<float> all() noexcept { return std::span{memory_}.first(count_); }

   private:
    spare_floats& of_;
    std::vector<float> memory_;
    std::size_t count_;
  };

  loan lend(std::size_t count) {
    std::vector<float> memory;
    {
      const std::lock_guard lock{mutex_};
      if (!spare_.empty()) {
        memory = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    if (memory.size() < count) memory.resize(count);
    return {*this, std::move(memory), count};
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<float>> spare_;
};

}  // namespace mooncaf
