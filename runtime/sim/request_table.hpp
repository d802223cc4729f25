#pragma once
// The requests that are under way, by slot: memory follows live ones, not all there ever were.

#include <cstdint>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/sched/placement.hpp"
#include "runtime/sim/event_queue.hpp"
#include "storage/prefix_tree.hpp"

namespace mooncaf::sim {

/// A request between its arrival and its end.
struct request_state_record {
  request_id id;
  std::uint64_t session = 0;  ///< of its source, if that follows answers
  ticks arrival = 0;
  ticks first_token = 0;
  ticks joined = 0;             ///< its decode batch
  ticks due = 0;                ///< its first token, as its worker is told
  ticks computing = 0;          ///< of its prompt, as its worker reports it
  ticks kv_sent = 0;            ///< when the last KV streamed so far has arrived at the decode side
  double stall_before = 0;      ///< coupled: part of its first gap that passed before it joined
  double prefill_seconds = 0;   ///< compute spent on it
  std::int64_t first_step = 0;  ///< of its decode instance
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t max_tokens = 0;           ///< that it asked for
  std::uint32_t cached_tokens = 0;        ///< not computed
  std::uint32_t computed = 0;             ///< of the prompt, cached ones included
  std::uint32_t decode_tokens = 0;        ///< that its decode instance generates
  std::uint32_t prefill = 0, decode = 0;  ///< instances
  std::uint32_t local_blocks = 0;         ///< pinned
  std::uint32_t disk_blocks = 0;          ///< … of which were read from disk
  std::uint32_t fetched_to = 0;           ///< blocks [local_blocks, fetched_to) come from elsewhere
  std::uint32_t published = 0;            ///< leading blocks that its node's memory holds
  std::uint32_t source = 0;     ///< … from this prefill instance, counted from 1; 0: they are here
  std::uint32_t delivered = 0;  ///< tokens that the client had before this attempt
  std::uint32_t decoded = 0;    ///< of this attempt, when its decode instance died
  service_share share;
  std::uint8_t priority = 1;
  bool live = false;
  bool placed = false;
  bool check_at_decode = false;           ///< whether decode refuses it if it would be too slow there
  bool loading = false;                   ///< its prefix is on the way
  bool stranded = false;                  ///< its KV will not arrive: the sender died
  std::vector<block_key> keys;            ///< of its full blocks
  std::vector<prefix_tree::handle> pins;  ///< in its prefill node's cache

  /// This attempt's progress is void; the client's and the scheduler's view of the request stays.
  void begin_anew() {
    first_token = joined = kv_sent = first_step = due = computing = 0;
    stall_before = 0;
    cached_tokens = computed = decode_tokens = decoded = 0;
    local_blocks = disk_blocks = fetched_to = published = source = 0;
    placed = loading = stranded = false;
  }
};

/// Slots are used again, with their vectors' memory. A request's id is its number and its slot.
class request_table {
 public:
  std::uint32_t open(std::uint64_t number) {
    std::uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<std::uint32_t>(all_.size());
      all_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    auto& r = all_[slot];
    auto keys = std::move(r.keys);
    auto pins = std::move(r.pins);
    r = {};
    keys.clear();
    pins.clear();
    r.keys = std::move(keys);
    r.pins = std::move(pins);
    r.id = request_id{(number + 1) << 32 | slot};
    r.live = true;
    return slot;
  }
  void close(std::uint32_t slot) {
    all_[slot].live = false;
    free_.push_back(slot);
  }
  /// Another attempt: whatever is under way for the one before no longer concerns the request.
  void renew(std::uint32_t slot) { all_[slot].id = request_id{(last_attempt_--) << 32 | slot}; }
  static std::uint32_t slot_of(request_id id) noexcept { return static_cast<std::uint32_t>(id.value); }
  /// Tells attempts apart, as an event's stamp.
  static std::uint32_t stamp_of(request_id id) noexcept { return static_cast<std::uint32_t>(id.value >> 32); }
  /// The attempt goes on.
  bool is_current(request_id id) const noexcept {
    const auto& r = all_[slot_of(id)];
    return r.live && r.id == id;
  }
  bool is_current(std::uint32_t slot, std::uint32_t stamp) const noexcept {
    return all_[slot].live && stamp_of(all_[slot].id) == stamp;
  }

  request_state_record& operator[](std::uint32_t slot) noexcept { return all_[slot]; }
  const request_state_record& operator[](std::uint32_t slot) const noexcept { return all_[slot]; }
  std::size_t live() const noexcept { return all_.size() - free_.size(); }
  std::size_t capacity() const noexcept { return all_.size(); }

 private:
  std::vector<request_state_record> all_;
  std::vector<std::uint32_t> free_;
  std::uint64_t last_attempt_ = 0xFFFF'FFFF;  // further attempts are numbered from above, requests from below
};

}  // namespace mooncaf::sim
