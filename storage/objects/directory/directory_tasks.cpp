#include "storage/objects/directory/directory_tasks.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/host_place.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t open_max = 10'000, ended_max = 10'000;
constexpr auto time_limit = std::chrono::seconds(300);
constexpr int attempts_max = 3;

bool lies_in(const object_view& object, const std::optional<segment_view>& segment) {
  return segment && std::any_of(object.places.begin(), object.places.end(),
                                [&](const auto& p) { return p.segment == segment->id; });
}

}  // namespace

std::optional<segment_view> segment_named(const object_table& table, std::string_view name) {
  for (auto& s : table.segments())
    if (s.name == name) return s;
  return std::nullopt;
}

bool directory_tasks::create(const directory_session& from, byte_reader& in, time_point now,
                             store_wire::frame& out) {
  auto order = store_wire::get_order(in);
  std::string name;
  order.key = std::string{from.scope.inside(order.key, name)};
  if (!in.ok() || in.left() != 0 || order.kind > task_kind::move) return false;
  const auto code = check(order, now);
  const auto id = code == store_code::ok ? begin(std::move(order), now) : task_id{};
  out->put(static_cast<std::int32_t>(code));
  store_wire::put_task_id(*out, id);
  return true;
}

/// A copy has one target or more, a move has one and names a source where the object lies; all of them are
/// there.
store_code directory_tasks::check(const task_order& order, time_point now) const {
  const auto object = table_.look(order.key, now);
  if (object.code != store_code::ok) return object.code;
  const auto& to = order.targets;
  if (to.empty() ||
      !std::all_of(to.begin(), to.end(), [&](const auto& t) { return segment_named(table_, t).has_value(); }))
    return store_code::invalid_parameters;
  if (order.kind == task_kind::move &&
      (to.size() != 1 || order.source == to.front() || !lies_in(object, segment_named(table_, order.source))))
    return store_code::invalid_parameters;
  return open_ >= open_max ? store_code::too_many_tasks : store_code::ok;
}

task_id directory_tasks::begin(task_order order, time_point now) {
  order.id = {incarnation_, next_++};
  auto& made = tasks_[order.id.low];
  made.order = std::move(order);
  made.created = made.updated = now;
  ++open_;
  // Targets where the object lies already are reached; a move to one only gives up the source.
  const auto object = table_.look(made.order.key, now);
  std::vector<std::string> fresh;
  for (const auto& target : made.order.targets)
    if (!lies_in(object, segment_named(table_, target)) &&
        std::find(fresh.begin(), fresh.end(), target) == fresh.end())
      fresh.push_back(target);
  if (made.order.kind == task_kind::move && fresh.empty())
    if (const auto from = segment_named(table_, made.order.source))
      table_.drop_replica(made.order.key, from->id, now);
  made.order.targets = std::move(fresh);
  const auto id = made.order.id;
  assign(made, now);
  return id;
}

/// Tells a process that holds the object: for a move the source's, if the source is still there.
void directory_tasks::assign(task& t, time_point now) {
  if (t.order.targets.empty()) return end(t, store_code::ok, now);
  t.updated = now;
  const auto seen = table_.look(t.order.key, now);
  if (seen.code != store_code::ok) return end(t, seen.code, now);
  // An object that is on SSD alone lies in no process's memory, from which it could be copied.
  if (seen.places.empty()) return end(t, store_code::replica_not_ready, now);
  auto by = seen.places.front().segment;
  if (const auto source = segment_named(table_, t.order.source)) by = source->id;
  const auto holder = holders_.of(by);
  if (holder == 0 || ++t.attempts > attempts_max) return end(t, store_code::directory_unreachable, now);
  t.status = task_status::processing;
  t.assigned_to = holder;
  out_.write(holder, store_wire::entry::task, by,
             [&](byte_writer& to) { store_wire::put_order(to, t.order); });
}

void directory_tasks::end(task& t, store_code code, time_point now) {
  t.status = code == store_code::ok ? task_status::success : task_status::failed;
  t.message = code == store_code::ok ? "Task completed successfully" : std::string{to_string(code)};
  t.updated = now;
  --open_;
  ended_.push_back(t.order.id.low);
  if (ended_.size() <= ended_max) return;
  tasks_.erase(ended_.front());
  ended_.pop_front();
}

bool directory_tasks::end(byte_reader& in, time_point now, store_wire::frame& out) {
  const auto id = store_wire::get_task_id(in);
  const auto code = as_store_code(in.get<std::int32_t>());
  if (!in.ok() || in.left() != 0) return false;
  const auto found = tasks_.find(id.low);
  const bool known =
      id.high == incarnation_ && found != tasks_.end() && found->second.status == task_status::processing;
  if (known) end(found->second, code, now);
  out->put(static_cast<std::int32_t>(known ? store_code::ok : store_code::task_not_found));
  return true;
}

bool directory_tasks::query(byte_reader& in, time_point now, store_wire::frame& out) const {
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

void directory_tasks::end_session(std::uint64_t session, time_point now) {
  std::vector<std::uint64_t> orphans;
  for (const auto& [id, t] : tasks_)
    if (t.status == task_status::processing && t.assigned_to == session) orphans.push_back(id);
  for (const auto id : orphans) assign(tasks_.at(id), now);
}

/// An object that many read gets a replica on another host: as far as can be from the hosts that have it, and
/// among equally far ones where most is free.
void directory_tasks::copy_for_readers(time_point now) {
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
    if (seen.code != store_code::ok || !best || open_ >= open_max) continue;
    task_order order;
    order.for_readers = true;
    order.key = std::move(key);
    order.targets = {best->name};
    begin(std::move(order), now);
  }
}

void directory_tasks::tick(time_point now) {
  copy_for_readers(now);
  if (open_ == 0) return;
  std::vector<std::uint64_t> late;
  for (const auto& [id, t] : tasks_)
    if (t.status == task_status::processing && now - t.updated > time_limit) late.push_back(id);
  for (const auto id : late) end(tasks_.at(id), store_code::timed_out, now);
}

}  // namespace mooncaf
