#pragma once
// Numbers on a shard's announcements, so that a lost one is noticed.

#include <cstdint>

namespace mooncaf {

/// The treatment of a batch of block events.
enum class stream_verdict : std::uint8_t {
  apply,    ///< next in order: apply all its events
  replace,  ///< begin of a snapshot: forget the node's blocks, then apply
  stale,    ///< already seen, or waiting for a snapshot: ignore
  gap,      ///< events were lost: ask for a snapshot, once
};

/// The block events of one shard as they arrive. Events are numbered one by one; a snapshot stands for all
/// events up to a number, comes in parts 0, 1, …, and is followed by the events after it.
///
///   waiting ── part 0 ──► in order ── batch that begins with the expected number ──► in order
///      ▲                     │
///      └──────── gap ────────┘
class event_stream {
 public:
  /// @param first  number of the batch's first event. @param count  events in it.
  stream_verdict apply(std::uint64_t first, std::uint64_t count) noexcept {
    if (waiting_) return stream_verdict::stale;
    if (first == next_) {
      next_ += count;
      return stream_verdict::apply;
    }
    if (first + count <= next_ && first < next_) return stream_verdict::stale;
    waiting_ = true;
    ++gaps_;
    return stream_verdict::gap;
  }
  /// @param last  number of the last event that the snapshot includes. @param part  counts from 0.
  stream_verdict snapshot(std::uint64_t last, std::uint32_t part) noexcept {
    if (part != 0 && (waiting_ || part != parts_ || last + 1 != next_)) {
      // A part before this one was lost: the snapshot so far is not whole.
      if (waiting_) return stream_verdict::stale;
      waiting_ = true;
      ++gaps_;
      return stream_verdict::gap;
    }
    waiting_ = false;
    parts_ = part + 1;
    next_ = last + 1;
    return part == 0 ? stream_verdict::replace : stream_verdict::apply;
  }

  bool waiting() const noexcept { return waiting_; }
  std::uint64_t gaps() const noexcept { return gaps_; }

 private:
  std::uint64_t next_ = 0;   // number of the event expected next
  std::uint32_t parts_ = 0;  // of the latest snapshot
  std::uint64_t gaps_ = 0;
  bool waiting_ = true;  // for a snapshot
};

}  // namespace mooncaf
