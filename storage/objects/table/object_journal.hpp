#pragma once
// The interface through which the table tells of changes to mounted memory and SSDs.

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/units.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// Hears of changes to the memory of segments, in the order in which they happen. Called within the table's
/// functions.
class object_journal {
 public:
  virtual ~object_journal() = default;
  virtual void reserved(std::uint32_t segment, const segment_record& record) = 0;
  virtual void published(std::uint32_t segment, const segment_record& record, std::string_view key,
                         std::string_view group) = 0;
  /// @param offset  of the memory that the ticket had. @param rests  the memory is given to no object for so
  /// long.
  virtual void freed(std::uint32_t segment, std::uint64_t ticket, std::uint64_t offset, duration rests) = 0;
  /// An SSD is to forget an object.
  virtual void erased(std::uint32_t disk, std::uint64_t ticket, std::string_view key) = 0;
  /// The key's former value counts no more: it was removed or replaced.
  virtual void changed(std::string_view key) = 0;
  /// The holder of the SSD `to` is to write the bytes at `from` to it, or the other way round; `disk_done`
  /// says how it went.
  virtual void save(std::uint32_t to, const segment_record& record, std::string_view key,
                    std::string_view group, std::span<const replica_place> from) = 0;
  virtual void load(std::uint32_t from, std::uint64_t ticket, std::span<const replica_place> to) = 0;
};

}  // namespace mooncaf
