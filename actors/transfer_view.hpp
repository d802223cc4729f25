#pragma once
// The data plane as the page and the metrics show it.

#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/request/messages.hpp"
#include "transport/stats.hpp"

namespace mooncaf {

class data_plane;
class link_book;

/// What moved over every path and rail, and what a path's next transfer is expected to cost.
transfer_report report_of(const data_plane& plane, const link_book& links, time_point now);

/// Writes what happened to the rails since the last look to the log. @thread  not synchronised
class rail_log {
 public:
  void look(std::vector<rail_stats> now);

 private:
  std::vector<rail_stats> seen_;
};

}  // namespace mooncaf
