#pragma once
// How transfers get from the threads that submit them to the thread that moves them.

#include <mutex>
#include <utility>
#include <vector>

#include "transport/transfer.hpp"

namespace mooncaf {

/// Transfers that their path has not looked at yet, in order. @thread  any
class submissions {
 public:
  struct submission {
    transfer what;
    completion_handler on_done;
  };

  /// @returns whether the path has to be told: it takes all that are there at once.
  bool put(transfer what, completion_handler on_done) {
    std::lock_guard lock{mutex_};
    items_.push_back({std::move(what), std::move(on_done)});
    return items_.size() == 1;
  }
  std::vector<submission> take() {
    std::lock_guard lock{mutex_};
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<submission> items_;
};

}  // namespace mooncaf
