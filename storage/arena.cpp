#include "storage/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {
namespace {
constexpr std::size_t huge_page = 2 * MiB;
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;
}  // namespace

result<arena> arena::create(const std::string& name, std::size_t bytes) {
  if (bytes == 0) return fail(ec::invalid_argument, "an arena needs at least one byte");
  if (name.size() > 200) return fail(ec::invalid_argument, "arena name longer than 200 characters");
  if (bytes > std::size_t{1} << 46) {
    return fail(ec::invalid_argument,
                "an arena of " + std::to_string(bytes) + " bytes cannot be addressed (at most 64 TiB)");
  }
  const std::size_t size = (bytes + huge_page - 1) / huge_page * huge_page;
  unique_fd fd{::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd) return fail(ec::io_error, "memfd_create for arena " + name + ": " + errno_text());
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return fail(ec::out_of_space,
                "arena " + name + " of " + std::to_string(size) + " bytes: " + errno_text());
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0) {
    return fail(ec::io_error, "cannot seal the size of arena " + name + ": " + errno_text());
  }
  return map(std::move(fd), size);
}

result<arena> arena::map(unique_fd fd, std::size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return fail(ec::out_of_space,
                "cannot map an arena of " + std::to_string(bytes) + " bytes: " + errno_text());
  }
  // Only advice: kernels with shmem_enabled=never keep 4 KiB pages, which costs speed and nothing else.
  (void)::madvise(base, bytes, MADV_HUGEPAGE);
  // A core dump with the whole cache in it would fill the disk for no use.
  (void)::madvise(base, bytes, MADV_DONTDUMP);
  return arena{std::move(fd), static_cast<std::byte*>(base), bytes};
}

arena::arena(unique_fd fd, std::byte* base, std::size_t size) noexcept
    : fd_(std::move(fd)), base_(base), size_(size) {}

arena::arena(arena&& other) noexcept
    : fd_(std::move(other.fd_)),
      base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

arena& arena::operator=(arena&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

arena::~arena() {
  if (base_) ::munmap(base_, size_);
}

bool give_pages_back(const arena& of, std::size_t offset, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  if (offset > of.size_bytes() || bytes > of.size_bytes() - offset) return false;
  return ::fallocate(of.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) == 0;
}

}  // namespace mooncaf
