#pragma once
// What a model's file or folder holds, as a source tells it: names, sizes, and the hash of every part.
//
// A source has this in memory that it offers, as the first region of its transfer engine, and the files behind it. A fetch
// reads all of it one-sidedly:
//
//   head      64 bytes: magic, version, part size, count of files, folder or file, count of parts, address of the hashes in
//             the source, bytes of head and files, addresses of the page of fetches and of the map of parts, 0 for none
//   files     of each: bytes (64 bits), address in the source (64), name (32 and text)
//
//   hashes    16 bytes a part, in order, elsewhere; each block of `hashes_per_block` is offered once it is whole
//   fetches   `peers_page`: which hosts fetch it now, and so have parts of it
//   map       of a source that fetches itself: a `part_holding` a part
//
// All values are little-endian.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file_range.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// A fetch says to its sources that it goes on, now and then, and that it has ended; a blank and its own HOST:PORT follow.
inline constexpr std::string_view fetch_goes_on = "a fetch goes on", fetch_ended = "a fetch has ended";

enum class part_holding : std::uint8_t { none, comes, here };

class file_manifest {
 public:
  static constexpr std::uint64_t part_bytes = 4 * MiB;
  static constexpr std::size_t head_bytes = 64;
  static constexpr std::size_t hash_bytes = 16;
  static constexpr std::size_t hashes_per_block = 64;
  /// Longest that is read.
  static constexpr std::uint64_t bytes_max = 64 * MiB;

  struct entry {
    std::string name;  ///< of a folder's file: its path in there, with '/'; of a file alone: empty
    std::uint64_t bytes = 0;
    std::uint64_t address = 0;  ///< in the source; 0 where the file is empty
    friend bool operator==(const entry&, const entry&) = default;
  };
  /// Addresses in the source.
  struct places {
    std::uint64_t hashes = 0;
    std::uint64_t fetches = 0;  ///< 0: it does not tell
    std::uint64_t map = 0;      ///< 0: all parts are here
  };
  /// The first bytes of a manifest.
  struct head {
    std::uint64_t parts = 0;
    std::uint64_t bytes = 0;  ///< of head and files
    places at;
  };

  /// @error `ec::invalid_argument` for a name that leads out of the folder, or twice the same.
  static result<file_manifest> of(bool folder, std::vector<entry> files);

  bool folder() const noexcept { return folder_; }
  const std::vector<entry>& files() const noexcept { return files_; }
  std::size_t parts() const noexcept { return first_.back(); }
  /// The unit that is moved, checked and kept. @param number  less than `parts()`
  file_range part(std::size_t number) const;
  /// The part that a range begins in. @pre it lies within one of `files()`
  std::size_t part_at(const file_range& range) const {
    return first_.at(range.file) + static_cast<std::size_t>(range.offset / part_bytes);
  }
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Whether both are of files with the same names and sizes.
  bool same_shape(const file_manifest& other) const;

  /// As a source lays it out.
  std::vector<std::byte> encode(const places& at) const;
  /// @error `ec::corrupt` if the bytes are no manifest's, `ec::incompatible` for another version.
  static result<head> parse_head(std::span<const std::byte, head_bytes> in);
  /// @param in  head and files; any bytes. @error as above
  static result<file_manifest> parse(std::span<const std::byte> in);

  static hash128 parse_hash(std::span<const std::byte, hash_bytes> in);
  static void put_hash(std::span<std::byte, hash_bytes> out, const hash128& hash);

 private:
  bool folder_ = false;
  std::vector<entry> files_;
  std::vector<std::size_t> first_{0};  ///< number of each file's first part; behind them, of all parts
  std::uint64_t bytes_ = 0;
};

}  // namespace mooncaf
