#pragma once
// Work for an executor: see actors/executor.hpp.

#include <memory>

namespace mooncaf {

/// Blocking or long work, run by an EXECUTOR on its own thread and handed back to the asker.
class blocking_task {
 public:
  virtual ~blocking_task() = default;
  virtual void run() = 0;
};
using task_ptr = std::shared_ptr<blocking_task>;

}  // namespace mooncaf
