#pragma once
// What the holder of a segment knows of its contents: written down as the directory tells it, and told to the
// next one. No socket and no clock.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// Payloads of `announce` questions, each of at most about a megabyte; at least one.
std::vector<std::vector<std::byte>> announcement_of(std::uint32_t segment,
                                                    std::span<const segment_record> records);

/// What the directory wants of the SSD of a holder.
struct disk_order {
  enum class kind : std::uint8_t { save, load, erase } what = kind::erase;
  /// Ticket, and for the others size. To be saved: all of it, but its place.
  segment_record object;
  std::vector<replica_place> places = {};  ///< in the memory beside: all of the object, in this order
};

/// @thread  not synchronised. Time comes in and never goes back.
class segment_ledger {
 public:
  struct outcome {
    bool understood = true;
    bool acknowledge = false;                  ///< the directory waits to hear that this was taken
    bool fenced = false;                       ///< the contents count no more: begin again with fresh memory
    std::vector<task_order> orders;            ///< what the holder is to do
    std::vector<disk_order> disk_orders = {};  ///< to the SSD beside, in this order
  };

  /// The number that the directory gave the segment.
  void begin(std::uint32_t segment) { former_.segment = segment; }
  /// The number of the SSD beside it.
  void begin_disk(std::uint32_t segment) { disk_ = segment; }
  /// Whether nothing is to be placed in it; of a segment that begins again, what held for it before.
  void begin_draining(bool on) { former_.draining = on; }
  /// What a directory that does not know the segment is told first.
  const store_wire::former_life& former() const noexcept { return former_; }
  /// @param payload  of a journal frame.
  outcome apply(std::span<const std::byte> payload, time_point now);

  /// Everything that lies in the segment, or may still be written or read, in the order of offsets: payloads
  /// as of `announcement_of`.
  std::vector<std::vector<std::byte>> announcement(time_point now);
  std::size_t objects() const noexcept { return published_; }

  /// Bytes of the segment that are a tenant's, whether he may read them, or write them.
  struct tenant_part {
    std::string owner;  ///< empty: no tenant's, or nobody's any more
    std::uint64_t ticket = 0, offset = 0, size = 0;
    bool sealed = false;  ///< was published, and is read until the bytes are another's
    bool clean = false;   ///< of all bytes the tenant knows what they are; for whom they are let in to note
    std::optional<std::uint64_t> checksum;  ///< of these bytes, if they are all of an object
    /// Of its pieces, as `shared_ledger` cuts them, once all of it has agreed with the checksum.
    std::shared_ptr<const std::vector<std::uint64_t>> piece_sums = nullptr;
  };
  /// @returns the part that `bytes` from `offset` on lie in; null if there is none. Until the next `apply`.
  tenant_part* part_at(std::uint64_t offset, std::uint64_t bytes);
  /// The same of whatever lies there, also if it is no tenant's.
  tenant_part* anyones_part_at(std::uint64_t offset, std::uint64_t bytes);

 private:
  struct line {
    segment_record record;
    tenant_part part;
    time_point soft_end{}, ttl_end = time_point::max();
  };
  struct span_key {  ///< one ticket may have several spans here, a span one ticket after the other
    std::uint64_t ticket, offset;
  };
  void learn_member(std::uint32_t segment, bool joined);
  void reserve(segment_record&& told);
  void publish(segment_record&& told, time_point now);
  void free(const span_key& what, duration rests, time_point now);
  line* find(const span_key& what);
  void forget(const span_key& what);

  static bool take_order(store_wire::entry kind, std::uint64_t ticket, byte_reader& in, outcome& o);

  store_wire::former_life former_;
  std::uint32_t disk_ = 0;
  std::map<std::uint64_t, line> lines_;  // by offset
  std::multimap<time_point, span_key> resting_;
  std::size_t published_ = 0;
};

}  // namespace mooncaf
