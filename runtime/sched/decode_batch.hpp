#pragma once
// Which requests a decode worker's next step extends: continuous batching.

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"

#include <cstdint>
#include <vector>

namespace mooncaf {

struct decode_batch_options {
  std::uint32_t max_batch = 32;
  duration aging = std::chrono::seconds(10);  ///< waiting this long counts as one priority class
};

/// A request whose KV is complete.
struct decode_entry {
  request_id id;
  std::uint8_t priority = 1;  ///< 0 first
  time_point arrival{};
};

/// The running batch and those that wait to join it. A request that runs stays until it ends.
/// @thread  Owned by one worker; not synchronised.
class decode_batch {
 public:
  explicit decode_batch(decode_batch_options options) : options_(options) {}

  /// @returns false if the id is here already.
  bool push(const decode_entry& entry);
  /// Moves waiting requests into free places, most urgent first. @returns those that moved.
  std::vector<request_id> admit(time_point now);
  /// Unknown ids are ignored.
  void cancel(request_id id);

  const std::vector<request_id>& running() const noexcept { return running_; }
  std::size_t waiting() const noexcept { return waiting_.size(); }

 private:
  decode_batch_options options_;
  std::vector<decode_entry> waiting_;
  std::vector<request_id> running_;
};

}  // namespace mooncaf
