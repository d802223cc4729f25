#pragma once
// Copies by the processor, at once.

#include "gpu/copy_queue.hpp"

namespace mooncaf {

/// Copies within the host's memory. The linked device does them behind its link; the host device has them to
/// be a device like any other.
class host_copies final : public copy_queue {
 public:
  void load(std::span<const kv_copy> copies) override;
  void store(std::span<const kv_copy> copies) override;
  void wait(const event_ptr& e) override { wait_for(e); }
  event_ptr record() override { return nullptr; }
};

}  // namespace mooncaf
