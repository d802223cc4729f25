#pragma once
// Starts the operator's program when the number of nodes should change (`--scale-command`).

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// One run at a time. What is told meanwhile comes next, the latest alone; a run that fails is repeated after a pause
/// that doubles up to a minute, with the latest that was told.
///
///   COMMAND prefill=3 decode=2        status 0: it is done, or under way
///
/// @thread  `tell` from any thread; the program is waited for in one of its own.
class scale_hook {
 public:
  /// @param command  words with spaces between them: the program and its first arguments.
  /// @param pause    before a failed run is repeated.
  explicit scale_hook(std::string_view command, duration pause = std::chrono::seconds(1));
  /// Leaves a program that runs to itself.
  ~scale_hook();
  scale_hook(const scale_hook&) = delete;
  /// Whether there is such a program. @error `ec::not_found`, with what to do.
  static result<void> check(std::string_view command);
  scale_hook& operator=(const scale_hook&) = delete;

  /// @param counts  "prefill=3 decode=2". Returns at once.
  void tell(std::string counts);

 private:
  void keep();
  /// @returns its exit status, 128 + N after signal N, -1 if it did not start; nothing: this hook ends.
  std::optional<int> run(const std::string& counts);
  /// @returns whether this hook ends.
  bool wait(duration span);

  const std::vector<std::string> command_;
  const duration pause_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<std::string> told_;
  bool stopping_ = false;
  std::thread keeper_;
};

}  // namespace mooncaf
