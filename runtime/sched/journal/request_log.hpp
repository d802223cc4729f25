#pragma once
// The fate of every request of a journal, and the reasons for one of them.

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sched/journal/explain.hpp"
#include "runtime/sched/journal/replay.hpp"

namespace mooncaf::journal {

/// @thread  One.
class request_log final : public replay_watcher {
 public:
  /// @param explained  the request to be explained: its id, or "#N" for the N-th that asked; empty: none.
  explicit request_log(std::string explained) : explained_(std::move(explained)) {}

  void asks(std::uint64_t number, const schedule_request& request, time_point now) override;
  void waits(const conductor_core& core, const admission_queue& queue, request_id id,
             time_point now) override;
  void weighs(const conductor_core& core, const schedule_request& request, time_point now) override;
  void decided(const decision& d, time_point now) override;
  void ended(request_id id, request_end how) override;

  /// A line for each request, in the order in which they asked: number, id, decision, the wait for it, and
  /// the end unless that is an answer's.
  std::vector<std::string> lines() const;
  /// Why the request that was to be explained waited, and why it went where it did or was refused; and a line
  /// for each other try of it. Empty: there is no such request.
  std::string why() const;
  /// The id of its try; nothing: there is no such request.
  std::optional<request_id> explained() const;

 private:
  struct entry {
    std::uint64_t number = 0;
    request_id id;
    time_point asked, decided;
    std::string decision;  ///< empty: it waits
    bool refused = false;  ///< its end, which gateways tell, too, adds nothing
    std::string end;
  };
  /// About the request that is to be explained.
  struct reasons {
    std::size_t entry = 0;
    std::string wait;
    explanation weighed;
    bool was_weighed = false;
    std::string text;
  };

  entry* find(request_id id);
  bool is_explained(request_id id) const;
  std::string line_of(const entry& e) const;

  std::string explained_;
  std::vector<entry> all_;
  std::unordered_map<request_id, std::size_t> latest_;  ///< in `all_`
  std::optional<reasons> why_;
};

}  // namespace mooncaf::journal
