#include "runtime/sched/admission_queue.hpp"

#include <string>
#include <tuple>

namespace mooncaf {

schedule_request admission_queue::waiting::view() const {
  auto viewed = what;
  viewed.keys = keys;
  viewed.avoid = avoid;
  return viewed;
}

void admission_queue::submit(const schedule_request& request, time_point now, std::vector<decision>& out) {
  if (core_.options().admission != admission_policy::queue) {
    out.push_back({request.id, core_.schedule(request, now)});
    return;
  }
  if (!waits(request.id)) {
    enqueue(request, request.arrival == time_point{} ? now : request.arrival);
  }
  advance(now, out);
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
  while (size() > 0 && core_.has_room(now)) {
    auto& first = *first_line(now);
    const auto& next = first.begin()->second;
    auto outcome = core_.schedule(next.view(), now);
    if (!outcome && outcome.error().stage == reject_stage::queue) return;
    if (outcome) places_.left(now);
    const auto id = next.what.id;
    withdraw(id);
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
  const auto key = [&](auto& l) {
    return std::tuple{class_of(l.first, l.second.begin()->first, now), l.second.begin()->first};
  };
  auto best = lines_.begin();
  for (auto l = std::next(best); l != lines_.end(); ++l) {
    if (key(*l) < key(*best)) best = l;
  }
  return &best->second;
}

admission_queue::line* admission_queue::last_line(time_point now) {
  const auto key = [&](auto& l) {
    return std::tuple{class_of(l.first, l.second.rbegin()->first, now), l.second.rbegin()->first};
  };
  auto worst = lines_.begin();
  for (auto l = std::next(worst); l != lines_.end(); ++l) {
    if (key(*worst) < key(*l)) worst = l;
  }
  return &worst->second;
}

void admission_queue::refuse_last(time_point now, std::vector<decision>& out) {
  const auto id = last_line(now)->rbegin()->second.what.id;
  withdraw(id);
  ++refused_;
  rejection full{{ec::overloaded, "the queue is full: " + std::to_string(options_.max_queued) +
                                      " requests that are more urgent wait (max-queued)"},
                 places_.refuse(now),
                 reject_stage::placement};
  out.push_back({id, tl::unexpected(std::move(full))});
}

}  // namespace mooncaf
