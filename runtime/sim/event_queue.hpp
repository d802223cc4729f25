#pragma once
// The events to come on the virtual clock, in order.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncaf::sim {

/// Virtual time in nanoseconds since the simulation began.
using ticks = std::int64_t;

constexpr double to_sec(ticks t) noexcept { return static_cast<double>(t) * 1e-9; }
constexpr ticks from_sec(double s) noexcept { return static_cast<ticks>(s * 1e9 + 0.5); }

enum class event_kind : std::uint8_t {
  arrival,        ///< the next request of the trace
  prefill_ready,  ///< `target` request: its prefix is (about to be) there, it may join the prefill queue
  prefill_free,   ///< `target` instance: its first stage can take the next step
  prefill_exit,   ///< `target` instance: its oldest step has left the last stage
  kv_arrived,     ///< `target` request: all of its KV is at the decode instance
  decode_turn,    ///< `target` instance: the steps planned under number `stamp` are done
  copy_arrived,   ///< `target` copy of hot blocks: it is at its node
  coupled_turn,   ///< `target` coupled instance: likewise
  disturbance,    ///< `target` of the options' disturbances begins, goes on or ends
  machine,        ///< something happens to `target` machine: `machine_event`
  elastic,        ///< whether machines come, go or change roles is decided
  shadow,         ///< the last minutes are played again under other rules of admission
  retry,          ///< `target` request asks for a place again
  round,          ///< the nodes report their loads, or the conductor looks around
  sample,         ///< loads are written down
};

struct event {
  ticks at = 0;
  std::uint64_t order = 0;  ///< of equal times the earlier scheduled goes first
  std::uint32_t target = 0;
  std::uint32_t stamp = 0;  ///< lets a target recognise an event that has been superseded
  event_kind kind = event_kind::arrival;
};

/// A heap of four children per node: half the levels of a binary one, and siblings share cache lines.
/// @cost  O(log n) of the events that are pending, not of all there ever were.
class event_queue {
 public:
  void push(ticks at, event_kind kind, std::uint32_t target, std::uint32_t stamp = 0) {
    heap_.push_back({at, ++order_, target, stamp, kind});
    auto i = heap_.size() - 1;
    const auto moving = heap_[i];
    while (i > 0 && before(moving, heap_[(i - 1) / 4])) {
      heap_[i] = heap_[(i - 1) / 4];
      i = (i - 1) / 4;
    }
    heap_[i] = moving;
  }

  bool empty() const noexcept { return heap_.empty(); }
  std::size_t size() const noexcept { return heap_.size(); }
  const event& next() const noexcept { return heap_.front(); }

  /// Removes and returns the next event; the queue must not be empty.
  event pop() {
    const auto first = heap_.front();
    const auto moving = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(moving);
    return first;
  }

 private:
  static bool before(const event& a, const event& b) noexcept {
    return a.at != b.at ? a.at < b.at : a.order < b.order;
  }

  void sift_down(const event& moving) {
    const auto n = heap_.size();
    std::size_t i = 0;
    for (;;) {
      const auto first = 4 * i + 1;
      if (first >= n) break;
      auto least = first;
      const auto last = first + 4 < n ? first + 4 : n;
      for (auto c = first + 1; c < last; ++c) least = before(heap_[c], heap_[least]) ? c : least;
      if (!before(heap_[least], moving)) break;
      heap_[i] = heap_[least];
      i = least;
    }
    heap_[i] = moving;
  }

  std::vector<event> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace mooncaf::sim
