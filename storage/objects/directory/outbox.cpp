#include "storage/objects/directory/outbox.hpp"

#include <algorithm>
#include <string>

namespace mooncaf {

using store_wire::entry;
using store_wire::waits;

namespace {
constexpr std::size_t frame_entries_max = 1 * MiB;
constexpr std::size_t held_bytes_max = 16 * MiB;
/// A link over which nothing is said for longer looks lost to its other end.
constexpr auto silence_max = std::chrono::seconds(5);
}  // namespace

outbox::box* outbox::find(std::uint64_t session) {
  const auto found = boxes_.find(session);
  return found == boxes_.end() ? nullptr : &found->second;
}

void outbox::close(std::uint64_t session) {
  boxes_.erase(session);
  waiting_.erase(session);
}

void outbox::wakes_on_purpose(std::uint64_t session) {
  if (auto* const b = find(session)) b->woken_on_purpose = true;
}

// ---- journal entries

void outbox::write(std::uint64_t to, entry kind, std::uint32_t segment,
                   const std::function<void(byte_writer&)>& rest) {
  auto* const b = find(to);
  if (!b) return;
  if (b->entries.size() > frame_entries_max) make_frame(*b);
  byte_writer out{b->entries};
  out.put(static_cast<std::uint8_t>(kind));
  out.put(segment);
  rest(out);
  list(to, *b);
}

void outbox::add_holder(std::uint64_t session) {
  if (auto* const b = find(session)) b->holder = true;
}

void outbox::write_to_holders(entry kind, std::uint32_t segment) {
  for (const auto& [session, b] : boxes_)
    if (b.holder) write(session, kind, segment);
}

void outbox::wake(std::uint64_t session) {
  auto* const b = find(session);
  if (b && b->waited_for == waits::nobody) b->waited_for = waits::for_work;
}

std::uint64_t outbox::want_acknowledged(std::uint64_t session) {
  auto* const b = find(session);
  if (!b) return 0;
  b->waited_for = waits::to_hear;
  return b->told + 1;
}

void outbox::send_before_more() {
  for (const auto session : with_output_) {
    auto* const b = find(session);
    if (!b || b->entries.empty()) continue;
    make_frame(*b);
    b->staged = true;
    staged_.push_back({session, std::exchange(b->ready, {}), std::exchange(b->urgent, false)});
  }
}

bool outbox::acknowledge(std::uint64_t session, std::uint64_t number) {
  auto* const b = find(session);
  if (!b || number > b->told) return false;
  b->acknowledged = std::max(b->acknowledged, number);
  return true;
}

std::uint64_t outbox::acknowledged(std::uint64_t session) const {
  const auto found = boxes_.find(session);
  return found == boxes_.end() ? 0 : found->second.acknowledged;
}

void outbox::keep_links_alive() {
  for (auto& [session, b] : boxes_) {
    if (!b.holder || now_ - b.told_at < silence_max) continue;
    make_frame(b);
    list(session, b);
  }
}

void outbox::make_frame(box& b) {
  {
    store_wire::frame out{b.ready, store_wire::journal_base + ++b.told, store_wire::op::journal};
    out->put(static_cast<std::uint8_t>(b.waited_for));
    const auto filler = store_wire::urgent_bytes - std::min(b.entries.size(), store_wire::urgent_bytes);
    if (b.waited_for != waits::nobody) out->put_text(std::string(b.woken_on_purpose ? 0 : filler, '\0'));
    out->put_bytes(b.entries);
  }
  b.entries.clear();
  b.urgent |= std::exchange(b.waited_for, waits::nobody) != waits::nobody;
  b.told_at = now_;
}

void outbox::list(std::uint64_t session, box& b) {
  if (!std::exchange(b.listed, true)) with_output_.push_back(session);
}

// ---- answers

void outbox::hold_until_acknowledged(std::uint64_t session) {
  if (!is_open(session)) return;
  const need n{session, want_acknowledged(session)};
  if (std::find(heard_first_.begin(), heard_first_.end(), n) == heard_first_.end()) heard_first_.push_back(n);
}

bool outbox::hold_back(std::uint64_t session, std::size_t begin, std::vector<std::byte>& out) {
  auto& b = boxes_.at(session);
  if (heard_first_.empty() && b.held.empty() && b.ready.empty() && !b.staged) return true;
  held_answer answer{std::move(heard_first_), {out.begin() + static_cast<std::ptrdiff_t>(begin), out.end()}};
  out.resize(begin);
  b.held_bytes += answer.bytes.size();
  b.held.push_back(std::move(answer));
  waiting_.insert(session);
  release_held();
  return b.held_bytes <= held_bytes_max;
}

void outbox::send(std::uint64_t session, std::span<const std::byte> answer) {
  auto* const b = find(session);
  if (!b) return;
  b->ready.insert(b->ready.end(), answer.begin(), answer.end());
  list(session, *b);
}

void outbox::release_held() {
  const auto heard = [&](const need& n) {
    const auto* const by = find(n.first);
    return !by || by->acknowledged >= n.second;
  };
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    auto& b = boxes_.at(*at);
    while (!b.held.empty() && std::all_of(b.held.front().until.begin(), b.held.front().until.end(), heard)) {
      const auto& bytes = b.held.front().bytes;
      b.ready.insert(b.ready.end(), bytes.begin(), bytes.end());
      b.held_bytes -= bytes.size();
      b.held.pop_front();
      list(*at, b);
    }
    at = b.held.empty() ? waiting_.erase(at) : std::next(at);
  }
}

void outbox::deliver(const std::function<void(const delivery&)>& to) {
  for (const auto& [session, bytes, urgent] : std::exchange(staged_, {})) {
    auto* const b = find(session);
    if (!b) continue;
    b->staged = false;
    to({session, bytes, urgent});
  }
  // The receiver may close sessions, which writes entries to others.
  while (!with_output_.empty()) {
    for (const auto session : std::exchange(with_output_, {})) {
      auto* const b = find(session);
      if (!b) continue;
      b->listed = false;
      if (!b->entries.empty()) make_frame(*b);
      const auto bytes = std::exchange(b->ready, {});
      if (!bytes.empty()) to({session, bytes, std::exchange(b->urgent, false)});
    }
  }
}

}  // namespace mooncaf
