#pragma once
// How a client waits while room is being made by writing objects to SSD.

#include <algorithm>
#include <thread>
#include <vector>

#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// A put that finds no room while objects that make way are still being written to SSD asks again for a
/// while, and in the end for room at any price.
class waiting_for_room {
 public:
  /// @returns whether some are to be asked for again, after a pause.
  bool again(std::vector<store_code>& codes, put_policy& policy) {
    busy_.clear();
    for (std::size_t i = 0; i < codes.size(); ++i)
      if (codes[i] == store_code::busy) busy_.push_back(i);
    if (policy.lossy)
      for (const auto i : busy_) codes[i] = store_code::no_space;
    if (busy_.empty() || policy.lossy) return false;
    const auto now = clock_type::now();
    if (busy_.size() != last_) until_ = now + std::chrono::seconds(2);  // something goes on
    last_ = busy_.size();
    policy.lossy = now >= until_;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min<duration>(2 * pause_, std::chrono::milliseconds(8));
    return true;
  }
  const std::vector<std::size_t>& busy() const { return busy_; }
  void take(const std::vector<store_code>& fresh, std::vector<store_code>& codes) const {
    for (std::size_t i = 0; i < busy_.size(); ++i) codes[busy_[i]] = fresh[i];
  }

 private:
  std::vector<std::size_t> busy_;
  std::size_t last_ = 0;
  duration pause_ = std::chrono::milliseconds(1);
  time_point until_{};
};

}  // namespace mooncaf
