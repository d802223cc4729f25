#include "runtime/sched/admission_queue.hpp"

#include <algorithm>
#include <string>

namespace mooncaf {

namespace {

/// A line is taken to move a little slower than it did: a request that comes late has taken a place in vain.
constexpr double wait_margin = 1.1;

/// Of decoding, the late get less than half while others are in time.
constexpr double room_for_late = 0.4;

}  // namespace

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
  core_.came(request, now);
  if (core_.rule().policy != admission_policy::queue && !waits(request.id)) {
    out.push_back({request.id, core_.schedule(request, now)});
    return;
  }
  look(now);
  if (!waits(request.id)) {
    enqueue(request, request.arrival == time_point{} ? now : request.arrival);
    // Where nobody waits and there is room it is placed at once: no forecast is needed.
    if (size() > 1 || !core_.room_at(now).both()) plan(now);
  }
  admission_queue::advance(now, out);
  if (size() > options_.max_queued) refuse_last(now, out);
}

void admission_queue::enqueue(const schedule_request& request, time_point arrival) {
  const seat s{arrival, request.id};
  waiting w{
      request, {request.keys.begin(), request.keys.end()}, {request.avoid.begin(), request.avoid.end()}, {}};
  w.what.arrival = arrival;
  if (w.what.ttft_slo <= duration{}) w.what.ttft_slo = core_.options().ttft_slo;
  lines_[request.priority].emplace(s, std::move(w));
  where_.emplace(request.id, position{request.priority, s, place::in_line});
}

void admission_queue::foresee(waiting& w, time_point now) {
  if (!w.ahead) w.ahead = core_.foresee(w.view(), now).value_or(request_forecast{});
}

void admission_queue::look(time_point now) {
  pace_.look(now, size() > 0);
  const auto& cluster = core_.cluster();
  pace_.serve(cluster.prefill().live().size(), cluster.decode().live().size());
}

double admission_queue::left(const waiting& w, time_point now) const noexcept {
  return to_seconds(w.what.ttft_slo - (now - w.what.arrival));
}

double admission_queue::begins_in(const waiting& w, double wait) const noexcept {
  return wait_margin * wait + core_.judge().prefill_margin() * (store_ + w.ahead->work.prefill);
}

bool admission_queue::is_in_time(const waiting& w, double wait, time_point now) const noexcept {
  return w.what.resumed || !w.ahead || (w.ahead->keeps_tbt && begins_in(w, wait) <= left(w, now));
}

/// Even the next place would be too late for it, or decoding too slow if it were alone there.
bool admission_queue::hopeless(const waiting& w, time_point now) const noexcept {
  if (w.what.resumed || !w.ahead) return false;
  return !w.ahead->keeps_tbt || core_.judge().prefill_error() * w.ahead->work.prefill > left(w, now);
}

void admission_queue::stand_by(line& from, line::iterator who) {
  where_.at(who->second.what.id).is = place::by;
  by_.insert(from.extract(who));
}

/// @cost O(waiting × log waiting)
void admission_queue::plan(time_point now) {
  for (auto i = by_.begin(); i != by_.end();) {
    const auto at = i++;
    if (hopeless(at->second, now)) continue;
    auto& is = where_.at(at->second.what.id);
    is.is = place::in_line;
    lines_[is.priority].insert(by_.extract(at));
  }
  using member = std::tuple<rank, line*, line::iterator>;
  std::vector<member> order;
  for (auto& [priority, l] : lines_) {
    for (auto i = l.begin(); i != l.end(); ++i) {
      foresee(i->second, now);
      i->second.cost = pace_.cost(i->second.ahead->work);
      order.emplace_back(rank_of(priority, i->first, now), &l, i);
    }
  }
  std::ranges::sort(order, {}, [](const member& m) { return std::get<0>(m); });
  // The dearest first; of the least urgent class, since no request stands by for one of a lower class.
  const auto cheaper = [](const member& a, const member& b) {
    const auto key = [](const member& m) {
      const auto& w = std::get<2>(m)->second;
      return std::tuple{w.what.priority, w.cost, std::get<0>(m)};
    };
    return key(a) < key(b);
  };
  std::vector<member> kept;  // a heap
  double wait = 0;
  for (const auto& m : order) {
    auto& w = std::get<2>(m)->second;
    if (hopeless(w, now)) {
      stand_by(*std::get<1>(m), std::get<2>(m));
      continue;
    }
    const bool late = !is_in_time(w, wait, now);
    wait += w.cost;
    if (!w.what.resumed) kept.push_back(m), std::ranges::push_heap(kept, cheaper);
    if (!late) continue;
    std::ranges::pop_heap(kept, cheaper);
    const auto [_, from, dearest] = kept.back();
    kept.pop_back();
    wait -= dearest->second.cost;
    stand_by(*from, dearest);
  }
  std::erase_if(lines_, [](const auto& l) { return l.second.empty(); });
}

void admission_queue::advance(time_point now, std::vector<decision>& out) {
  if (core_.rule().policy != admission_policy::queue) return decide_all(now, out);
  look(now);
  give_up_late(now, out);
  while (size() > 0) {
    const auto room = core_.room_at(now);
    pace_.blocked_by(room);
    if (!room.both() || !place_first(now, out)) return;
  }
}

/// Another rule has come into force while requests waited: it places or refuses each of them, in their order.
void admission_queue::decide_all(time_point now, std::vector<decision>& out) {
  while (size() > 0) {
    const auto& from = lines_.empty() ? by_ : *first_line(now);
    const auto& next = from.begin()->second;
    const auto id = next.what.id;
    auto outcome = core_.schedule(next.view(), now);
    admission_queue::withdraw(id);
    out.push_back({id, std::move(outcome)});
  }
}

/// A place that is given to a request that is late is not there for the next one that could be in time:
/// while such come, the late get what would be idle and no more.
bool admission_queue::spares_room(time_point now) const {
  return serves_in_time(now) && !core_.prefill_is_idle(now);
}

/// @returns whether the request that is first left the line, one way or another.
bool admission_queue::place_first(time_point now, std::vector<decision>& out) {
  if (lines_.empty()) plan(now);
  while (!lines_.empty()) {
    auto& first = *first_line(now);
    if (is_in_time(first.begin()->second, 0, now)) break;
    stand_by(first, first.begin());
    if (first.empty()) std::erase_if(lines_, [](const auto& l) { return l.second.empty(); });
  }
  const bool in_line = !lines_.empty();
  if (!in_line && spares_room(now)) return false;
  auto& from = in_line ? *first_line(now) : by_;
  const auto& next = from.begin()->second;
  // Requests that are late anyway fill the batches, where no other is there for whom that is too slow.
  const double tbt_room = in_line ? 1 : serves_in_time(now) ? room_for_late : 1e6;
  auto outcome = core_.schedule(next.view(), now, tbt_room);
  if (!outcome && outcome.error().stage == reject_stage::queue) {
    pace_.blocked_by({true, false});
    foresee(from.begin()->second, now);
    return false;
  }
  if (outcome) {
    places_.left(now);
    learn(next, *outcome, now);
    share_in_time_ += ((in_line ? 1 : 0) - share_in_time_) / 16;
    if (in_line) in_time_at_ = now;
  }
  const auto id = next.what.id;
  admission_queue::withdraw(id);
  out.push_back({id, std::move(outcome)});
  return true;
}

void admission_queue::learn(const waiting& w, const placement& where, time_point now) {
  if (!w.ahead) return;
  pace_.placed(w.ahead->work);
  const auto begins = to_seconds(where.predicted_ttft - (now - w.what.arrival)) - w.ahead->work.prefill;
  store_ += (std::max(begins, 0.0) - store_) / 16;
}

/// Requests that are past twice their SLO leave while most places go to others that are in time, and one of
/// those waits: they would wait for as long as the overload lasts. Where all are late nobody is refused: it makes
/// none of them come in time.
void admission_queue::give_up_late(time_point now, std::vector<decision>& out) {
  if (lines_.empty() || share_in_time_ < 0.5 || now - in_time_at_ >= core_.options().ttft_slo) return;
  while (!by_.empty()) {
    const auto& w = by_.begin()->second;
    const auto waited = now - w.what.arrival;
    if (waited < 2 * w.what.ttft_slo || w.what.resumed) return;
    const auto id = w.what.id;
    ++shed_;
    rejection late{{ec::overloaded, "waited " + std::to_string(waited.count() / 1'000'000) +
                                        " ms, twice its TTFT SLO, while requests that can keep theirs take "
                                        "the places"},
                   places_.refuse(now),
                   reject_stage::placement};
    admission_queue::withdraw(id);
    out.push_back({id, tl::unexpected(std::move(late))});
  }
}

bool admission_queue::withdraw(request_id id) {
  const auto i = where_.find(id);
  if (i == where_.end()) return false;
  const auto& [priority, s, is] = i->second;
  if (is == place::by) {
    by_.erase(s);
  } else {
    const auto l = lines_.find(priority);
    l->second.erase(s);
    if (l->second.empty()) lines_.erase(l);
  }
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
  const auto key = [&](const position& p) { return std::pair{p.is, rank_of(p.priority, p.at, now)}; };
  const auto mine = key(own->second);
  return static_cast<std::size_t>(
      std::ranges::count_if(where_, [&](const auto& other) { return key(other.second) < mine; }));
}

void admission_queue::refuse_last(time_point now, std::vector<decision>& out) {
  const auto& last = by_.empty() ? *last_line(now) : by_;
  const auto id = last.rbegin()->second.what.id;
  admission_queue::withdraw(id);
  ++refused_;
  rejection full{{ec::overloaded, "the queue is full: " + std::to_string(options_.max_queued) +
                                      " requests that are more urgent wait (max-queued)"},
                 places_.refuse(now),
                 reject_stage::placement};
  out.push_back({id, tl::unexpected(std::move(full))});
}

}  // namespace mooncaf
