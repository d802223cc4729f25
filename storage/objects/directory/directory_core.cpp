#include "storage/objects/directory/directory_core.hpp"

#include <algorithm>
#include <optional>
#include <regex>
#include <string>

namespace mooncaf {

using store_wire::frame;
using store_wire::get_count;
using store_wire::get_text_view;

namespace {

constexpr std::size_t pattern_bytes_max = 1024;
constexpr std::size_t name_bytes_max = 1024;

void put_code(frame& out, store_code code) { out->put(static_cast<std::int32_t>(code)); }

/// An expression that cannot be made to take exponential time, nor deep recursion: no back references.
std::optional<std::regex> compile(std::string_view pattern) {
  if (pattern.size() > pattern_bytes_max) return std::nullopt;
  const std::string ended{pattern};  // libstdc++ looks at the byte behind a pattern that ends in "("
  try {
    return std::regex{ended.begin(), ended.end(),
                      std::regex::ECMAScript | std::regex_constants::__polynomial};
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

bool is_about_objects(store_wire::op what) {
  using store_wire::op;
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

bool finds(const std::regex& pattern, std::string_view key) {
  return std::regex_search(key.begin(), key.end(), pattern);
}

}  // namespace

directory_core::directory_core(object_table_options options, recovery_patience until,
                               std::unique_ptr<disk_notes> notes,
                               std::function<std::string(const std::string& tenant)> endpoint_key)
    : incarnation_(options.first_ticket),
      shard_(options.shard),
      until_(until),
      endpoint_key_(std::move(endpoint_key)),
      notes_(notes ? std::move(notes) : std::make_unique<disk_notes>(options.first_ticket)),
      table_(std::move(options), this) {
  for (const auto disk : notes_->known()) awaited_disks_.insert(disk);
}

std::uint64_t directory_core::open(std::string tenant) {
  auto& made = sessions_[next_session_];
  made.owner = table_.owner(tenant);
  made.scope.tenant = std::move(tenant);
  return next_session_++;
}

void directory_core::wakes_on_purpose(std::uint64_t id) {
  if (const auto found = sessions_.find(id); found != sessions_.end()) found->second.woken_on_purpose = true;
}

void directory_core::close(std::uint64_t id, time_point now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  now_ = now;
  table_.end_session(id, now);
  const auto mounted = std::move(found->second.mounted);
  sessions_.erase(found);
  waiting_.erase(id);
  loads_.remove_if([&](const waiting_load& w) { return w.session == id; });
  for (const auto segment : mounted) disks_.count(segment) != 0 ? lose_disk(segment) : fence(segment);
  loads_stir_ = true;
  if (!mounted.empty()) reassign_tasks(id, now);
  release_held();
}

bool directory_core::answer(std::uint64_t id, const store_wire::header& question,
                            std::span<const std::byte> payload, time_point now, std::vector<std::byte>& to) {
  using store_wire::op;
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  auto& from = found->second;
  now_ = now;
  if (from.nonsense || (!from.greeted && question.what != op::hello)) return false;
  byte_reader in{payload};
  if (question.what == op::acked) {
    const auto number = in.get<std::uint64_t>();
    if (!in.ok() || in.left() != 0 || number > from.told) return false;
    from.acked = std::max(from.acked, number);
    disk_heard(from);
    release_held();
    return true;
  }
  if (question.what == op::disk_done) return disk_done(from, in, now);
  if (!serving_) serve_when_complete(now);
  if (!serving_ && (!from.kept.empty() || is_about_objects(question.what)))
    return keep(from, question, payload);
  return answer_now(id, question, payload, now, to);
}

bool directory_core::answer_now(std::uint64_t id, const store_wire::header& question,
                                std::span<const std::byte> payload, time_point now,
                                std::vector<std::byte>& to) {
  if (question.what == store_wire::op::load) {
    byte_reader in{payload};
    return load_all(id, sessions_.at(id), question.number, in, now);
  }
  heard_first_.clear();
  const auto begin = to.size();
  bool understood = false;
  byte_reader in{payload};
  {
    frame out{to, question.number, question.what};
    understood = dispatch(id, sessions_.at(id), question.what, in, now, out);
  }
  return understood && hold_back(id, begin, to);
}

bool directory_core::dispatch(std::uint64_t id, session& from, store_wire::op what, byte_reader& in,
                              time_point now, frame& out) {
  using store_wire::op;
  const bool about_segments = what == op::mount || what == op::mount_disk || what == op::drain ||
                              what == op::withhold || what == op::create_task || what == op::query_task ||
                              what == op::end_task;
  if (from.owner != 0 && about_segments) {  // a tenant that mounted memory would see what others put there
    put_code(out, store_code::not_supported);
    return true;
  }
  switch (what) {
    case op::hello:
      return greet(from, in, out);
    case op::mount:
      return mount(id, from, in, out);
    case op::mount_disk:
      return mount_disk(id, from, in, out);
    case op::announce:
      return announce(from, in, now, out);
    case op::segments:
      list_segments(from, out);
      return in.left() == 0;
    case op::reserve:
      return reserve(id, from, in, now, out);
    case op::publish:
      return publish(id, in, now, out);
    case op::put_next:
      return put_next(id, from, in, now, out);
    case op::revoke:
      return revoke(id, in, now, out);
    case op::find:
      return find(from, in, true, now, out);
    case op::look:
      return find(from, in, false, now, out);
    case op::exists:
      return exists(from, in, now, out);
    case op::remove:
      return remove(from, in, now, out);
    case op::remove_all:
      return remove_all(from, in, now, out);
    case op::list:
      return list(from, in, now, out);
    case op::drain:
      return drain(in, out);
    case op::withhold:
      return withhold(from, in, now, out);
    case op::create_task:
      return create_task(from, in, now, out);
    case op::query_task:
      return query_task(in, now, out);
    case op::end_task:
      return end_task(in, now, out);
    case op::tenants:
      list_tenants(from, out);
      return in.left() == 0;
    case op::hottest:
      list_hottest(from, now, out);
      return in.left() == 0;
    case op::counts:
      store_wire::put_counts(*out, from.owner == 0 ? table_.counts() : table_.counts_of(from.owner));
      store_wire::put_times(*out, from.owner == 0 ? times_ : store_wire::question_times{});
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

bool directory_core::greet(session& from, byte_reader& in, frame& out) {
  const auto version = in.get<std::uint32_t>();
  const auto host = get_text_view(in);
  const bool everyone = version == store_wire::version && in.get<std::uint8_t>() != 0;
  if (!in.ok() || in.left() != 0 || host.size() > name_bytes_max) return false;
  from.host = host;
  from.greeted = version == store_wire::version;
  from.scope.everyone = everyone && from.owner == 0;
  out->put(store_wire::version);
  out->put(incarnation_);
  store_wire::welcome w{from.scope.tenant, {}, table_.tenants() > 0, shard_};
  if (from.owner != 0 && endpoint_key_) w.endpoint_key = endpoint_key_(w.tenant);
  store_wire::put_welcome(*out, w);
  return true;
}

bool directory_core::mount(std::uint64_t id, session& from, byte_reader& in, frame& out) {
  const auto name = in.get_text();
  const auto bytes = in.get<std::uint64_t>();
  auto address = store_wire::get_address(in);
  const auto former = store_wire::get_former(in);
  if (!in.ok() || in.left() != 0 || name.empty() || name.size() > name_bytes_max ||
      bytes > std::uint64_t{1} << 46)
    return false;
  auto segment = former.segment;
  auto code = store_code::ok;
  if (segment == 0) {
    segment = table_.mount(name, from.host, bytes);
    if (segment == 0) code = store_code::segment_exists;
  } else if (!admit(former) || !table_.remount(segment, name, from.host, bytes)) {
    code = store_code::segment_not_found;
  } else {
    announcing_.insert(segment);
    came_back_[segment] = former.served_by;
  }
  put_code(out, code);
  out->put(segment);
  if (code != store_code::ok) return true;
  if (former.draining) table_.drain(name, true);
  from.mounted.push_back(segment);
  holders_[segment] = id;
  addresses_.emplace(segment, std::move(address));
  for (const auto& [other, holder] : holders_)
    if (disks_.count(other) == 0) write_entry(id, store_wire::entry::joined, other, [](byte_writer&) {});
  for (const auto f : fenced_) write_entry(id, store_wire::entry::fenced, f, [](byte_writer&) {});
  tell_members(store_wire::entry::joined, segment);
  if (serving_)
    write_entry(id, store_wire::entry::serving, segment, [&](byte_writer& to) { to.put(incarnation_); });
  return true;
}

bool directory_core::announce(session& from, byte_reader& in, time_point now, frame& out) {
  const auto segment = in.get<std::uint32_t>();
  const bool last = in.get<std::uint8_t>() != 0;
  const auto n = get_count(in);
  const bool its_own = std::find(from.mounted.begin(), from.mounted.end(), segment) != from.mounted.end();
  if (!n || !its_own) return false;
  if (disks_.count(segment) != 0) return announce_disk(segment, last, *n, in, now, out);
  const bool taken = announcing_.count(segment) != 0;  // else its holder has been told that it counts no more
  for (std::uint32_t i = 0; i < *n && taken; ++i) {
    auto record = store_wire::get_record(in);
    if (!in.ok() || !table_.recover(segment, std::move(record), now)) return false;
  }
  if (taken && in.left() != 0) return false;
  if (taken && last) announcing_.erase(segment);
  put_code(out, taken ? store_code::ok : store_code::segment_not_found);
  return true;
}

void directory_core::list_segments(const session& from, frame& out) const {
  const auto all = table_.segments(from.owner);
  out->put(static_cast<std::uint32_t>(all.size()));
  for (const auto& s : all) {
    auto address = addresses_.at(s.id);
    if (from.owner != 0) address = {{}, 0, {}, address.endpoint_host, address.endpoint_port};
    store_wire::put_segment(*out, {s, address});
  }
}

void directory_core::list_tenants(const session& from, frame& out) const {
  const auto n = static_cast<std::uint32_t>(table_.tenants());
  out->put(from.owner == 0 ? n : 1);
  for (std::uint32_t i = 1; i <= n; ++i)
    if (from.owner == 0 || from.owner == i) store_wire::put_tenant(*out, table_.tenant(i));
}

void directory_core::list_hottest(const session& from, time_point now, frame& out) {
  auto all = table_.hottest(now);
  std::vector<store_wire::named_hot_object> told;
  for (auto& o : all) {
    const auto name = split_name(o.key);
    if (from.owner != 0 && name.tenant != from.scope.tenant) continue;
    told.push_back({std::string{name.tenant}, {std::string{name.key}, o.size, o.replicas, o.reads_per_s}});
  }
  out->put(static_cast<std::uint32_t>(told.size()));
  for (const auto& o : told) store_wire::put_hottest(*out, o);
}

bool directory_core::reserve(std::uint64_t id, const session& from, byte_reader& in, time_point now,
                             frame& out) {
  const auto policy = store_wire::get_policy(in);
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = get_text_view(in);
    const auto size = in.get<std::uint64_t>();
    const auto ties = store_wire::get_ties(in);
    if (!in.ok()) return false;
    const auto inside = [&](std::string_view name, std::size_t which) {
      return name.empty() ? name : from.scope.inside(name, names_[which]);
    };
    const object_ties scoped{inside(ties.group, 1), inside(ties.parent, 2), ties.cost};
    // Where its objects lie, and how often, a tenant says when it puts them: what is moved passes no quota.
    const bool may = from.owner == 0 || !policy.move;
    const auto made = may ? table_.reserve(id, inside(key, 0), size, policy, from.host, now, scoped)
                          : reservation{store_code::not_supported, 0, {}};
    put_code(out, made.code);
    out->put(made.ticket);
    store_wire::put_places(*out, made.places);
  }
  return in.left() == 0;
}

bool directory_core::publish(std::uint64_t id, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  removing_ = true;  // what is replaced is not to be seen again either
  for (std::uint32_t i = 0; i < *n && in.ok(); ++i) {
    const auto ticket = in.get<std::uint64_t>();
    const auto checksum = in.get<std::uint64_t>();
    if (in.ok()) put_code(out, table_.publish(id, ticket, checksum, now));
  }
  removing_ = false;
  return in.ok() && in.left() == 0;
}

bool directory_core::put_next(std::uint64_t id, const session& from, byte_reader& in, time_point now,
                              frame& out) {
  const auto ticket = in.get<std::uint64_t>();
  const auto checksum = in.get<std::uint64_t>();
  const auto key = get_text_view(in);
  const auto policy = store_wire::get_policy(in);
  const auto size = in.get<std::uint64_t>();
  if (!in.ok() || in.left() != 0) return false;
  auto code = store_code::ok;
  if (!key.empty()) code = table_.name(id, ticket, from.scope.inside(key, names_[0]), now);
  removing_ = true;
  if (code == store_code::ok) code = table_.publish(id, ticket, checksum, now);
  removing_ = false;
  // What a tenant writes passes a quota by its name.
  const bool may = code == store_code::ok && from.owner == 0;
  const auto next =
      may ? table_.reserve_ahead(id, size, policy, from.host, now) : reservation{store_code::no_space, 0, {}};
  put_code(out, code);
  out->put(next.ticket);
  store_wire::put_places(*out, next.places);
  return true;
}

bool directory_core::revoke(std::uint64_t id, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto ticket = in.get<std::uint64_t>();
    if (!in.ok()) return false;
    put_code(out, table_.revoke(id, ticket, now));
  }
  return in.left() == 0;
}

bool directory_core::find(const session& from, byte_reader& in, bool lease, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    if (!in.ok()) return false;
    const auto seen = lease ? table_.find(key, now) : table_.look(key, now);
    // Who finds it reads it next.
    if (lease && seen.code == store_code::ok && seen.places.empty()) static_cast<void>(table_.load(key, now));
    store_wire::put_view(*out, seen);
  }
  return in.left() == 0;
}

bool directory_core::exists(const session& from, byte_reader& in, time_point now, frame& out) {
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  for (std::uint32_t i = 0; i < *n; ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    if (!in.ok()) return false;
    out->put(static_cast<std::uint8_t>(table_.exists(key, now)));
  }
  return in.left() == 0;
}

bool directory_core::remove(const session& from, byte_reader& in, time_point now, frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto n = get_count(in);
  if (!n) return false;
  out->put(*n);
  removing_ = true;
  for (std::uint32_t i = 0; i < *n && in.ok(); ++i) {
    const auto key = from.scope.inside(get_text_view(in), names_[0]);
    const auto code = in.ok() ? table_.remove(key, force, now) : store_code::ok;
    if (in.ok()) put_code(out, code);
    if (code == store_code::not_found) changed(key);  // nor is it to come from an SSD that is away
  }
  removing_ = false;
  return in.ok() && in.left() == 0;
}

bool directory_core::remove_all(const session& from, byte_reader& in, time_point now, frame& out) {
  const bool force = in.get<std::uint8_t>() != 0;
  const auto pattern = get_text_view(in);
  if (!in.ok() || in.left() != 0) return false;
  const auto expression = compile(pattern);
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  removing_ = true;
  const auto all = pattern.empty();
  const auto matches = [&](std::string_view name) {
    const auto key = from.scope.outside(name);
    return key && (all || finds(*expression, *key));
  };
  if (expression && from.owner == 0) notes_->note_all();
  else if (expression) changed(all_of(from.scope.tenant));
  out->put(expression ? table_.remove_if(matches, force, now) : std::uint64_t{0});
  removing_ = false;
  return true;
}

bool directory_core::drain(byte_reader& in, frame& out) {
  const auto name = get_text_view(in);
  const bool on = in.get<std::uint8_t>() != 0;
  if (!in.ok() || in.left() != 0) return false;
  const auto segment = segment_named(name);
  put_code(out, segment ? store_code::ok : store_code::segment_not_found);
  if (!segment) return true;
  table_.drain(name, on);
  write_entry(holders_.at(segment->id), store_wire::entry::draining, segment->id,
              [&](byte_writer& to) { to.put(static_cast<std::uint8_t>(on)); });
  return true;
}

/// A holder takes some of its own memory back for something else, or gives it again.
bool directory_core::withhold(const session& from, byte_reader& in, time_point now, frame& out) {
  const auto segment = in.get<std::uint32_t>();
  const auto bytes = in.get<std::uint64_t>();
  const bool its_own = std::find(from.mounted.begin(), from.mounted.end(), segment) != from.mounted.end();
  if (!in.ok() || in.left() != 0 || !its_own) return false;
  const auto stands = table_.withhold(segment, bytes, now);
  put_code(out, stands ? store_code::ok : store_code::segment_not_found);
  if (stands) store_wire::put_withheld(*out, {*stands, table_.take_withheld(segment)});
  return true;
}

bool directory_core::list(const session& from, byte_reader& in, time_point now, frame& out) const {
  const auto pattern = get_text_view(in);
  auto room = in.get<std::uint32_t>();
  const auto segment = get_text_view(in);
  if (!in.ok() || in.left() != 0 || room > store_wire::batch_max) return false;
  const auto expression = compile(pattern);
  put_code(out, expression ? store_code::ok : store_code::invalid_parameters);
  std::size_t bytes = 0;
  if (expression && room > 0) {
    table_.for_each(
        [&](std::string_view name, std::uint64_t size, std::size_t replicas, std::size_t disks) {
          const auto own = from.scope.outside(name);
          if (!own || (!pattern.empty() && !finds(*expression, *own))) return true;
          const auto key = *own;
          out->put(std::uint8_t{1});
          out->put_text(key);
          out->put(size);
          out->put(static_cast<std::uint8_t>(replicas));
          out->put(static_cast<std::uint8_t>(disks));
          bytes += key.size();
          return --room > 0 && bytes < store_wire::frame_bytes_max / 2;
        },
        segment, now);
  }
  out->put(std::uint8_t{0});
  return true;
}

}  // namespace mooncaf
