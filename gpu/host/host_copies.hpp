#pragma once
// Copies by the processor, at once.

#include "gpu/copy_queue.hpp"

namespace mooncaf {

/// Between the host's memory and itself: what a device with memory of its own does behind its link, and what
/// the host device needs for nothing but to be a device like any other.
class host_copies final : public copy_queue {
 public:
  void load(std::span<const kv_copy> copies) override;
  void store(std::span<const kv_copy> copies) override;
  void wait(const event_ptr& e) override { wait_for(e); }
  event_ptr record() override { return nullptr; }
};

}  // namespace mooncaf
