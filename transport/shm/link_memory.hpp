#pragma once
// The memory that two processes of a host share for one link, besides the regions themselves: two rings of
// messages and a gate. The owner of the regions makes it; the initiator maps it.
//
//   initiator ── notices: "take these bytes", "these bytes lie in your memory" ──► owner
//             ◄── acknowledgements ───────────────────────────────────────────────
//
// The gate is the fence. An end that copies enters it around every copy, and either end revokes it: the owner
// waits until the initiator is out, or dead, the initiator until the owner is. No message is needed, so a
// busy or hung event loop cannot delay it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "transport/region.hpp"

namespace mooncaf {

/// One direction: records of bytes, one writer, one reader. Lies in shared memory; the other side is
/// authenticated but may crash at any instruction, so the reader believes no number without checking it.
struct ring_memory {
  static constexpr std::size_t capacity = 512 * 1024;  // power of two

  alignas(64) std::atomic<std::uint64_t> head;  ///< bytes ever written; the writer's
  alignas(64) std::atomic<std::uint64_t> tail;  ///< bytes ever read; the reader's
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::byte data[capacity];
};

struct link_memory {
  alignas(64) std::atomic<std::uint32_t> revoked;
  alignas(64) std::atomic<std::uint32_t> inside;  ///< copies under way
  ring_memory notices;
  ring_memory acks;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Copies `n` bytes inside the gate, so that whoever revokes it can wait until the copy is over.
/// @returns `checksum64` of the bytes if `checksum` is set, else zero; nothing if the gate was revoked, and
/// then no byte was copied.
std::optional<std::uint64_t> copy_through_gate(link_memory& link, std::byte* to, const std::byte* from,
                                               std::uint64_t n, bool checksum);

/// Writes records. @thread one
class ring_writer {
 public:
  explicit ring_writer(ring_memory& ring) : ring_(&ring) {}
  /// @returns false if there is no room now.
  bool put(std::span<const std::byte> record);
  /// True once if the reader sleeps and has to be woken.
  bool must_wake();

 private:
  ring_memory* ring_;
};

/// Reads records. @thread one
class ring_reader {
 public:
  explicit ring_reader(ring_memory& ring) : ring_(&ring) {}
  enum class status { record, empty, broken };
  /// Copies the next record out, since its writer could change it under our eyes.
  status take(std::vector<std::byte>& record);
  void arm() { ring_->reader_sleeps.store(1); }
  void disarm() { ring_->reader_sleeps.store(0, std::memory_order_relaxed); }

 private:
  ring_memory* ring_;
};

/// A mapping of shared memory; unmapped with the object.
class shared_mapping {
 public:
  /// @param fd      is not kept
  static result<shared_mapping> map(int fd, std::uint64_t bytes);
  shared_mapping() = default;
  shared_mapping(shared_mapping&& other) noexcept;
  shared_mapping& operator=(shared_mapping&& other) noexcept;
  ~shared_mapping();
  std::byte* base() const noexcept { return base_; }
  std::uint64_t size() const noexcept { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Memfds of a peer, each mapped once however many regions lie in it.
class peer_memory {
 public:
  /// Where `length` bytes at `offset` of a memfd lie here.
  /// @param inode  as the peer names the memfd
  /// @error `ec::corrupt` if the numbers contradict each other or the mapping; `ec::invalid_argument` for a
  /// descriptor that could be cut short.
  result<peer_view> map(int fd, std::uint64_t inode, std::uint64_t fd_size, std::uint64_t offset,
                        std::uint64_t length);
  void unmap(std::uint64_t inode) { mappings_.erase(inode); }

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<const shared_mapping>> mappings_;
};

/// A new memfd of `bytes`; its size is sealed.
result<unique_fd> make_memfd(const char* name, std::uint64_t bytes);
/// @error `ec::invalid_argument` unless `fd` is a memfd that cannot be shrunk and that holds [0, bytes).
result<void> check_memfd(int fd, std::uint64_t bytes);

}  // namespace mooncaf
