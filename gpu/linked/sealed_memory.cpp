#include "gpu/linked/sealed_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <system_error>

namespace mooncaf {

namespace {

constexpr std::size_t page = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

}  // namespace

result<std::unique_ptr<sealed_memory>> sealed_memory::make(std::size_t capacity_bytes) {
  std::unique_ptr<sealed_memory> made(new sealed_memory);
  const auto refused = [&](const char* what) {
    return fail(ec::out_of_space, std::string{what} + " for " + std::to_string(capacity_bytes) +
                                      " bytes of device memory: " + std::generic_category().message(errno));
  };
  made->capacity_ = capacity_bytes / page * page;
  made->file_ = ::memfd_create("mooncaf-device", MFD_CLOEXEC);
  if (made->file_ < 0 || ::ftruncate(made->file_, static_cast<off_t>(made->capacity_)) != 0)
    return refused("a memory file");
  constexpr int lazily = MAP_NORESERVE;
  void* sealed = ::mmap(nullptr, made->capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | lazily, -1, 0);
  if (sealed == MAP_FAILED) return refused("a range of addresses");
  made->sealed_ = static_cast<std::byte*>(sealed);
  void* open = ::mmap(nullptr, made->capacity_, PROT_READ | PROT_WRITE, MAP_SHARED | lazily, made->file_, 0);
  if (open == MAP_FAILED) return refused("a mapping");
  made->open_ = static_cast<std::byte*>(open);
  made->distance_ =
      reinterpret_cast<std::uintptr_t>(made->open_) - reinterpret_cast<std::uintptr_t>(made->sealed_);
  made->free_.emplace(0, made->capacity_);
  return made;
}

sealed_memory::~sealed_memory() {
  if (open_ != nullptr) ::munmap(open_, capacity_);
  if (sealed_ != nullptr) ::munmap(sealed_, capacity_);
  if (file_ >= 0) ::close(file_);
}

result<std::byte*> sealed_memory::allocate(std::size_t bytes) {
  const std::lock_guard lock{mutex_};
  // Compared before rounding up, which could overflow.
  if (bytes <= capacity_) {
    const auto wanted = whole_pages(bytes);
    for (auto i = free_.begin(); i != free_.end(); ++i) {
      const auto [offset, size] = *i;
      if (size < wanted) continue;
      free_.erase(i);
      if (size > wanted) free_.emplace(offset + wanted, size - wanted);
      return sealed_ + offset;
    }
  }
  return fail(ec::out_of_space,
              std::to_string(bytes) + " bytes of device memory; it has " + std::to_string(capacity_));
}

void sealed_memory::release(std::byte* sealed, std::size_t bytes) noexcept {
  const auto size = whole_pages(bytes);
  const auto offset = static_cast<std::size_t>(sealed - sealed_);
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
  const std::lock_guard lock{mutex_};
  auto here = free_.emplace(offset, size).first;
  if (const auto next = std::next(here); next != free_.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free_.erase(next);
  }
  if (here == free_.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  free_.erase(here);
}

}  // namespace mooncaf
