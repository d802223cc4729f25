// Stands between a process and its C library (LD_PRELOAD) and lies to it: the wall clock jumps, a disk
// fails or dawdles. What it does is read from a file that the driver writes while the process runs:
//
//   $MOONCAF_FAULTS         int64 nanoseconds to add to the wall clock, int64 faults of the disk (bits
//   below),
//                           int64 microseconds that each call to the disk takes longer
//   $MOONCAF_FAULTS_FOLDER  the folder on that disk; other files are left alone
//
// For kernels that cannot set a process's wall clock, and disks that nobody has at hand.

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct orders {
  volatile std::int64_t clock_offset_ns = 0, disk = 0, disk_delay_us = 0;
};
enum : std::int64_t { broken_writes = 1, broken_reads = 2 };

const orders none{};

const orders& now() {
  static const orders* const mapped = [] {
    const char* path = std::getenv("MOONCAF_FAULTS");
    const int fd = path != nullptr ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return &none;
    void* at = ::mmap(nullptr, sizeof(orders), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? &none : static_cast<const orders*>(at);
  }();
  return *mapped;
}

template <class F>
F next(F, const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

/// Whether a descriptor is of a file in the folder. Asked only while something is wrong with the disk.
bool on_the_disk(int fd) {
  static const char* const folder = std::getenv("MOONCAF_FAULTS_FOLDER");
  if (folder == nullptr) return false;
  char link[32], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const auto n = ::readlink(link, path, sizeof path - 1);
  if (n <= 0) return false;
  path[n] = 0;
  return std::strncmp(path, folder, std::strlen(folder)) == 0;
}

/// @returns the error that this call has to fail with, or 0; waits as long as a slow disk would.
int disk_fault(int fd, bool writes) {
  const auto& o = now();
  if ((o.disk == 0 && o.disk_delay_us == 0) || !on_the_disk(fd)) return 0;
  if (o.disk_delay_us > 0) ::usleep(static_cast<::useconds_t>(o.disk_delay_us));
  return (o.disk & (writes ? broken_writes : broken_reads)) != 0 ? EIO : 0;
}

void shift(timespec& t) {
  constexpr std::int64_t second = 1'000'000'000;
  const auto ns = t.tv_sec * second + t.tv_nsec + now().clock_offset_ns;
  t.tv_sec = ns / second;
  t.tv_nsec = ns % second;
}

}  // namespace

#define REFUSE_IF(fd, writes)                              \
  if (const int failed = disk_fault(fd, writes); failed) { \
    errno = failed;                                        \
    return -1;                                             \
  }

extern "C" {

int clock_gettime(clockid_t clock, timespec* t) noexcept {
  static const auto real = next(&::clock_gettime, "clock_gettime");
  const int r = real(clock, t);
  if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(*t);
  return r;
}

int gettimeofday(timeval* t, void*) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  *t = {exact.tv_sec, exact.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec exact{};
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out != nullptr) *out = exact.tv_sec;
  return exact.tv_sec;
}

ssize_t write(int fd, const void* from, size_t n) {
  static const auto real = next(&::write, "write");
  REFUSE_IF(fd, true)
  return real(fd, from, n);
}

ssize_t pwrite(int fd, const void* from, size_t n, off_t at) {
  static const auto real = next(&::pwrite, "pwrite");
  REFUSE_IF(fd, true)
  return real(fd, from, n, at);
}

ssize_t pread(int fd, void* to, size_t n, off_t at) {
  static const auto real = next(&::pread, "pread");
  REFUSE_IF(fd, false)
  return real(fd, to, n, at);
}

int fdatasync(int fd) {
  static const auto real = next(&::fdatasync, "fdatasync");
  REFUSE_IF(fd, true)
  return real(fd);
}

int fsync(int fd) {
  static const auto real = next(&::fsync, "fsync");
  REFUSE_IF(fd, true)
  return real(fd);
}

}  // extern "C"
