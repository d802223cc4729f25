#include "actors/launch/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

#include "runtime/base/posix.hpp"

extern char** environ;

namespace mooncaf::launch {

namespace {

struct pipe_ends {
  unique_fd read, write;
};

result<pipe_ends> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return fail(ec::io_error, "pipe: " + errno_text());
  return pipe_ends{unique_fd{fds[0]}, unique_fd{fds[1]}};
}

result<pid_t> start(const std::vector<std::string>& command, int in, int out, int err) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in, 0);
  if (out >= 0) ::posix_spawn_file_actions_adddup2(&files, out, 1);
  if (err >= 0) ::posix_spawn_file_actions_adddup2(&files, err, 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // A group of its own: the terminal's Ctrl-C is for this process, which ends what it has begun in order.
  if (out >= 0) ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return fail(ec::io_error, "cannot run " + command[0] + ": " + errno_text(failed));
  return pid;
}

/// Feeds the input and drains both outputs at once: a command that fills one pipe while it is fed would wait for ever.
void exchange(pid_t child, const std::string& input, unique_fd& to,
              std::array<std::pair<unique_fd*, std::string*>, 2> from,
              const std::function<bool(const std::string&)>& hear) {
  std::size_t heard = 0;
  ::fcntl(to.get(), F_SETFL, O_NONBLOCK);
  std::size_t sent = 0;
  if (input.empty()) to.reset();
  while (to || *from[0].first || *from[1].first) {
    std::array<pollfd, 3> wait{
        {{to.get(), POLLOUT, 0}, {from[0].first->get(), POLLIN, 0}, {from[1].first->get(), POLLIN, 0}}};
    if (::poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return;
    if (wait[0].revents != 0) {
      const auto n = ::write(to.get(), input.data() + sent, input.size() - sent);
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (sent == input.size() || (n < 0 && errno != EAGAIN && errno != EINTR)) to.reset();
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (wait[i + 1].revents == 0) continue;
      std::array<char, 16384> buffer;
      const auto n = ::read(from[i].first->get(), buffer.data(), buffer.size());
      if (n > 0) from[i].second->append(buffer.data(), static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR) from[i].first->reset();
    }
    const auto& said = *from[1].second;
    for (auto end = said.find('\n', heard); hear && end != std::string::npos; end = said.find('\n', heard)) {
      if (!hear(said.substr(heard, end - heard))) ::kill(child, SIGTERM);
      heard = end + 1;
    }
  }
}

}  // namespace

result<command_outcome> run_command(const std::vector<std::string>& command, const std::string& input,
                                    bool shows, const std::function<bool(const std::string&)>& hear) {
  ::signal(SIGPIPE, SIG_IGN);  // a command that reads none of its input
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  for (auto* p : {&in, &out, &err})
    if (!*p) return fail(p->error());
  const auto pid =
      start(command, in->read.get(), shows ? -1 : out->write.get(), shows ? -1 : err->write.get());
  if (!pid) return fail(pid.error());
  in->read.reset();
  out->write.reset();
  err->write.reset();
  command_outcome outcome;
  exchange(*pid, input, in->write, {{{&out->read, &outcome.out}, {&err->read, &outcome.err}}}, hear);
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string shell_quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return out + "'";
}

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string own_program() {
  std::error_code failed;
  auto path = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  constexpr std::string_view gone = " (deleted)";  // replaced by an upgrade: the new one is meant
  if (path.ends_with(gone)) path.resize(path.size() - gone.size());
  return path;
}

}  // namespace mooncaf::launch
