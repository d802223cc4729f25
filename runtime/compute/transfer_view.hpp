#pragma once
// The data plane as the page and the metrics show it.

#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/request/messages.hpp"
#include "transport/stats.hpp"

namespace mooncaf {

class data_plane;
class link_book;

/// Bytes over every path and rail, and the expected cost of a path's next transfer.
transfer_report report_of(const data_plane& plane, const link_book& links, time_point now);

/// Logs changes of the rails since the last look. @thread  not synchronised
class rail_log {
 public:
  void look(std::vector<rail_stats> now);

 private:
  std::vector<rail_stats> seen_;
};

}  // namespace mooncaf
