#include "storage/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "runtime/base/posix.hpp"

namespace mooncaf {

result<mapped_file> mapped_file::open(const std::string& path) {
  unique_fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fd)
    return fail(errno == ENOENT ? ec::not_found : ec::io_error, "cannot open " + path + ": " + errno_text());
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail(ec::io_error, "cannot stat " + path + ": " + errno_text());
  if (!S_ISREG(info.st_mode)) return fail(ec::invalid_argument, path + " is not a regular file");
  if (info.st_size == 0) return fail(ec::invalid_argument, path + " is empty");
  const auto size = static_cast<std::size_t>(info.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return fail(ec::io_error, "cannot map " + path + ": " + errno_text());
  return mapped_file{path, static_cast<const std::byte*>(base), size};
}

mapped_file::mapped_file(std::string path, const std::byte* base, std::size_t size) noexcept
    : path_(std::move(path)), base_(base), size_(size) {}

mapped_file::mapped_file(mapped_file&& other) noexcept
    : path_(std::move(other.path_)),
      base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

mapped_file& mapped_file::operator=(mapped_file&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

mapped_file::~mapped_file() {
  if (base_) ::munmap(const_cast<std::byte*>(base_), size_);
}

}  // namespace mooncaf
