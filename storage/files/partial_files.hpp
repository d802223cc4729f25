#pragma once
// A file or folder that is being put together from parts: `PATH.part` until all of it is there, or all that is wanted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/files/file_manifest.hpp"

namespace mooncaf {

/// @thread  Functions may be called from any thread, of one part by one at a time.
class partial_files {
 public:
  /// Goes on with what an earlier fetch has left there, of the whole or of a slice.
  /// @param manifest  must outlive the object
  /// @param whole  room is taken for all of it
  /// @error `ec::already_exists`: PATH is there, or another process puts it together now; `ec::io_error`
  static result<partial_files> open(std::string path, const file_manifest& manifest, bool whole = true);

  /// Bytes of a part as they lie there, of an earlier fetch perhaps. @returns false where there are fewer
  bool read(std::size_t part, std::span<std::byte> into) const;
  /// @error `ec::io_error` with path and reason: a full disk, for one
  result<void> write(std::size_t part, std::span<const std::byte> bytes) const;
  /// The same for a range that is no part: what a fetch goes on with is looked at in parts.
  result<void> write(const file_range& at, std::span<const std::byte> bytes) const;
  /// Where a file lies meanwhile.
  std::string draft_of(std::size_t file) const;
  /// Whether there was something before.
  bool resumed() const noexcept { return resumed_; }

  /// All parts are there: they are put in their place, whole, and stay also where the machine fails at once.
  /// @error `ec::io_error`, `ec::already_exists`
  result<void> finish();
  /// The same where some parts are there: a `file_slice` of PATH.
  /// @param here  of each part, whether it is
  result<void> finish_slice(const std::vector<bool>& here);

 private:
  partial_files(std::string path, const file_manifest& manifest)
      : path_(std::move(path)), manifest_(&manifest) {}
  std::string draft() const { return path_ + ".part"; }
  result<void> make(bool whole);
  result<void> place(const std::string& at);

  std::string path_;
  const file_manifest* manifest_;
  unique_fd lock_;
  bool resumed_ = false;
};

}  // namespace mooncaf
