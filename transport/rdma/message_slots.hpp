#pragma once
// Registered buffers of one queue pair for short messages. The first are posted for receiving all the time,
// the others hold messages being sent.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/rdma/device.hpp"

namespace mooncaf {

/// @thread  not synchronised: the queue pair's
class message_slots {
 public:
  static constexpr std::size_t bytes_max = 1024;  // of a message
  static constexpr unsigned receiving = 64;
  static constexpr unsigned sending = 32;

  /// @error `ec::io_error` if the NIC does not take the buffers.
  result<void> make(const rdma_device& device) {
    buffers_.resize((receiving + sending) * bytes_max);
    auto registered = device.register_memory(buffers_);
    if (!registered) return fail(registered.error());
    registered_ = std::move(*registered);
    for (std::uint32_t i = 0; i < sending; ++i) free_.push_back(receiving + i);
    return {};
  }
  /// Slots that can take a message to be sent.
  std::size_t free() const noexcept { return free_.size(); }
  std::uint32_t take() {
    const auto slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(std::uint32_t slot) { free_.push_back(slot); }

  std::byte* at(std::uint32_t slot) noexcept { return buffers_.data() + slot * bytes_max; }
  /// The NIC's key to the buffers.
  std::uint32_t key() const noexcept { return registered_->lkey; }

 private:
  std::vector<std::byte> buffers_;
  verbs_memory registered_;
  std::vector<std::uint32_t> free_;
};

}  // namespace mooncaf
