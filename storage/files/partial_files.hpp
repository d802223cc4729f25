#pragma once
// A file or folder that is being put together from parts: `PATH.part` until all of it is there.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/files/file_manifest.hpp"

namespace mooncaf {

/// @thread  Functions may be called from any thread, of one part by one at a time.
class partial_files {
 public:
  /// Goes on with what an earlier fetch has left there.
  /// @param manifest  must outlive the object
  /// @error `ec::already_exists`: PATH is there, or another process puts it together now; `ec::io_error`
  static result<partial_files> open(std::string path, const file_manifest& manifest);

  /// Bytes of a part as they lie there, of an earlier fetch perhaps. @returns false where there are fewer
  bool read(std::size_t part, std::span<std::byte> into) const;
  /// @error `ec::io_error` with path and reason: a full disk, for one
  result<void> write(std::size_t part, std::span<const std::byte> bytes) const;
  /// Where a file lies meanwhile.
  std::string draft_of(std::size_t file) const;
  /// Whether there was something before.
  bool resumed() const noexcept { return resumed_; }

  /// All parts are there: they are put in their place, whole, and stay also where the machine fails at once.
  /// @error `ec::io_error`, `ec::already_exists`
  result<void> finish();

 private:
  partial_files(std::string path, const file_manifest& manifest)
      : path_(std::move(path)), manifest_(&manifest) {}
  std::string draft() const { return path_ + ".part"; }
  result<void> make();

  std::string path_;
  const file_manifest* manifest_;
  unique_fd lock_;
  bool resumed_ = false;
};

}  // namespace mooncaf
