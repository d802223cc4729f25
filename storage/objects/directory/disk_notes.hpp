#pragma once
// Notes of the directory about SSDs, so that no object that was removed or replaced while an SSD was away
// comes back from it.
//
// An SSD keeps its objects while its process is dead, and the process cannot be told of their end. So the
// directory notes, for each SSD that is away, the keys under which another value was published, or whose
// removal was asked for. An object that the SSD brings along later counts only where its key is not noted.
// The notes survive a kill of the directory: they lie in a file for each SSD. An SSD without such a file has
// been away for an unknown time, and its contents count no more.
//
// A file is a Bloom filter over keys, of one size: it may say that a key is noted which is not, so that an
// object is missed; never the other way round. After 800,000 keys it says so of all.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// @thread  not synchronised
class disk_notes {
 public:
  /// Notes in memory alone: the next directory takes nothing from SSDs that this one knew.
  /// @param store  number of the store, not zero.
  explicit disk_notes(std::uint64_t store) : store_(store) {}
  /// @param folder  made when the first SSD is adopted. Its owner's alone (0700).
  /// @param store  used if the folder does not have a number yet.
  /// @error `ec::already_exists` if another directory has the folder open; `ec::io_error`.
  static result<std::unique_ptr<disk_notes>> open(std::string folder, std::uint64_t store);
  /// Begins another store: the contents of SSDs with notes in the folder do not count any more.
  /// @error as `open`
  static result<void> forget(const std::string& folder);
  ~disk_notes();
  disk_notes(const disk_notes&) = delete;
  disk_notes& operator=(const disk_notes&) = delete;

  /// Objects on an SSD belong to the store that has this number.
  std::uint64_t store() const noexcept { return store_; }
  /// SSDs of which there are notes.
  std::vector<std::uint64_t> known() const;
  bool knows(std::uint64_t disk) const { return pages_.count(disk) != 0; }
  /// A new SSD is here, and empty. @error `ec::io_error`, `ec::out_of_space`: its notes are in memory alone.
  result<void> adopt(std::uint64_t disk);
  /// The SSD is away: from now on keys are noted for it. So they are from the start for SSDs that `open`
  /// found.
  void leave(std::uint64_t disk);
  /// The SSD is back: its holder hears of removals itself.
  void is_back(std::uint64_t disk);
  /// There are no notes of the SSD any more: its contents do not count when it comes again.
  void drop(std::uint64_t disk);
  /// The SSD has erased the objects under its noted keys.
  void clear(std::uint64_t disk);

  /// For each SSD that is away. @param key  xxh3-64 of it.
  void note(std::uint64_t key);
  void note_all();
  /// For one alone, wherever it is.
  void note(std::uint64_t disk, std::uint64_t key);
  bool noted(std::uint64_t disk, std::uint64_t key) const;

  static constexpr std::size_t page_bytes = (1u << 20) + 64;
  static constexpr std::uint64_t keys_max = 800'000;

 private:
  struct disk_page {
    std::vector<std::byte> in_memory;
    std::span<std::byte> bytes;  ///< `in_memory`, or a mapped file
    bool away = true;
  };
  result<void> make_folder();
  result<std::span<std::byte>> map(std::uint64_t disk, bool make) const;
  static void note(disk_page& p, std::uint64_t key);

  std::string folder_;  ///< empty: memory alone
  unique_fd lock_;
  std::uint64_t store_;
  std::map<std::uint64_t, disk_page> pages_;
};

}  // namespace mooncaf
