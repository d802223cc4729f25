#include "runtime/compute/transfer_view.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/log/log.hpp"
#include "runtime/sched/link_book.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

namespace {

std::int64_t mean_ns(const latency_summary& l) {
  return l.count > 0 ? static_cast<std::int64_t>(l.sum_seconds * 1e9 / static_cast<double>(l.count)) : 0;
}

path_status as_message(const path_stats& s) {
  path_status out;
  out.peer = s.peer;
  out.path = std::string{to_string(s.path)};
  out.bytes = s.bytes();
  out.transfers = s.transfers;
  out.retries = s.retries;
  out.checksum_failures = s.checksum_failures;
  out.control_messages = s.control_messages;
  out.slices = s.slices;
  out.failures = s.failures;
  out.latency_ns = mean_ns(s.latency);
  return out;
}

rail_status as_message(const rail_stats& s) {
  rail_status out;
  out.name = s.name;
  out.address = s.address;
  out.up = s.up;
  out.bytes = s.bytes_written + s.bytes_read;
  out.slices = s.slices;
  out.retries = s.retries;
  out.failures = s.failures;
  out.latency_ns = mean_ns(s.latency);
  out.last_error = s.last_error;
  return out;
}

}  // namespace

transfer_report report_of(const data_plane& plane, const link_book& links, time_point now) {
  transfer_report out;
  const auto learned = links.view(now);
  for (const auto& s : plane.stats()) {
    auto path = as_message(s);
    const auto price = std::ranges::find_if(learned, [&](const link_view& v) {
      return v.peer == s.peer && v.path == static_cast<std::uint8_t>(s.path);
    });
    if (price != learned.end()) {
      path.learned_bytes_per_s = static_cast<std::uint64_t>(price->bytes_per_s);
      path.learned_latency_ns = price->latency.count();
      path.preferred = plane.preferred_path(s.peer) == s.path;
    }
    out.paths.push_back(std::move(path));
  }
  for (const auto& s : plane.rails()) out.rails.push_back(as_message(s));
  return out;
}

void rail_log::look(std::vector<rail_stats> now) {
  for (std::size_t i = 0; i < seen_.size() && i < now.size(); ++i) {
    const auto& r = now[i];
    if (r.failures > seen_[i].failures)
      log_warn("rdma rail broke",
               {{"rail", r.name}, {"times", std::to_string(r.failures)}, {"problem", r.last_error}});
    if (r.up != seen_[i].up) log_warn(r.up ? "rdma rail is up" : "rdma rail is down", {{"rail", r.name}});
  }
  seen_ = std::move(now);
}

}  // namespace mooncaf
