#include "runtime/sched/admission_queue.hpp"

#include <algorithm>
#include <string>

namespace mooncaf {

schedule_request admission_queue::waiting::view() const {
  auto viewed = what;
  viewed.keys = keys;
  viewed.avoid = avoid;
  return viewed;
}

void admission_queue::submit(const schedule_request& request, time_point now, std::vector<decision>& out) {
  if (request.gateway && !core_.cluster().has_node(request.gateway)) {
    out.push_back({request.id, tl::unexpected(rejection{
                                   {ec::unavailable, "the gateway is no member of the cluster at present"},
                                   std::chrono::seconds(1)})});
    return;
  }
  if (core_.options().admission != admission_policy::queue) {
    out.push_back({request.id, core_.schedule(request, now)});
    return;
  }
  if (!waits(request.id)) {
    enqueue(request, request.arrival == time_point{} ? now : request.arrival);
  }
  admission_queue::advance(now, out);
  if (size() > options_.max_queued) refuse_last(now, out);
}

void admission_queue::enqueue(const schedule_request& request, time_point arrival) {
  const seat s{arrival, request.id};
  waiting w{
      request, {request.keys.begin(), request.keys.end()}, {request.avoid.begin(), request.avoid.end()}};
  w.what.arrival = arrival;
  lines_[request.priority].emplace(s, std::move(w));
  where_.emplace(request.id, std::pair{request.priority, s});
}

void admission_queue::advance(time_point now, std::vector<decision>& out) {
  while (size() > 0 && core_.room_at(now).both()) {
    auto& first = *first_line(now);
    const auto& next = first.begin()->second;
    auto outcome = core_.schedule(next.view(), now);
    if (!outcome && outcome.error().stage == reject_stage::queue) return;
    if (outcome) places_.left(now);
    const auto id = next.what.id;
    admission_queue::withdraw(id);
    out.push_back({id, std::move(outcome)});
  }
}

bool admission_queue::withdraw(request_id id) {
  const auto i = where_.find(id);
  if (i == where_.end()) return false;
  const auto& [priority, s] = i->second;
  const auto l = lines_.find(priority);
  l->second.erase(s);
  if (l->second.empty()) lines_.erase(l);
  where_.erase(i);
  return true;
}

admission_queue::line* admission_queue::first_line(time_point now) {
  return &std::ranges::min_element(lines_, {}, [&](const auto& l) {
            return rank_of(l.first, l.second.begin()->first, now);
          })->second;
}

admission_queue::line* admission_queue::last_line(time_point now) {
  return &std::ranges::max_element(lines_, {}, [&](const auto& l) {
            return rank_of(l.first, l.second.rbegin()->first, now);
          })->second;
}

std::size_t admission_queue::before(request_id id, time_point now) const {
  const auto own = where_.find(id);
  if (own == where_.end()) return 0;
  const auto mine = rank_of(own->second.first, own->second.second, now);
  return static_cast<std::size_t>(std::ranges::count_if(where_, [&](const auto& other) {
    return rank_of(other.second.first, other.second.second, now) < mine;
  }));
}

void admission_queue::refuse_last(time_point now, std::vector<decision>& out) {
  const auto id = last_line(now)->rbegin()->second.what.id;
  admission_queue::withdraw(id);
  ++refused_;
  rejection full{{ec::overloaded, "the queue is full: " + std::to_string(options_.max_queued) +
                                      " requests that are more urgent wait (max-queued)"},
                 places_.refuse(now),
                 reject_stage::placement};
  out.push_back({id, tl::unexpected(std::move(full))});
}

}  // namespace mooncaf
