#pragma once
// The folder of a cluster's host: what shall run there, what runs, logs and secrets.

#include <string>

#include "runtime/base/result.hpp"

namespace mooncaf::launch {

/// A process by id and start time: an id that was given to another process later is not it.
struct process_mark {
  int pid = 0;
  unsigned long long start = 0;  ///< ticks since the machine's boot
};

/// The process's mark as the kernel tells it. @error `ec::not_found` if it does not run.
result<process_mark> mark_of(int pid);

class run_folder {
 public:
  /// @param of  "CLUSTER/HOST". @error `ec::invalid_argument`: not of that form; `ec::not_found`: no home.
  static result<run_folder> of(const std::string& of);
  /// $XDG_STATE_HOME/mooncaf, by default ~/.local/state/mooncaf.
  static result<std::string> root();

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string log(const std::string& node) const { return file(node + ".log"); }

  /// Makes it and its parents, for this user alone.
  result<void> make() const;
  /// Removes it, and its cluster's folder if that is empty then.
  void remove() const;
  /// Whole or not at all, mode 0600.
  result<void> write(const std::string& name, const std::string& text) const;
  /// Empty if there is none.
  std::string read(const std::string& name) const;

  /// The resident agent's process id; 0: none runs.
  int agent() const;
  /// Notes that this process is it from now on.
  result<void> set_agent(int pid) const;

 private:
  explicit run_folder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace mooncaf::launch
