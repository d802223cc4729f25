#pragma once
// A file in the place of another, whole or not at all.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// Puts a file in its place whole or not at all, also where the machine fails meanwhile.
/// Several may replace one file at once: the last one's stays.
/// @param path  of the file itself, not of a link to it. @error `ec::io_error`; then the old one is as it was.
inline result<void> replace_file(const std::string& path, const std::string& text, unsigned mode) {
  auto fresh = path + ".XXXXXX";  // a name of its own: an agent and who started it write one file at a time
  unique_fd out{::mkostemp(fresh.data(), O_CLOEXEC)};
  std::size_t written = 0;
  while (out && written < text.size()) {
    const auto n = ::write(out.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  // Renamed before its bytes are on the disk, it could be empty after a loss of power.
  if (!out || written < text.size() || ::fchmod(out.get(), mode) != 0 || ::fsync(out.get()) != 0 ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const auto why = errno_text();
    if (out) ::unlink(fresh.c_str());
    return fail(ec::io_error, "cannot write " + path + ": " + why);
  }
  const auto slash = path.rfind('/');
  const auto folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (const unique_fd at{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)}; at) ::fsync(at.get());
  return {};
}

}  // namespace mooncaf
