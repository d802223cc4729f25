#pragma once
// A queue's offer for passes of many small operations, where handing one over costs more than its work.

namespace mooncaf {

/// A `compute_queue` that is one, too, keeps operations and hands many over at once. No result depends on it.
///
/// One thread at a time, that of the queue.
class work_collector {
 public:
  virtual ~work_collector() = default;

  /// From here on operations may be kept. Waits, events, copies and `synchronize` come behind the operations
  /// before them, as ever.
  virtual void collect() = 0;
  /// Hands over the operations that were kept.
  virtual void hand_over() = 0;
};

}  // namespace mooncaf
