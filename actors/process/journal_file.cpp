#include "actors/process/journal_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "runtime/base/posix.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/journal/frames.hpp"

namespace mooncaf {

namespace {

struct journal_file {
  std::string path;
  std::uint64_t left = 0;
  unique_fd fd;

  void stop(const std::string& problem) const {
    log_warn("journal", {{"file", path}, {"problem", problem}, {"now", "nothing more is recorded"}});
  }

  journal::written append(std::string_view bytes, bool last) {
    if (bytes.size() + (last ? 0 : journal::closing_frame_bytes) > left) {
      stop("journal-limit is reached");
      return journal::written::no_room;
    }
    left -= bytes.size();
    while (!bytes.empty()) {
      const auto n = ::write(fd.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        stop("write: " + errno_text());
        return journal::written::failed;
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return journal::written::whole;
  }
};

/// Journals of earlier processes that are kept beside the one under way.
constexpr int journals_kept = 9;

std::string older(const std::string& path, int age) { return path + "." + std::to_string(age); }

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// PATH becomes PATH.1, PATH.1 becomes PATH.2, and so on; unless another process writes to PATH.
result<void> put_aside(const std::string& path) {
  const unique_fd there{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (there && ::flock(there.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(
        ec::already_exists,
        "journal: " + path + " is written by another process; give each a --journal or a --name of its own");
  }
  int free = 1;
  while (free <= journals_kept && exists(older(path, free))) ++free;
  if (free > journals_kept) {
    free = journals_kept;
    log_warn("journal", {{"file", older(path, free)}, {"now", "overwritten by a later one"}});
  }
  for (int age = free; age >= 1; --age) {
    const auto from = age > 1 ? older(path, age - 1) : path, to = older(path, age);
    if (std::rename(from.c_str(), to.c_str()) != 0)
      return fail(ec::io_error, "journal: cannot rename " + from + " to " + to + ": " + errno_text());
  }
  return {};
}

}  // namespace

result<journal::sink> open_journal(const std::string& path, std::uint64_t limit_bytes) {
  if (exists(path)) {
    if (const auto aside = put_aside(path); !aside) return fail(aside.error());
  }
  unique_fd fd{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!fd) return fail(ec::io_error, "journal: cannot create " + path + ": " + errno_text());
  static_cast<void>(::flock(fd.get(), LOCK_EX | LOCK_NB));  // a new file, which nobody else has open
  const auto file = std::make_shared<journal_file>(journal_file{path, limit_bytes, std::move(fd)});
  return journal::sink{[file](std::string_view bytes, bool last) { return file->append(bytes, last); }};
}

std::string worker_journal_path(const std::string& journal, const std::string& name, worker_role role,
                                std::uint32_t number) {
  return journal + "." + (name.empty() ? "" : name + ".") + std::string{to_string(role)} +
         std::to_string(number);
}

}  // namespace mooncaf
