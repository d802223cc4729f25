#pragma once
// What people see of a cluster: its members as they reported last, and recent requests. Decides nothing.

#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/request/messages.hpp"
#include "runtime/request/status.hpp"

namespace mooncaf {

/// @thread  Owned by the conductor; not synchronised.
class cluster_board {
 public:
  /// @param who  with id, name, roles, host, and the workers' ids and roles.
  void joined(member_status who, time_point now);
  void left(node_id node) { members_.erase(node); }
  /// Of a member.
  void reported(const node_report& report, time_point now);
  void placed(const schedule_job& job, const placement_msg& where);
  /// A step of a request, which need not be among the recent ones.
  void happened(const request_event& e);

  /// Members with their latest reports.
  std::vector<member_status> members(time_point now) const;
  std::vector<recent_request> recent() const { return {recent_.begin(), recent_.end()}; }

 private:
  struct member {
    member_status shown;
    time_point seen{};
  };
  std::unordered_map<node_id, member> members_;
  std::deque<recent_request> recent_;  ///< newest first
};

}  // namespace mooncaf
