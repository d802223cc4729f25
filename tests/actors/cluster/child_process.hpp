#pragma once
// A peer process that tests start, stop, continue and kill.

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

extern char** environ;

namespace mooncaf::testing {

class child_process {
 public:
  /// Starts the peer and waits until it listens. @param port  0: any
  child_process(std::uint16_t port, const std::string& secret) {
    int out[2];
    if (pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    auto number = std::to_string(port);
    std::string path = MOONCAF_PEER_PROCESS;
    auto secret_copy = secret;
    std::vector<char*> args{path.data(), number.data()};
    if (!secret.empty()) args.push_back(secret_copy.data());
    args.push_back(nullptr);
    const int status = posix_spawn(&pid_, path.c_str(), &actions, nullptr, args.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    if (status != 0) throw std::runtime_error("cannot start " + path);
    std::string line;
    char c = 0;
    pollfd entry{out[0], POLLIN, 0};
    while (poll(&entry, 1, 20'000) == 1 && read(out[0], &c, 1) == 1 && c != '\n') line += c;
    close(out[0]);
    if (line.empty()) throw std::runtime_error("the peer process does not listen");
    port_ = static_cast<std::uint16_t>(std::stoi(line));
  }
  ~child_process() { end(SIGKILL); }
  child_process(const child_process&) = delete;

  std::uint16_t port() const { return port_; }
  void signal(int which) { kill(pid_, which); }
  /// Signals and waits for the end. @returns the wait status.
  int end(int which) {
    if (pid_ <= 0) return 0;
    kill(pid_, which);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace mooncaf::testing
