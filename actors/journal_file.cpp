#include "actors/journal_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "runtime/base/posix.hpp"
#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

struct journal_file {
  std::string path;
  std::uint64_t left = 0;
  unique_fd fd;

  void stop(const std::string& problem) const {
    log_warn("journal", {{"file", path}, {"problem", problem}, {"now", "nothing more is recorded"}});
  }

  bool append(std::string_view bytes) {
    if (bytes.size() > left) {
      stop("journal-limit is reached");
      return false;
    }
    left -= bytes.size();
    while (!bytes.empty()) {
      const auto n = ::write(fd.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        stop("write: " + errno_text());
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
};

}  // namespace

result<journal::sink> open_journal(const std::string& path, std::uint64_t limit_bytes) {
  if (::access(path.c_str(), F_OK) == 0 && std::rename(path.c_str(), (path + ".old").c_str()) != 0) {
    return fail(ec::io_error, "journal: cannot rename " + path + " to " + path + ".old: " + errno_text());
  }
  unique_fd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!fd) return fail(ec::io_error, "journal: cannot create " + path + ": " + errno_text());
  const auto file = std::make_shared<journal_file>(journal_file{path, limit_bytes, std::move(fd)});
  return journal::sink{[file](std::string_view bytes) { return file->append(bytes); }};
}

}  // namespace mooncaf
