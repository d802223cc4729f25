#pragma once
// The node's KV memory: one span that every process of the host can map.

#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// Anonymous shared memory (memfd) of fixed size, mapped read-write here. Move-only; unmapped and closed with
/// the object, but a process that got the descriptor over SCM_RIGHTS keeps its own mapping alive.
///
/// The size is sealed: no process that holds the descriptor can shrink it and make another one fault. Pages
/// are allocated when first touched and are zero then. Huge pages are asked for; the kernel may refuse them.
/// @thread  The object is immutable after `create`; the bytes are synchronised by whoever hands out parts of
/// them.
class arena {
 public:
  /// @param name   shows up in /proc/PID/maps as memfd:NAME; need not be unique; at most 200 characters.
  /// @param bytes  rounded up to a multiple of 2 MiB (a huge page).
  /// @error `ec::invalid_argument` for zero bytes or a long name, `ec::out_of_space` if the kernel refuses
  /// the
  ///        mapping, `ec::io_error` otherwise.
  static result<arena> create(const std::string& name, std::size_t bytes);

  arena(arena&& other) noexcept;
  arena& operator=(arena&& other) noexcept;
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena();

  std::byte* base() const noexcept { return base_; }
  std::size_t size_bytes() const noexcept { return size_; }
  std::span<std::byte> bytes() const noexcept { return {base_, size_}; }
  /// The descriptor to pass to other processes; stays owned by the arena.
  int fd() const noexcept { return fd_.get(); }

 private:
  arena(unique_fd fd, std::byte* base, std::size_t size) noexcept;
  static result<arena> map(unique_fd fd, std::size_t bytes);

  unique_fd fd_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

/// Gives the memory of these bytes back to the kernel, for all processes that map the arena: the bytes are
/// zero, and take up no memory until they are touched. Memory that a device or a NIC has registered keeps its
/// pages, so this is not for it.
/// @returns false where the bytes do not lie in the arena, or the kernel refuses.
bool give_pages_back(const arena& of, std::size_t offset, std::size_t bytes) noexcept;

}  // namespace mooncaf
