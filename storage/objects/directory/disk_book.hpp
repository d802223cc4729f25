#pragma once
// The SSDs that are here: which are still being announced, which objects each was told to erase, and the
// notes for later directories (`disk_notes`).

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/objects/directory/disk_notes.hpp"

namespace mooncaf {

/// Invariant: a key that was erased on an SSD, or changed while one was away, is noted until that SSD has
/// acknowledged its erasure, so no later directory takes the object from it.
/// @thread  not synchronised
class disk_book {
 public:
  explicit disk_book(std::unique_ptr<disk_notes> notes) : notes_(std::move(notes)) {}

  bool is_disk(std::uint32_t segment) const { return disks_.count(segment) != 0; }
  /// Whether the SSD with this number of its own is mounted.
  bool is_here(std::uint64_t number) const { return find(number) != nullptr; }
  /// Whether it is, and has announced all that lies on it.
  bool is_complete(std::uint64_t number) const;
  /// SSDs that an earlier directory knew.
  std::vector<std::uint64_t> known() const { return notes_->known(); }
  /// Number of the one store that counts.
  std::uint64_t store() const noexcept { return notes_->store(); }

  /// @param store  that the SSD's objects are of. @param continued  its contents count whatever the notes say
  /// (`directory_recovery::is_continued`). @returns whether they count, and are to be announced; else it is
  /// empty from now on.
  bool mount(std::uint32_t segment, std::uint64_t number, std::uint64_t store, bool continued);
  /// The SSD is away. Its contents count again when it is back, but for keys that are noted.
  void lose(std::uint32_t segment);
  /// The segment beside was taken for one of the last directory's, and is not: where this alone spoke for the
  /// SSD, which is away now, the contents do not count again.
  void distrust(std::uint32_t segment);

  /// @pre of these functions: the segment is an SSD
  bool is_announcing(std::uint32_t segment) const { return disks_.at(segment).announcing; }
  /// Whether the object was removed or replaced while the SSD was away.
  bool is_stale(std::uint32_t segment, std::string_view key) const;
  void announced(std::uint32_t segment);

  /// The SSD is told to erase the object. @param frame  number of the journal frame that tells it.
  void erased(std::uint32_t segment, std::uint64_t frame, std::string_view key);
  /// Its holder has acknowledged all frames up to this one.
  void acknowledged(std::uint32_t segment, std::uint64_t frame);
  /// An object was published under the key, or its removal was asked for.
  void changed(std::string_view key);
  void all_changed() { notes_->note_all(); }

 private:
  struct disk_state {
    std::uint64_t number = 0;
    bool announcing = false;
    bool continued = false;  // there were no notes of it
    bool to_clear = false;   // its notes, once its erasures are done
    std::deque<std::pair<std::uint64_t, std::uint64_t>>
        unacknowledged;  // frame, hash of the key that it erases
  };
  const disk_state* find(std::uint64_t number) const;

  std::unique_ptr<disk_notes> notes_;
  std::map<std::uint32_t, disk_state> disks_;  // by segment
};

}  // namespace mooncaf
