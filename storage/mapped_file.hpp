#pragma once
// A file seen as memory: weights and tokenizer tables are used in place, paged in by the kernel when touched.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf {

/// Read-only memory map of a whole regular file. Move-only; the bytes live as long as the object.
///
/// The map shares the file's bytes: a writer that truncates the file makes later reads fault, so models are
/// replaced by renaming a new file over the old name, never by writing into it.
/// @thread  Immutable after `open`; may be read from any number of threads.
class mapped_file {
 public:
  /// @error `ec::not_found` if the path does not exist, `ec::invalid_argument` if it is no regular file or is
  /// empty,
  ///        `ec::io_error` otherwise; the detail names path and reason.
  static result<mapped_file> open(const std::string& path);

  mapped_file(mapped_file&& other) noexcept;
  mapped_file& operator=(mapped_file&& other) noexcept;
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  ~mapped_file();

  std::span<const std::byte> bytes() const noexcept { return {base_, size_}; }
  const std::string& path() const noexcept { return path_; }

 private:
  mapped_file(std::string path, const std::byte* base, std::size_t size) noexcept;

  std::string path_;
  const std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mooncaf
