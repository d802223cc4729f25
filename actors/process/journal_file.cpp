#include "actors/process/journal_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
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

bool is_at(int fd, const std::string& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

/// PATH becomes PATH.1, PATH.1 becomes PATH.2, and so on; unless another process writes to PATH. The lock
/// of the file at PATH is held meanwhile: of processes started at once, one renames.
result<void> put_aside(const std::string& path) {
  const unique_fd there{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!there) {
    if (errno == ENOENT) return {};
    return fail(ec::io_error, "journal: cannot open " + path + ": " + errno_text());
  }
  if (::flock(there.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(
        ec::already_exists,
        "journal: " + path + " is written by another process; give each a --journal or a --name of its own");
  }
  if (!is_at(there.get(), path)) return {};  // put aside by another process, between the two calls
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

/// Gives the file `unnamed` the name `path`, which another process may take or free meanwhile.
result<void> take_name(const std::string& unnamed, const std::string& path) {
  while (::link(unnamed.c_str(), path.c_str()) != 0) {
    if (errno != EEXIST) return fail(ec::io_error, "journal: cannot create " + path + ": " + errno_text());
    if (const auto aside = put_aside(path); !aside) return aside;
  }
  return {};
}

}  // namespace

result<journal::sink> open_journal(const std::string& path, std::uint64_t limit_bytes) {
  // Locked before it has its name: no other process ever sees an unlocked file at `path`.
  auto unnamed = path + ".XXXXXX";
  unique_fd fd{::mkostemp(unnamed.data(), O_CLOEXEC)};
  if (!fd) return fail(ec::io_error, "journal: cannot create " + path + ": " + errno_text());
  static_cast<void>(::flock(fd.get(), LOCK_EX | LOCK_NB));
  const auto named = take_name(unnamed, path);
  ::unlink(unnamed.c_str());
  if (!named) return fail(named.error());
  const auto file = std::make_shared<journal_file>(journal_file{path, limit_bytes, std::move(fd)});
  return journal::sink{[file](std::string_view bytes, bool last) { return file->append(bytes, last); }};
}

std::string worker_journal_path(const std::string& journal, const std::string& name, worker_role role,
                                std::uint32_t number) {
  return journal + "." + (name.empty() ? "" : name + ".") + std::string{to_string(role)} +
         std::to_string(number);
}

}  // namespace mooncaf
