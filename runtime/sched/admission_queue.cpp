#include "runtime/sched/admission_queue.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace mooncaf {

namespace {

/// A line is taken to move a little slower than it did: a request that comes late has taken a place in vain.
constexpr double wait_margin = 1.1;

/// Of decoding, the late get less than half while others are in time.
constexpr double room_for_late = 0.4;

/// The requests that would be in time so far, and which of them gives way if one more is to be.
class kept_requests {
 public:
  explicit kept_requests(const service_levels& levels) : levels_(levels) {}

  void add(waiting_request& w, std::size_t turn) {
    auto& own = by_class_[w.what.priority][w.what.share.owner];
    own.cost += w.cost;
    own.dearest.emplace_back(w.cost, turn, &w);
    std::ranges::push_heap(own.dearest);
  }
  /// Of the least urgent class, since no request stands by for one of a lower class. Not to be called if there is none.
  waiting_request& give_up_one() {
    const auto least_urgent = std::prev(by_class_.end());
    auto& owners = least_urgent->second;
    const auto had = [&](const auto& o) {
      return std::pair{levels_.level(o.first) + o.second.cost / levels_.weight(o.first), o.first};
    };
    const auto most = std::ranges::max_element(owners, {}, had);
    auto& own = most->second;
    std::ranges::pop_heap(own.dearest);
    const auto [cost, _, w] = own.dearest.back();
    own.dearest.pop_back();
    own.cost -= cost;
    if (own.dearest.empty()) owners.erase(most);
    if (owners.empty()) by_class_.erase(least_urgent);
    return *w;
  }

 private:
  struct of_owner {
    double cost = 0;
    std::vector<std::tuple<double, std::size_t, waiting_request*>> dearest;  // a heap
  };
  const service_levels& levels_;
  std::map<std::uint8_t, std::map<std::uint64_t, of_owner>> by_class_;
};

}  // namespace

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
  waiting_request w{
      request, {request.keys.begin(), request.keys.end()}, {request.avoid.begin(), request.avoid.end()}, {}};
  w.what.arrival = arrival;
  if (w.what.ttft_slo <= duration{}) w.what.ttft_slo = core_.options().ttft_slo;
  levels_.begins_to_wait(w.what.share);
  lines_[request.priority].put(all_.emplace(request.id, std::move(w)).first->second);
}

void admission_queue::foresee(waiting_request& w, time_point now) {
  if (!w.ahead) w.ahead = core_.foresee(w.view(), now).value_or(request_forecast{});
}

void admission_queue::look(time_point now) {
  pace_.look(now, size() > 0);
  const auto& cluster = core_.cluster();
  pace_.serve(cluster.prefill().live().size(), cluster.decode().live().size());
}

double admission_queue::left(const waiting_request& w, time_point now) const noexcept {
  return to_seconds(w.what.ttft_slo - (now - w.what.arrival));
}

double admission_queue::begins_in(const waiting_request& w, double wait) const noexcept {
  return wait_margin * wait + core_.judge().prefill_margin() * (store_ + w.ahead->work.prefill);
}

bool admission_queue::is_in_time(const waiting_request& w, double wait, time_point now) const noexcept {
  return w.what.resumed || !w.ahead || (w.ahead->keeps_tbt && begins_in(w, wait) <= left(w, now));
}

/// Even the next place would be too late for it, or decoding too slow if it were alone there.
bool admission_queue::hopeless(const waiting_request& w, time_point now) const noexcept {
  if (w.what.resumed || !w.ahead) return false;
  return !w.ahead->keeps_tbt || core_.judge().prefill_error() * w.ahead->work.prefill > left(w, now);
}

void admission_queue::stand_by(waiting_request& w) {
  line_of(w).take_out(w);
  by_.put(w);
  w.stands_by = true;
}

void admission_queue::forget_empty_lines() {
  std::erase_if(lines_, [](const auto& l) { return l.second.empty(); });
}

std::vector<waiting_request*> admission_queue::in_order(time_point now) const {
  std::vector<std::pair<rank, waiting_request*>> ranked;
  ranked.reserve(size());
  for (const auto& [priority, line] : lines_)
    for (const auto& [seat, w] : line.in_order(levels_)) ranked.emplace_back(rank_of(priority, seat, now), w);
  std::ranges::sort(ranked);
  std::vector<waiting_request*> out;
  out.reserve(ranked.size());
  for (const auto& [_, w] : ranked) out.push_back(w);
  return out;
}

/// @cost O(waiting × log waiting)
void admission_queue::plan(time_point now) {
  for (const auto& [_, w] : by_.in_order(levels_)) {
    if (hopeless(*w, now)) continue;
    by_.take_out(*w);
    lines_[w->what.priority].put(*w);
    w->stands_by = false;
  }
  for (const auto& [_, line] : lines_) {
    line.each([&](waiting_request& w) {
      foresee(w, now);
      w.cost = pace_.cost(w.ahead->work);
    });
  }
  kept_requests kept{levels_};
  double wait = 0;
  std::size_t turn = 0;
  for (auto* w : in_order(now)) {
    if (hopeless(*w, now)) {
      stand_by(*w);
      continue;
    }
    bool late = !is_in_time(*w, wait, now);
    wait += w->cost;
    if (!w->what.resumed) kept.add(*w, turn++);
    while (late) {
      auto& gives_way = kept.give_up_one();
      wait -= gives_way.cost;
      stand_by(gives_way);
      // One of another owner may be cheaper than it, and not enough.
      late = &gives_way != w && gives_way.cost < w->cost && !is_in_time(*w, wait - w->cost, now);
    }
  }
  forget_empty_lines();
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
    const auto& next = (lines_.empty() ? by_ : first_line(now)).next(levels_);
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
    auto& first = first_line(now).next(levels_);
    if (is_in_time(first, 0, now)) break;
    stand_by(first);
    forget_empty_lines();
  }
  const bool in_line = !lines_.empty();
  if (!in_line && spares_room(now)) return false;
  auto& next = (in_line ? first_line(now) : by_).next(levels_);
  // Requests that are late anyway fill the batches, where no other is there for whom that is too slow.
  const double tbt_room = in_line ? 1 : serves_in_time(now) ? room_for_late : 1e6;
  auto outcome = core_.schedule(next.view(), now, tbt_room);
  if (!outcome && outcome.error().stage == reject_stage::queue) {
    pace_.blocked_by({true, false});
    foresee(next, now);
    return false;
  }
  if (outcome) {
    places_.left(now);
    learn(next, *outcome, now);
    levels_.serve(next.what.share.owner, next.cost);
    share_in_time_ += ((in_line ? 1 : 0) - share_in_time_) / 16;
    if (in_line) in_time_at_ = now;
  }
  const auto id = next.what.id;
  admission_queue::withdraw(id);
  out.push_back({id, std::move(outcome)});
  return true;
}

void admission_queue::learn(const waiting_request& w, const placement& where, time_point now) {
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
    const auto& w = by_.earliest();
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
  const auto i = all_.find(id);
  if (i == all_.end()) return false;
  line_of(i->second).take_out(i->second);
  forget_empty_lines();
  levels_.ends_to_wait(i->second.what.share.owner);
  all_.erase(i);
  return true;
}

const waiting_line& admission_queue::first_line(time_point now) const {
  return std::ranges::min_element(lines_, {},
                                  [&](const auto& l) { return rank_of(l.first, l.second.first_seat(), now); })
      ->second;
}

const waiting_line& admission_queue::last_line(time_point now) const {
  return std::ranges::max_element(lines_, {},
                                  [&](const auto& l) { return rank_of(l.first, l.second.last_seat(), now); })
      ->second;
}

std::size_t admission_queue::before(request_id id, time_point now) const {
  const auto own = all_.find(id);
  if (own == all_.end()) return 0;
  auto order = in_order(now);
  for (const auto& [_, w] : by_.in_order(levels_)) order.push_back(w);
  return static_cast<std::size_t>(std::ranges::find(order, &own->second) - order.begin());
}

void admission_queue::refuse_last(time_point now, std::vector<decision>& out) {
  const auto id = (by_.empty() ? last_line(now) : by_).last(levels_).what.id;
  admission_queue::withdraw(id);
  ++refused_;
  rejection full{{ec::overloaded, "the queue is full: " + std::to_string(options_.max_queued) +
                                      " requests that are more urgent wait (max-queued)"},
                 places_.refuse(now),
                 reject_stage::placement};
  out.push_back({id, tl::unexpected(std::move(full))});
}

}  // namespace mooncaf
