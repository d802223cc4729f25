#include "storage/tier_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/base/posix.hpp"

namespace mooncaf {

namespace fs = std::filesystem;

namespace {

constexpr const char* lock_file = "LOCK";
constexpr const char* damaged_folder = "damaged";

error failure(const std::string& what, const std::string& why) {
  return {ec::io_error, "SSD tier: cannot " + what + ": " + why};
}

}  // namespace

result<void> prepare_tier_folder(const std::string& path) {
  std::error_code failed;
  fs::create_directories(fs::path{path}.parent_path(), failed);
  if (::mkdir(path.c_str(), 0700) == 0) return {};
  if (errno != EEXIST || !fs::is_directory(path, failed)) {
    return fail(failure("make the folder " + path, errno_text(errno == EEXIST ? ENOTDIR : errno)));
  }
  if (!fs::exists(path + "/CURRENT", failed)) return {};
  // Best effort: another user's file cannot be changed, and is then not ours to read either.
  for (fs::directory_iterator at{path, failed}, end; !failed && at != end; at.increment(failed)) {
    if (at->is_regular_file(failed)) (void)::chmod(at->path().c_str(), 0600);
  }
  (void)::chmod(path.c_str(), 0700);
  return {};
}

std::optional<int> lock_holder(const std::string& path) {
  const unique_fd fd{::open((path + "/" + lock_file).c_str(), O_RDWR | O_CLOEXEC)};
  if (!fd) return std::nullopt;
  struct flock wanted {};
  wanted.l_type = F_WRLCK;
  wanted.l_whence = SEEK_SET;
  if (::fcntl(fd.get(), F_GETLK, &wanted) != 0 || wanted.l_type == F_UNLCK) return std::nullopt;
  return static_cast<int>(wanted.l_pid);
}

result<std::string> move_aside(const std::string& path) {
  const auto aside = path + "/" + damaged_folder;
  std::error_code failed;
  fs::remove_all(aside, failed);
  if (failed || ::mkdir(aside.c_str(), 0700) != 0) {
    return fail(failure("replace " + aside, failed ? failed.message() : errno_text()));
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator at{path, failed}, end; !failed && at != end; at.increment(failed)) {
    if (at->is_regular_file(failed) && at->path().filename() != lock_file) files.push_back(at->path());
  }
  for (const auto& file : files) {
    if (!failed) fs::rename(file, fs::path{aside} / file.filename(), failed);
  }
  if (failed) return fail(failure("move what is in " + path + " to " + aside, failed.message()));
  return aside;
}

}  // namespace mooncaf
