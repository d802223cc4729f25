// What the directory tells the holders of segments, and which answers wait until they have heard it: the
// other part of `directory_core`.

#include <algorithm>
#include <utility>

#include "storage/objects/directory/directory_core.hpp"

namespace mooncaf {

using store_wire::entry;

namespace {
constexpr std::size_t frame_entries_max = 1 * MiB;
constexpr std::size_t held_bytes_max = 16 * MiB;
/// A connection over which nothing is said for longer looks lost to its other end.
constexpr auto silence_max = std::chrono::seconds(5);
}  // namespace

directory_core::session* directory_core::holder(std::uint32_t segment) {
  const auto found = holders_.find(segment);
  const auto s = found == holders_.end() ? sessions_.end() : sessions_.find(found->second);
  return s == sessions_.end() ? nullptr : &s->second;
}

void directory_core::write_entry(std::uint64_t to, entry kind, std::uint32_t segment,
                                 const std::function<void(byte_writer&)>& rest) {
  const auto found = sessions_.find(to);
  if (found == sessions_.end()) return;
  auto& s = found->second;
  if (s.entries.size() > frame_entries_max) seal(s);
  byte_writer out{s.entries};
  out.put(static_cast<std::uint8_t>(kind));
  out.put(segment);
  rest(out);
  has_output(to, s);
}

void directory_core::reserved(std::uint32_t segment, const segment_record& record) {
  write_entry(holders_.at(segment), entry::reserved, segment, [&](byte_writer& out) {
    out.put(record.ticket);
    out.put(record.offset);
    out.put(record.size);
    out.put_text(record.tenant);
  });
  // A tenant writes through the holder's endpoint, which waits until it has heard of the place.
  if (!record.tenant.empty()) wake(segment);
}

void directory_core::published(std::uint32_t segment, const segment_record& record, std::string_view key,
                               std::string_view group) {
  publication_unsaid_ = true;
  write_entry(holders_.at(segment), entry::published, segment, [&](byte_writer& out) {
    out.put(record.ticket);
    out.put(record.offset);
    store_wire::put_published(out, record, key, group);
  });
}

void directory_core::freed(std::uint32_t segment, std::uint64_t ticket, std::uint64_t offset,
                           duration rests) {
  if (removing_ && publication_unsaid_) tell_before();
  const auto to = holders_.at(segment);
  write_entry(to, entry::freed, segment, [&](byte_writer& out) {
    out.put(ticket);
    out.put(offset);
    out.put(static_cast<std::int64_t>(rests.count()));
  });
  auto* const s = holder(segment);
  if (removing_ && s) wait_for(to, *s);
}

void directory_core::wake(std::uint32_t segment) {
  auto* const s = holder(segment);
  if (s && s->waited_for == store_wire::waits::nobody) s->waited_for = store_wire::waits::for_work;
}

void directory_core::wait_for(std::uint64_t to, session& s) {
  s.waited_for = store_wire::waits::to_hear;
  const std::pair need{to, s.told + 1};
  if (std::find(heard_first_.begin(), heard_first_.end(), need) == heard_first_.end())
    heard_first_.push_back(need);
}

/// What was written down until now goes out before what comes. A directory that is killed between two holders
/// has then told of what took an object's place, wherever that is, before it told that the object is gone.
void directory_core::tell_before() {
  publication_unsaid_ = false;
  for (const auto id : with_output_) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || found->second.entries.empty()) continue;
    auto& s = found->second;
    seal(s);
    s.staged = true;
    staged_.push_back({id, std::exchange(s.ready, {}), std::exchange(s.urgent, false)});
  }
}

void directory_core::tell_members(entry kind, std::uint32_t segment) {
  for (auto& [id, s] : sessions_)
    if (!s.mounted.empty()) write_entry(id, kind, segment, [](byte_writer&) {});
}

/// What the segment holds counts no more, not for later directories either.
void directory_core::fence(std::uint32_t segment) {
  table_.unmount(segment, now_);
  addresses_.erase(segment);
  announcing_.erase(segment);
  came_back_.erase(segment);
  expected_.erase(segment);
  if (std::find(fenced_.begin(), fenced_.end(), segment) == fenced_.end()) {
    fenced_.push_back(segment);
    if (fenced_.size() > store_wire::former_max) fenced_.pop_front();
    tell_members(entry::fenced, segment);
  }
  holders_.erase(segment);
}

void directory_core::seal(session& s) {
  {
    store_wire::frame out{s.ready, store_wire::journal_base + ++s.told, store_wire::op::journal};
    out->put(static_cast<std::uint8_t>(s.waited_for));
    const auto filler = store_wire::urgent_bytes - std::min(s.entries.size(), store_wire::urgent_bytes);
    if (s.waited_for != store_wire::waits::nobody)
      out->put_text(std::string(s.woken_on_purpose ? 0 : filler, '\0'));
    out->put_bytes(s.entries);
  }
  s.entries.clear();
  s.urgent |= std::exchange(s.waited_for, store_wire::waits::nobody) != store_wire::waits::nobody;
  s.told_at = now_;
}

void directory_core::has_output(std::uint64_t id, session& s) {
  if (!s.has_output) with_output_.push_back(id);
  s.has_output = true;
}

/// Takes back an answer that others must hear of first, or that stands behind one.
/// @returns false if too many wait already.
bool directory_core::hold_back(std::uint64_t id, std::size_t begin, std::vector<std::byte>& out) {
  auto& s = sessions_.at(id);
  if (heard_first_.empty() && s.held.empty() && s.ready.empty() && !s.staged) return true;
  held_answer answer{std::move(heard_first_), {out.begin() + static_cast<std::ptrdiff_t>(begin), out.end()}};
  out.resize(begin);
  s.held_bytes += answer.bytes.size();
  s.held.push_back(std::move(answer));
  waiting_.insert(id);
  release_held();
  return s.held_bytes <= held_bytes_max;
}

void directory_core::release_held() {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto id = *at;
    auto& s = sessions_.at(id);
    const auto heard = [&](const auto& need) {
      const auto by = sessions_.find(need.first);
      return by == sessions_.end() || by->second.acked >= need.second;
    };
    while (!s.held.empty() && std::all_of(s.held.front().until.begin(), s.held.front().until.end(), heard)) {
      const auto& bytes = s.held.front().bytes;
      s.ready.insert(s.ready.end(), bytes.begin(), bytes.end());
      s.held_bytes -= bytes.size();
      s.held.pop_front();
      has_output(id, s);
    }
    at = s.held.empty() ? waiting_.erase(at) : std::next(at);
  }
}

void directory_core::deliver(const std::function<void(const outgoing&)>& to) {
  settle_loads(now_);
  table_.tell_others();
  for (const auto& [id, bytes, urgent] : std::exchange(staged_, {})) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    found->second.staged = false;
    to({id, bytes, urgent});
  }
  while (!with_output_.empty()) {
    const auto ids = std::exchange(with_output_, {});
    for (const auto id : ids) {
      const auto found = sessions_.find(id);
      if (found == sessions_.end()) continue;
      auto& s = found->second;
      s.has_output = false;
      if (!s.entries.empty()) seal(s);
      const auto bytes = std::exchange(s.ready, {});
      if (!bytes.empty()) to({id, bytes, std::exchange(s.urgent, false)});
    }
  }
}

void directory_core::hear(const shard_message& message, time_point now) {
  now_ = now;
  table_.hear(message, now);
  loads_stir_ = true;
}

void directory_core::tick(time_point now) {
  now_ = now;
  table_.tick(now);
  loads_stir_ = true;
  settle_loads(now);
  if (!serving_) serve_when_complete(now);
  tick_tasks(now);
  for (auto& [id, s] : sessions_) {
    if (s.mounted.empty() || now - s.told_at < silence_max) continue;
    seal(s);
    has_output(id, s);
  }
}

}  // namespace mooncaf
