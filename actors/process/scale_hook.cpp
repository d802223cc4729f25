#include "actors/process/scale_hook.hpp"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/log/log.hpp"

extern char** environ;

namespace mooncaf {

namespace {

constexpr auto look_again = std::chrono::milliseconds(50);
constexpr auto longest_pause = std::chrono::minutes(1);

std::vector<std::string> split(std::string_view text) {
  std::istringstream in{std::string{text}};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(std::move(word));
  return out;
}

/// Its output goes where this process logs. It gets no signal that is meant for this process's group.
result<pid_t> start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, 2, 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return fail(ec::io_error, errno_text(failed));
  return pid;
}

}  // namespace

scale_hook::scale_hook(std::string_view command, duration pause)
    : command_(split(command)), pause_(pause), keeper_([this] { keep(); }) {}

result<void> scale_hook::check(std::string_view command) {
  const auto program = split(command).front();
  std::vector<std::string> places{program};
  if (program.find('/') == std::string::npos) {
    const char* path = std::getenv("PATH");
    std::istringstream folders{path != nullptr ? path : ""};
    places.clear();
    for (std::string folder; std::getline(folders, folder, ':');) places.push_back(folder + "/" + program);
  }
  for (const auto& at : places)
    if (::access(at.c_str(), X_OK) == 0) return {};
  return fail(ec::not_found,
              "scale-command: there is no program '" + program + "' that can be run; give its path");
}

scale_hook::~scale_hook() {
  {
    const std::scoped_lock lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  keeper_.join();
}

void scale_hook::tell(std::string counts) {
  {
    const std::scoped_lock lock{mutex_};
    told_ = std::move(counts);
  }
  changed_.notify_all();
}

bool scale_hook::wait(duration span) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, span, [this] { return stopping_; });
}

std::optional<int> scale_hook::run(const std::string& counts) {
  auto command = command_;
  for (auto& word : split(counts)) command.push_back(std::move(word));
  const auto pid = start(command);
  if (!pid) {
    log_warn("scale", {{"command", command[0]}, {"problem", pid.error().detail}});
    return -1;
  }
  for (int status = 0;;) {
    const auto ended = ::waitpid(*pid, &status, WNOHANG);
    if (ended == *pid) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended < 0 && errno != EINTR) return -1;
    if (wait(look_again)) return std::nullopt;
  }
}

void scale_hook::keep() {
  auto pause = pause_;
  std::string counts;
  for (bool done = true;;) {
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return stopping_ || told_ || !done; });
      if (stopping_) return;
      if (told_) counts = *std::exchange(told_, std::nullopt);
    }
    const auto status = run(counts);
    if (!status) return;
    done = *status == 0;
    if (done) {
      log_info("scale", {{"done", counts}});
      pause = pause_;
      continue;
    }
    log_warn("scale", {{"failed", counts},
                       {"status", std::to_string(*status)},
                       {"again_in_s", std::to_string(to_seconds(pause))}});
    if (wait(pause)) return;
    pause = std::min<duration>(2 * pause, longest_pause);
  }
}

}  // namespace mooncaf
