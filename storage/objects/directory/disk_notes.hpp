#pragma once
// What the directory writes down about SSDs, so that nothing comes back from one that was removed or replaced
// while its holder was away.
//
// An SSD keeps its objects while its process is dead, and nobody can tell it what becomes of them. So the
// directory notes, for each SSD that is away, the keys of which another value was published, or that somebody
// removed (or wanted to). What the SSD brings along later counts only where its key is not noted. The notes
// survive a kill of the directory: they lie in a file for each SSD. An SSD of which a directory has no such
// file has been away for nobody knows how long, and what it holds counts no more.
//
// A file is a Bloom filter over keys, of one size: a key may be taken for noted that is not, so that an
// object is missed; never the other way round. After 800,000 keys all are.

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
  /// In memory alone: the next directory takes nothing from SSDs that this one knew.
  /// @param store  number of the store, not zero.
  explicit disk_notes(std::uint64_t store) : store_(store) {}
  /// @param folder  made when the first SSD is adopted. Its owner's alone (0700).
  /// @param store  used if the folder does not have a number yet.
  /// @error `ec::already_exists` if another directory has the folder open; `ec::io_error`.
  static result<std::unique_ptr<disk_notes>> open(std::string folder, std::uint64_t store);
  /// From now on what SSDs hold that have notes in the folder is of no use: the store is another one.
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
  /// It is here, and empty. @error `ec::io_error`, `ec::out_of_space`: its notes are in memory alone.
  result<void> adopt(std::uint64_t disk);
  /// From now on keys are noted for it. So they are from the start for those that `open` found.
  void leave(std::uint64_t disk);
  /// It is told itself again.
  void is_back(std::uint64_t disk);
  /// What was noted for it has been erased there.
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
    std::span<std::byte> bytes;  ///< of it, or of a mapped file
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
