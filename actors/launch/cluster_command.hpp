#pragma once
// `mooncaf up FILE` and its companions; `mooncaf agent` on each host.

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/command_line.hpp"
#include "runtime/base/result.hpp"
#include "runtime/launch/launch_core.hpp"
#include "runtime/launch/launch_plan.hpp"
#include "runtime/sim/cli/commands.hpp"

namespace mooncaf::launch {

/// Their names.
std::span<const std::string_view> command_names();
bool is_command(std::string_view word);
/// @param args  the command's name and its arguments. @returns the process's exit status: 0, 1 when it
/// failed, 2 when it was called wrongly.
int run_command(std::span<const std::string> args, const sim::console& io);

// Each gets the arguments behind its name.
int up_command(std::span<const std::string> args, const sim::console& io);
int status_command(std::span<const std::string> args, const sim::console& io);
int logs_command(std::span<const std::string> args, const sim::console& io);
int drain_command(std::span<const std::string> args, const sim::console& io);
int stop_command(std::span<const std::string> args, const sim::console& io);
int restart_command(std::span<const std::string> args, const sim::console& io);
int scale_command(std::span<const std::string> args, const sim::console& io);
int weights_command(std::span<const std::string> args, const sim::console& io);
int rotate_secret_command(std::span<const std::string> args, const sim::console& io);
/// The other commands run this one on each host.
int agent_command(std::span<const std::string> args, const sim::console& io);

int complain(const sim::console& io, const error& why, int status);

/// A process as its host's agent tells.
struct node_state {
  std::string phase, last_end;
  int pid = 0;
  std::uint32_t starts = 0;
  bool loops = false;
  std::int64_t since = 0;  ///< Unix time
  std::string conductor;   ///< the one that it obeys
};
using host_state = std::map<std::string, node_state>;

/// What a host is asked to run.
struct host_order {
  node_texts nodes;                    ///< these processes and no others; none ends the agent, too
  bool gateways = false;               ///< wait until the gateways answer
  std::vector<std::string> restart{};  ///< those of the nodes that get a new process in any case
  bool keep = false;                   ///< the run folder stays when nothing runs: its logs are wanted
};

/// A cluster of a file, and the way to its hosts. Hosts are asked at the same time where several are.
class cluster_access {
 public:
  /// @error as `read_cluster` and `plan_launch`; `ec::io_error` if the file cannot be read.
  static result<cluster_access> open(const std::string& file);

  const launch_plan& plan() const { return plan_; }
  const std::string& file() const { return file_; }
  /// The host that runs a node. @error `ec::not_found` names those that there are.
  result<std::size_t> host_of(const std::string& node) const;

  result<host_facts> examine(std::size_t host) const;
  /// Makes the order true, and waits until it is.
  result<void> carry(std::size_t host, const host_order& order) const;
  /// Lets the host offer its model, until so many fetches have ended. @returns HOST:PORT of the offer
  result<std::string> offer(std::size_t host, std::size_t fetches) const;
  /// Brings the host its model. @param offers  of hosts that have it. @param say  is told how far it is, by this thread, and says whether to go on
  result<void> fetch(std::size_t host, const std::vector<std::string>& offers,
                     const std::function<bool(const std::string&)>& say) const;
  /// Empty where no agent runs.
  result<host_state> state(std::size_t host) const;
  /// Shows logs as they are on the host. @param node  empty: all of them
  result<void> show_logs(std::size_t host, const std::string& node, bool follow) const;
  /// The cluster's secrets, a line each: of the file that the operator names, or of one that is made at the first use
  /// and kept until the cluster is stopped. @error as `secret_file::read`
  result<std::string> secrets() const;
  /// Hands a host's processes other secrets, which they use from then on. @error `ec::not_found`: nothing runs there
  result<void> hand_secrets(std::size_t host, const std::string& lines) const;
  /// Keeps them where `secrets` reads them.
  result<void> keep_secrets(const std::string& lines) const;
  /// Whether the operator's machine keeps something of it: it has been up.
  bool known() const;
  /// Ends what the operator's machine keeps of a cluster that was stopped.
  void forget() const;

  /// "HOST (ssh DESTINATION)", for messages.
  std::string label(std::size_t host) const;

 private:
  cluster_access() = default;
  std::vector<std::string> command(std::size_t host, const std::vector<std::string>& words) const;
  result<std::string> ask(std::size_t host, const std::string& verb, const std::string& input,
                          const std::function<bool(const std::string&)>& hear = {}) const;

  cluster_spec spec_;
  launch_plan plan_;
  std::string file_;
  std::string secret_file_;  ///< that is made where the file names none
};

}  // namespace mooncaf::launch
