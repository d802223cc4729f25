#pragma once
// The holder's record of a segment's contents: written down as the directory tells it, and told to the next
// directory. No socket and no clock.

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

/// The directory's order to the holder of an SSD.
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
    std::vector<task_order> orders;            ///< tasks that the holder is to carry out
    std::vector<disk_order> disk_orders = {};  ///< for the SSD beside, in this order
  };

  /// The number that the directory gave the segment.
  void begin(std::uint32_t segment) {
    former_.segment = segment;
    disk_ = 0;
    hears_of_disk_ = false;
  }
  /// The number of the SSD beside it.
  void begin_disk(std::uint32_t segment) { disk_ = segment; }
  /// The directory has heard of all that lies on the SSD, and has said what of it counts no more.
  /// @param number  its own.
  void disk_announced(std::uint64_t number) {
    hears_of_disk_ = true;
    former_.disk = number;
  }
  /// Whether nothing is to be placed in it; a segment that begins again keeps it as it was.
  void begin_draining(bool on) { former_.draining = on; }
  /// The segment's words to a directory that does not know it.
  const store_wire::former_life& former() const noexcept { return former_; }
  /// @param payload  of a journal frame.
  outcome apply(std::span<const std::byte> payload, time_point now);

  /// Everything that lies in the segment, or may still be written or read, in the order of offsets: payloads
  /// as of `announcement_of`.
  std::vector<std::vector<std::byte>> announcement(time_point now);
  std::size_t objects() const noexcept { return published_; }

  /// Bytes of the segment that a tenant may read, or write.
  struct tenant_part {
    std::string owner;  ///< empty: no tenant
    std::uint64_t ticket = 0, offset = 0, size = 0;
    bool sealed = false;  ///< was published, and is read until the bytes are another's
    bool clean = false;   ///< no byte is another tenant's: each was written for this one, or is zero; noted
                          ///< by `shared_ledger`
    std::optional<std::uint64_t> checksum;  ///< of these bytes, if they are a whole object
    /// Checksums of its pieces, as `shared_ledger` cuts them, once the whole has agreed with its checksum.
    std::shared_ptr<const std::vector<std::uint64_t>> piece_sums = nullptr;
  };
  /// @returns the part that `bytes` from `offset` on lie in; null if there is none. Until the next `apply`.
  tenant_part* part_at(std::uint64_t offset, std::uint64_t bytes);
  /// The same for any bytes, also if they belong to no tenant.
  tenant_part* anyones_part_at(std::uint64_t offset, std::uint64_t bytes);

 private:
  struct line {
    segment_record record;
    tenant_part part;
    time_point soft_end{}, ttl_end = time_point::max();
  };
  struct span_key {  ///< one ticket may have several spans here, and a span one ticket after the other
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
  bool hears_of_disk_ = false;           ///< of all that becomes of its objects
  std::map<std::uint64_t, line> lines_;  // by offset
  std::multimap<time_point, span_key> resting_;
  std::size_t published_ = 0;
};

}  // namespace mooncaf
