#include "storage/objects/directory/directory_core.hpp"

#include <utility>

namespace mooncaf {

using store_wire::frame;
using store_wire::op;

namespace {

constexpr std::size_t host_bytes_max = 1024, release_bytes_max = 64;

/// Others can be answered before the directory knows all objects.
bool is_about_objects(op what) {
  switch (what) {
    case op::hello:
    case op::mount:
    case op::mount_disk:
    case op::announce:
    case op::segments:
    case op::counts:
    case op::drain:
    case op::tenants:
    case op::hottest:
    case op::journal:
    case op::acked:
    case op::ring:
      return false;
    default:
      return true;
  }
}

/// A tenant that mounted memory would see others' objects there, and a task of its would pass no quota.
bool is_refused_to_tenants(op what) {
  switch (what) {
    case op::mount:
    case op::mount_disk:
    case op::drain:
    case op::withhold:
    case op::create_task:
    case op::query_task:
    case op::end_task:
      return true;
    default:
      return false;
  }
}

}  // namespace

directory_core::directory_core(object_table_options options, recovery_patience until,
                               std::unique_ptr<disk_notes> notes,
                               std::function<std::string(const std::string& tenant)> endpoint_key)
    : incarnation_(options.first_ticket),
      shard_(options.shard),
      endpoint_key_(std::move(endpoint_key)),
      disks_(notes ? std::move(notes) : std::make_unique<disk_notes>(options.first_ticket)),
      journal_(outbox_, holders_, disks_),
      table_(std::move(options), &journal_),
      recovery_(until, disks_.known()),
      loads_(table_, outbox_),
      tasks_(incarnation_, table_, outbox_, holders_),
      objects_(table_, journal_, disks_),
      segments_(incarnation_, table_, journal_, outbox_, holders_, disks_, recovery_) {}

void directory_core::at(time_point now) {
  now_ = now;
  outbox_.at(now);
}

std::uint64_t directory_core::open(std::string tenant) {
  const auto id = next_session_++;
  auto& made = sessions_[id];
  made.id = id;
  made.owner = table_.owner(tenant);
  made.scope.tenant = std::move(tenant);
  outbox_.open(id);
  return id;
}

void directory_core::close(std::uint64_t id, time_point now) {
  if (sessions_.erase(id) == 0) return;
  at(now);
  table_.end_session(id, now);
  outbox_.close(id);
  kept_.end_session(id);
  loads_.end_session(id);
  if (segments_.end_session(id, now)) tasks_.end_session(id, now);
  loads_.stir();
  outbox_.release_held();
}

bool directory_core::answer(std::uint64_t id, const store_wire::header& question,
                            std::span<const std::byte> payload, time_point now, std::vector<std::byte>& out) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  auto& from = found->second;
  at(now);
  if (from.nonsense || (!from.greeted && question.what != op::hello)) return false;
  byte_reader in{payload};
  if (question.what == op::acked) return heard(from, in);
  if (question.what == op::disk_done) {
    loads_.stir();
    return segments_.disk_done(from, in, now);
  }
  if (!recovery_.serving()) serve_when_complete();
  if (!recovery_.serving() && (kept_.has(id) || is_about_objects(question.what)))
    return kept_.keep(id, question, payload);
  return answer_now(from, question, payload, out);
}

bool directory_core::heard(const directory_session& from, byte_reader& in) {
  const auto number = in.get<std::uint64_t>();
  if (!in.ok() || in.left() != 0 || !outbox_.acknowledge(from.id, number)) return false;
  segments_.acknowledged(from.id);
  outbox_.release_held();
  return true;
}

bool directory_core::answer_now(directory_session& from, const store_wire::header& question,
                                std::span<const std::byte> payload, std::vector<std::byte>& out) {
  byte_reader in{payload};
  if (question.what == op::load) return loads_.ask(from, question.number, in, now_);
  outbox_.begin_answer();
  const auto begin = out.size();
  bool understood = false;
  {
    frame answer{out, question.number, question.what};
    understood = dispatch(from, question.what, in, answer);
  }
  return understood && outbox_.hold_back(from.id, begin, out);
}

/// A line for each question, so that this is long and says nothing else.
bool directory_core::dispatch(directory_session& from, op what, byte_reader& in, frame& out) {
  if (from.owner != 0 && is_refused_to_tenants(what)) {
    out->put(static_cast<std::int32_t>(store_code::not_supported));
    return true;
  }
  switch (what) {
    case op::hello:
      return greet(from, in, out);
    case op::mount:
      return segments_.mount(from, in, now_, out);
    case op::mount_disk:
      return segments_.mount_disk(from, in, out);
    case op::announce:
      return segments_.announce(from, in, now_, out);
    case op::segments:
      segments_.list(from, out);
      return in.left() == 0;
    case op::drain:
      return segments_.drain(in, out);
    case op::withhold:
      return segments_.withhold(from, in, now_, out);
    case op::reserve:
      return objects_.reserve(from, in, now_, out);
    case op::publish:
      return objects_.publish(from, in, now_, out);
    case op::put_next:
      return objects_.put_next(from, in, now_, out);
    case op::revoke:
      return objects_.revoke(from, in, now_, out);
    case op::find:
      return objects_.find(from, in, true, now_, out);
    case op::look:
      return objects_.find(from, in, false, now_, out);
    case op::exists:
      return objects_.exists(from, in, now_, out);
    case op::remove:
      return objects_.remove(from, in, now_, out);
    case op::remove_all:
      return objects_.remove_all(from, in, now_, out);
    case op::list:
      return objects_.list(from, in, now_, out);
    case op::create_task:
      return tasks_.create(from, in, now_, out);
    case op::query_task:
      return tasks_.query(in, now_, out);
    case op::end_task:
      return tasks_.end(in, now_, out);
    case op::tenants:
      list_tenants(from, out);
      return in.left() == 0;
    case op::hottest:
      list_hottest(from, out);
      return in.left() == 0;
    case op::counts:
      put_counts(from, out);
      return in.left() == 0;
    case op::journal:
    case op::acked:
    case op::load:
    case op::disk_done:
    case op::ring:
      break;
  }
  return false;
}

/// A client of a version that is not spoken here hears so, and may say hello again in another.
bool directory_core::greet(directory_session& from, byte_reader& in, frame& out) const {
  const auto version = in.get<std::uint32_t>();
  const auto host = store_wire::get_text_view(in);
  const bool spoken = version >= store_wire::oldest && version <= newest_;
  const auto speaks = spoken ? version : newest_;
  const bool everyone = spoken && in.get<std::uint8_t>() != 0;
  const auto release = spoken && version >= store_wire::tells_releases ? in.get_text() : std::string{};
  if (!in.ok() || (spoken && in.left() != 0) || host.size() > host_bytes_max ||
      release.size() > release_bytes_max)
    return false;
  from.host = host;
  from.greeted = spoken;
  from.peer = {speaks, release};
  from.scope.everyone = everyone && from.owner == 0;
  out->put(speaks);
  out->put(incarnation_);
  store_wire::welcome w{from.scope.tenant, {}, table_.tenants() > 0, shard_};
  if (from.owner != 0 && endpoint_key_) w.endpoint_key = endpoint_key_(w.tenant);
  store_wire::put_welcome(*out, w);
  if (newest_ >= store_wire::tells_releases) out->put(newest_);
  return true;
}

void directory_core::list_tenants(const directory_session& from, frame& out) const {
  const auto n = static_cast<std::uint32_t>(table_.tenants());
  out->put(from.owner == 0 ? n : 1);
  for (std::uint32_t i = 1; i <= n; ++i)
    if (from.owner == 0 || from.owner == i) store_wire::put_tenant(*out, table_.tenant(i));
}

void directory_core::list_hottest(const directory_session& from, frame& out) {
  std::vector<store_wire::named_hot_object> told;
  for (const auto& o : table_.hottest(now_)) {
    const auto name = split_name(o.key);
    if (from.owner != 0 && name.tenant != from.scope.tenant) continue;
    told.push_back({std::string{name.tenant}, {std::string{name.key}, o.size, o.replicas, o.reads_per_s}});
  }
  out->put(static_cast<std::uint32_t>(told.size()));
  for (const auto& o : told) store_wire::put_hottest(*out, o);
}

void directory_core::put_counts(const directory_session& from, frame& out) const {
  store_wire::put_counts(*out, from.owner == 0 ? table_.counts() : table_.counts_of(from.owner));
  store_wire::put_times(*out, from.owner == 0 ? times_ : store_wire::question_times{});
}

void directory_core::serve_when_complete() {
  if (!recovery_.is_over(now_, holders_, disks_)) return;
  for (const auto segment : recovery_.end(holders_)) segments_.fence(segment, now_);
  table_.end_recovery(now_);
  segments_.tell_serving();
  for (const auto& [id, questions] : kept_.take()) {
    auto& from = sessions_.at(id);
    for (const auto& question : questions) {
      std::vector<std::byte> answer;
      from.nonsense = from.nonsense || !answer_now(from, question.header, question.payload, answer);
      outbox_.send(id, answer);
    }
  }
}

void directory_core::deliver(const std::function<void(const outgoing&)>& to) {
  loads_.settle(now_);
  table_.tell_others();
  outbox_.deliver(to);
}

void directory_core::hear(const shard_message& message, time_point now) {
  at(now);
  table_.hear(message, now);
  loads_.stir();
}

void directory_core::tick(time_point now) {
  at(now);
  table_.tick(now);
  loads_.stir();
  loads_.settle(now);
  if (!recovery_.serving()) serve_when_complete();
  tasks_.tick(now);
  outbox_.keep_links_alive();
}

}  // namespace mooncaf
