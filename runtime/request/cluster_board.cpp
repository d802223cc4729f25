#include "runtime/request/cluster_board.hpp"

#include <algorithm>

namespace mooncaf {

namespace {

constexpr std::size_t recent_limit = 64;

}  // namespace

void cluster_board::joined(member_status who, time_point now) {
  who.latest.node = who.id;
  const auto id = who.id;
  members_[id] = {std::move(who), now};
}

void cluster_board::reported(const node_report& report, time_point now) {
  auto& m = members_.at(report.node);
  m.shown.latest = report;
  m.seen = now;
}

void cluster_board::placed(const schedule_job& job, const placement_msg& where) {
  recent_request r;
  r.id = job.id.request;
  r.prefill = where.prefill;
  r.decode = where.decode;
  r.source = where.source;
  r.prompt_tokens = job.prompt_tokens;
  r.predicted_ttft_ns = where.predicted_ttft_ns;
  recent_.push_front(r);
  if (recent_.size() > recent_limit) recent_.pop_back();
}

void cluster_board::happened(const request_event& e) {
  const auto entry = std::ranges::find(recent_, e.id.request, &recent_request::id);
  if (entry == recent_.end()) return;
  if (e.stage == request_stage::first_token) {
    entry->ttft_ns = e.ttft_ns;
    entry->compute_ns = e.compute_ns;
    entry->cached_tokens = e.cached_tokens;
  } else {
    entry->output_tokens = e.output_tokens;
  }
}

std::vector<member_status> cluster_board::members(time_point now) const {
  std::vector<member_status> out;
  for (const auto& [id, m] : members_) out.emplace_back(m.shown).silent_ns = (now - m.seen).count();
  return out;
}

}  // namespace mooncaf
