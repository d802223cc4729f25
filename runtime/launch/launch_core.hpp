#pragma once
// Starts a cluster, or leaves everything as it was.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/launch/launch_plan.hpp"

namespace mooncaf::launch {

/// A request to a host.
enum class launch_step : std::uint8_t {
  examine,  ///< tell the facts that the plan needs
  carry,    ///< run these processes and no others, and answer when all are ready
  restore,  ///< the same, as they were before: `carry` went wrong somewhere
  fetch,    ///< get the model's files from hosts that have them
};

struct launch_action {
  launch_step step = launch_step::examine;
  std::size_t host = 0;  ///< in `launch_plan::hosts`
  node_texts nodes;
  bool last = false;                   ///< the cluster is whole after it: gateways of this host answer, too
  std::vector<std::size_t> sources{};  ///< of a fetch: hosts that have the model
};

/// A problem with the host and the step that had it.
struct launch_problem {
  std::size_t host = 0;
  std::string what;
};

/// State machine: actions go out in batches, each of which is answered for every one of its hosts before the next
/// is made.
///
///   examine all --> fetch, hosts without the model --> carry stage 0 --> … --> carry stage 3 --> done
///        | lacks       | failed                             | failed
///        v             v                                    v
///      ended         ended                          restore all that were asked to carry --> ended
///
/// With `keep_going` a host with a problem is left as it is, and the others go on; not without the conductor.
class launch_core {
 public:
  /// @param version  which every host must have.
  launch_core(const launch_plan& plan, std::string version, bool keep_going);

  std::vector<launch_action> begin();

  /// Answers one action of the batch. @returns the next batch once all are answered; empty at the end.
  std::vector<launch_action> examined(std::size_t host, const result<host_facts>& facts);
  std::vector<launch_action> fetched(std::size_t host, const result<void>& outcome);
  std::vector<launch_action> carried(std::size_t host, const result<void>& outcome);
  std::vector<launch_action> restored(std::size_t host, const result<void>& outcome);

  /// The operator has changed their mind: after this batch everything is put back.
  void cancel() { cancelled_ = true; }

  bool done() const { return open_ == 0; }
  const std::vector<launch_problem>& problems() const { return problems_; }
  /// Whether every host that was asked to carry something is as it was again; meant for a cluster that does not run.
  bool put_back() const { return stuck_ == 0; }
  /// Whether the cluster runs; with `keep_going` perhaps not all of it.
  bool runs() const { return done() && !gave_up_; }

 private:
  struct host_state {
    node_texts before;
    bool touched = false;
    bool lacks_model = false;
    bool has_whole = false;  ///< of the model
    bool lost = false;       ///< has a problem: nothing is asked of it any more
  };

  void note(std::size_t host, std::string what);
  std::vector<launch_action> answered();
  std::vector<launch_action> fetches();
  std::vector<launch_action> next_stage();
  std::vector<launch_action> give_up();
  node_texts wish(std::size_t host, std::uint32_t stage) const;

  const launch_plan& plan_;
  std::string version_;
  bool keep_going_;
  std::vector<host_state> hosts_;
  std::vector<launch_problem> problems_;
  std::size_t open_ = 0;     ///< actions without an answer
  std::size_t stuck_ = 0;    ///< hosts that could not be put back
  std::uint32_t stage_ = 0;  ///< the next one
  bool examined_ = false;    ///< all have been
  bool gave_up_ = false, cancelled_ = false;
};

}  // namespace mooncaf::launch
