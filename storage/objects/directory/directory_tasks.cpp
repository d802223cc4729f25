// Replicas that are copied or moved by those who hold the object: the part of `directory_core` that says who,
// and knows what became of it.
//
//   pending ── a holder of the object is told ──► processing ── it says so ──► success, failed
//      ▲                                              │
//      └──────────── its connection ends ─────────────┘  a few times, then failed

#include <algorithm>

#include "runtime/base/host_place.hpp"
#include "storage/objects/directory/directory_core.hpp"

namespace mooncaf {

namespace {
constexpr std::size_t open_max = 10'000, ended_max = 10'000;
constexpr auto time_limit = std::chrono::seconds(300);
constexpr int attempts_max = 3;
}  // namespace

std::optional<segment_view> directory_core::segment_named(std::string_view name) const {
  for (auto& s : table_.segments())
    if (s.name == name) return s;
  return std::nullopt;
}

bool directory_core::create_task(const session& from, byte_reader& in, time_point now,
                                 store_wire::frame& out) {
  auto order = store_wire::get_order(in);
  order.key = std::string{from.scope.inside(order.key, names_[0])};
  if (!in.ok() || in.left() != 0 || order.kind > task_kind::move) return false;
  const auto object = table_.look(order.key, now);
  const auto lies_in = [&](const std::string& segment) {
    const auto s = segment_named(segment);
    return s && std::any_of(object.places.begin(), object.places.end(),
                            [&](const auto& p) { return p.segment == s->id; });
  };
  const bool moves = order.kind == task_kind::move;
  auto code = object.code;
  if (code == store_code::ok &&
      (order.targets.empty() ||
       (moves &&
        (order.targets.size() != 1 || !lies_in(order.source) || order.source == order.targets.front())) ||
       !std::all_of(order.targets.begin(), order.targets.end(),
                    [&](const auto& target) { return segment_named(target).has_value(); })))
    code = store_code::invalid_parameters;
  if (code == store_code::ok && open_tasks_ >= open_max) code = store_code::too_many_tasks;
  const auto id = code == store_code::ok ? begin_task(order, now) : task_id{};
  out->put(static_cast<std::int32_t>(code));
  store_wire::put_task_id(*out, id);
  return true;
}

task_id directory_core::begin_task(task_order order, time_point now) {
  order.id = {incarnation_, next_task_++};
  auto& made = tasks_[order.id.low];
  made.order = std::move(order);
  made.created = made.updated = now;
  ++open_tasks_;
  // Targets where the object lies already are reached; a move to one only gives up the source.
  std::vector<std::string> fresh;
  for (const auto& target : made.order.targets) {
    const auto segment = segment_named(target);
    const auto places = table_.look(made.order.key, now).places;
    const bool there = segment && std::any_of(places.begin(), places.end(),
                                              [&](const auto& p) { return p.segment == segment->id; });
    if (!there && std::find(fresh.begin(), fresh.end(), target) == fresh.end()) fresh.push_back(target);
  }
  if (made.order.kind == task_kind::move && fresh.empty())
    if (const auto from = segment_named(made.order.source))
      table_.drop_replica(made.order.key, from->id, now);
  made.order.targets = std::move(fresh);
  const auto id = made.order.id;
  assign(made, now);
  return id;
}

/// Tells somebody who holds the object; of a move, the source if it is there.
void directory_core::assign(task& t, time_point now) {
  if (t.order.targets.empty()) return end_task(t, store_code::ok, now);
  t.updated = now;
  const auto seen = table_.look(t.order.key, now);
  if (seen.code != store_code::ok) return end_task(t, seen.code, now);
  if (seen.places.empty())
    return end_task(t, store_code::replica_not_ready, now);  // on SSD alone: nobody holds it
  auto by = seen.places.front().segment;
  if (const auto source = segment_named(t.order.source)) by = source->id;
  const auto holder = holders_.find(by);
  if (holder == holders_.end() || ++t.attempts > attempts_max)
    return end_task(t, store_code::directory_unreachable, now);
  t.status = task_status::processing;
  t.assigned_to = holder->second;
  write_entry(holder->second, store_wire::entry::task, by,
              [&](byte_writer& to) { store_wire::put_order(to, t.order); });
}

void directory_core::end_task(task& t, store_code code, time_point now) {
  t.status = code == store_code::ok ? task_status::success : task_status::failed;
  t.message = code == store_code::ok ? "Task completed successfully" : std::string{to_string(code)};
  t.updated = now;
  --open_tasks_;
  ended_tasks_.push_back(t.order.id.low);
  if (ended_tasks_.size() <= ended_max) return;
  tasks_.erase(ended_tasks_.front());
  ended_tasks_.pop_front();
}

bool directory_core::end_task(byte_reader& in, time_point now, store_wire::frame& out) {
  const auto id = store_wire::get_task_id(in);
  const auto code = as_store_code(in.get<std::int32_t>());
  if (!in.ok() || in.left() != 0) return false;
  const auto found = tasks_.find(id.low);
  const bool known =
      id.high == incarnation_ && found != tasks_.end() && found->second.status == task_status::processing;
  if (known) end_task(found->second, code, now);
  out->put(static_cast<std::int32_t>(known ? store_code::ok : store_code::task_not_found));
  return true;
}

bool directory_core::query_task(byte_reader& in, time_point now, store_wire::frame& out) const {
  const auto id = store_wire::get_task_id(in);
  if (!in.ok() || in.left() != 0) return false;
  const auto found = tasks_.find(id.low);
  const bool known = id.high == incarnation_ && found != tasks_.end();
  out->put(static_cast<std::int32_t>(known ? store_code::ok : store_code::task_not_found));
  task_view view;
  if (known) {
    const auto& t = found->second;
    view = {t.order.kind, t.status, now - t.created, now - t.updated, {incarnation_, t.assigned_to},
            t.message};
  }
  store_wire::put_task(*out, view);
  return true;
}

/// A holder is lost: another one may do what it was told.
void directory_core::reassign_tasks(std::uint64_t of_session, time_point now) {
  std::vector<std::uint64_t> orphans;
  for (const auto& [id, t] : tasks_)
    if (t.status == task_status::processing && t.assigned_to == of_session) orphans.push_back(id);
  for (const auto id : orphans) assign(tasks_.at(id), now);
}

/// What is read so often that one host is too few gets a replica on another one: as far from those that have
/// it as can be, and among equals where most is free.
void directory_core::copy_for_readers(time_point now) {
  for (auto& key : table_.take_hot()) {
    const auto seen = table_.look(key, now);
    const auto all = table_.segments();
    const auto host_of = [&](std::uint32_t id) {
      const auto s = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.id == id; });
      return s == all.end() ? std::string{} : s->host;
    };
    const segment_view* best = nullptr;
    std::size_t best_close = on_one_host;
    for (const auto& s : all) {
      std::size_t close = 0;
      for (const auto& p : seen.places) close = std::max(close, closeness(host_of(p.segment), s.host));
      if (close == on_one_host || s.draining || s.free_bytes < seen.size) continue;
      if (best && (close > best_close || (close == best_close && s.free_bytes <= best->free_bytes))) continue;
      best = &s;
      best_close = close;
    }
    if (seen.code != store_code::ok || !best || open_tasks_ >= open_max) continue;
    task_order order;
    order.for_readers = true;
    order.key = std::move(key);
    order.targets = {best->name};
    begin_task(std::move(order), now);
  }
}

void directory_core::tick_tasks(time_point now) {
  copy_for_readers(now);
  if (open_tasks_ == 0) return;
  std::vector<std::uint64_t> late;
  for (const auto& [id, t] : tasks_)
    if (t.status == task_status::processing && now - t.updated > time_limit) late.push_back(id);
  for (const auto id : late) end_task(tasks_.at(id), store_code::timed_out, now);
}

}  // namespace mooncaf
