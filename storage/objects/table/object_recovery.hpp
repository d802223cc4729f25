#pragma once
// Objects that segments and SSDs bring along: from an earlier directory, or when they are back. A stripe
// waits for the stripes of other segments until `end_recovery`, a part on SSD for as long as its room is not
// wanted and the key has no other value.

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/units.hpp"
#include "storage/objects/table/lone_parts.hpp"
#include "storage/objects/table/object_life.hpp"
#include "storage/objects/table/stored_parts.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct object_books;

/// Invariant: the memory of a stripe that waits is taken, and no object's.
/// @thread  not synchronised.
class object_recovery {
 public:
  object_recovery(object_books& books, object_life& life) : b_(books), life_(life) {}

  /// See `object_table`, as for the two others.
  bool recover(std::uint32_t segment, segment_record&& record, time_point now);
  void end_recovery(time_point now);
  bool recover_on_disk(std::uint32_t disk, segment_record&& record, bool stale, time_point now);

  /// A segment is going, and the stripes in it that wait.
  void lose_segment(std::uint32_t segment);
  /// An SSD is going. Parts on other SSDs of an object that lay there, too, wait for it to be back.
  void lose_disk(stored_object& o, std::uint32_t disk, time_point now);

  /// Adds up the waiting parts. For tests.
  void count_into(std::vector<tenant_use>& uses) const;

 private:
  struct stripe {
    memory_part part;
    segment_record record;
  };
  void begin_again(stored_object& o, const segment_record& r, std::uint32_t owner, time_point lease_end,
                   time_point now);
  bool take_in(std::string&& key, const segment_record& r, std::span<const memory_part> parts,
               time_point now);
  bool take_in_on_disk(std::string&& key, const segment_record& r, std::span<const disk_part> parts,
                       time_point now);
  bool join_others(const std::string& key, lone_part&& fresh, time_point now);

  std::unordered_map<std::string, std::vector<stripe>> stripes_;  ///< by key, until `end_recovery`
  object_books& b_;
  object_life& life_;
};

}  // namespace mooncaf
