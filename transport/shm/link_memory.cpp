#include "transport/shm/link_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/copy/stream_copy.hpp"
#include "transport/shm/ring_bytes.hpp"

namespace mooncaf {
namespace {

using namespace ring_bytes;

constexpr std::size_t length_bytes = 8;  // before each record; records start at multiples of 8

constexpr std::size_t padded(std::size_t n) { return (n + 7) / 8 * 8; }

}  // namespace

std::optional<std::uint64_t> copy_through_gate(link_memory& link, std::byte* to, const std::byte* from,
                                               std::uint64_t n, bool checksum) {
  link.inside.fetch_add(1);
  std::uint64_t sum = 0;
  const bool revoked = link.revoked.load() != 0;
  if (!revoked) {
    if (checksum) sum = stream_copy_checksum(to, from, n);
    else stream_copy(to, from, n);
    fence_streamed_stores();
  }
  link.inside.fetch_sub(1);
  if (revoked) return std::nullopt;
  return sum;
}

bool ring_writer::put(std::span<const std::byte> record) {
  const std::size_t need = length_bytes + padded(record.size());
  const auto head = ring_->head.load(std::memory_order_relaxed);
  const auto tail = ring_->tail.load(std::memory_order_acquire);
  const auto used = head - tail;
  if (used > ring_memory::capacity || need > ring_memory::capacity - used) return false;
  const std::uint64_t length = record.size();
  copy_in(*ring_, head, std::as_bytes(std::span{&length, 1}));
  if (!record.empty()) copy_in(*ring_, head + length_bytes, record);
  published();
  // Sequentially consistent: either the reader sees the record before it sleeps, or we see that it sleeps.
  ring_->head.store(head + need);
  return true;
}

bool ring_writer::must_wake() {
  return ring_->reader_sleeps.load() != 0 && ring_->reader_sleeps.exchange(0) != 0;
}

ring_reader::status ring_reader::take(std::vector<std::byte>& record) {
  const auto tail = ring_->tail.load(std::memory_order_relaxed);
  const auto used = ring_->head.load() - tail;
  if (used == 0) return status::empty;
  if (used > ring_memory::capacity || used < length_bytes) return status::broken;
  std::uint64_t length = 0;
  copy_out(*ring_, tail, std::as_writable_bytes(std::span{&length, 1}));
  if (length > used - length_bytes || length_bytes + padded(length) > used) return status::broken;
  observed();
  record.resize(length);
  if (length > 0) copy_out(*ring_, tail + length_bytes, record);
  ring_->tail.store(tail + length_bytes + padded(length), std::memory_order_release);
  return status::record;
}

result<shared_mapping> shared_mapping::map(int fd, std::uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED)
    return fail(ec::io_error, "cannot map " + std::to_string(bytes) + " shared bytes: " + errno_text(errno));
  shared_mapping m;
  m.base_ = static_cast<std::byte*>(base);
  m.size_ = bytes;
  return m;
}

shared_mapping::shared_mapping(shared_mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}

shared_mapping& shared_mapping::operator=(shared_mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

shared_mapping::~shared_mapping() {
  if (base_) ::munmap(base_, size_);
}

result<peer_view> peer_memory::map(int fd, std::uint64_t inode, std::uint64_t fd_size, std::uint64_t offset,
                                   std::uint64_t length) {
  constexpr const char* contradiction = "the peer's description of a region contradicts itself";
  if (offset > fd_size || length > fd_size - offset) return fail(ec::corrupt, contradiction);
  auto it = mappings_.find(inode);
  if (it == mappings_.end()) {
    if (const auto ok = check_memfd(fd, fd_size); !ok) return fail(ok.error());
    auto mapping = shared_mapping::map(fd, fd_size);
    if (!mapping) return fail(mapping.error());
    it = mappings_.emplace(inode, std::make_shared<const shared_mapping>(std::move(*mapping))).first;
  }
  if (it->second->size() < offset + length) return fail(ec::corrupt, contradiction);
  return peer_view{it->second, {it->second->base() + offset, length}};
}

result<unique_fd> make_memfd(const char* name, std::uint64_t bytes) {
  unique_fd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd || ::ftruncate(fd.get(), static_cast<::off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail(ec::io_error, "cannot make shared memory: " + errno_text(errno));
  return fd;
}

result<void> check_memfd(int fd, std::uint64_t bytes) {
  struct ::stat info {};
  if (::fstat(fd, &info) != 0) return fail(ec::invalid_argument, "not a descriptor: " + errno_text(errno));
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return fail(
        ec::invalid_argument,
        "the descriptor is no memfd sealed against shrinking (F_SEAL_SHRINK): a peer that cut it would make "
        "others fault");
  if (static_cast<std::uint64_t>(info.st_size) < bytes)
    return fail(ec::invalid_argument, "the memfd has " + std::to_string(info.st_size) +
                                          " bytes, the region needs " + std::to_string(bytes));
  return {};
}

}  // namespace mooncaf
