#include "transport/tcp/tcp_inbound.hpp"

#include <algorithm>

#include "transport/copy/stream_copy.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {
namespace {

// Answers that share a system call: one costs more than hashing the bytes that an answer is about.
constexpr std::size_t answers_together = 8;
constexpr std::size_t refused_max = 64;  // refused transfers remembered, with their reasons

}  // namespace

tcp_inbound::tcp_inbound(node_state& node, const link_identity& peer, ended_handler on_ended)
    : node_(node), peer_(peer), on_ended_(std::move(on_ended)) {}

bool tcp_inbound::add(std::shared_ptr<tcp_link> link) {
  std::lock_guard lock{mutex_};
  if (over_) return false;
  links_.push_back(std::move(link));
  return true;
}

void tcp_inbound::end(const error& why) {
  std::vector<std::shared_ptr<tcp_link>> links;
  {
    std::lock_guard lock{mutex_};
    over_ = true;
    links = links_;
  }
  // A second caller waits for the same links.
  for (const auto& l : links) l->kill(why);
  {
    std::lock_guard lock{mutex_};
    links_.clear();
    // Given back before any caller returns: a newer session may bring the same transfers at once.
    for (const auto& [id, a] : assemblies_) node_.landings.release(peer_.node, peer_.incarnation, id);
    assemblies_.clear();
    answers_.clear();
    if (std::exchange(end_reported_, true)) return;
  }
  on_ended_(*this);
}

void tcp_inbound::end_if_using(region_id region) {
  std::vector<std::shared_ptr<tcp_link>> links;
  {
    std::lock_guard lock{mutex_};
    links = links_;
  }
  const error why{ec::peer_lost, "a region in use was unregistered"};
  bool used = false;
  for (const auto& l : links) used |= l->kill_if_using(region, why);
  if (used) end(why);
}

void tcp_inbound::on_broken(tcp_link&, const error& why) { end(why); }

result<frame_sink> tcp_inbound::on_header(tcp_link& link, const frame_header& h) {
  switch (h.type) {
    case frame_type::write_data:
      return begin_write(link, h);
    case frame_type::read_request:
    case frame_type::cancel:
      return frame_sink{};
    default:
      return fail(ec::corrupt, "the peer sent a frame that only a responder may send");
  }
}

result<void> tcp_inbound::on_frame(tcp_link& link, const frame_header& h, const frame_sink& sink,
                                   std::span<const std::byte> control) {
  switch (h.type) {
    case frame_type::write_data:
      return end_write(link, h, sink);
    case frame_type::read_request:
      return begin_read(link, h, control);
    default:
      cancel(link, h.id);
      return {};
  }
}

// ---- writes ----

// Decides where a piece goes before a byte of it is read: into memory only after the key, the bounds and the
// log of landings allow it.
result<frame_sink> tcp_inbound::begin_write(tcp_link& link, const frame_header& h) {
  constexpr frame_sink nowhere{frame_sink::kind::discard, nullptr, {}};
  std::lock_guard lock{mutex_};
  auto it = assemblies_.find(h.id);
  if (it == assemblies_.end()) {
    if (assemblies_.size() >= assemblies_max)
      return fail(ec::overloaded, "the peer has too many transfers open");
    const auto before = node_.landings.claim(peer_.node, peer_.incarnation, h.id);
    if (before != landing_log::state::fresh) {
      if (h.index == 0) answer_repeated(link, h.id, before);
      return nowhere;
    }
    it = assemblies_.try_emplace(h.id).first;
    it->second.tag = h.tag;
    it->second.bytes = h.total_bytes;
    it->second.begun.resize(h.count);
  }
  auto& a = it->second;
  if (a.begun.size() != h.count || a.bytes != h.total_bytes || a.begun[h.index])
    return fail(ec::corrupt, "the peer's pieces of a transfer contradict each other");
  a.begun[h.index] = true;
  if (a.failed || h.payload_bytes == 0) return nowhere;
  const auto at = node_.regions.resolve(h.target, h.access_key);
  if (!at) {
    fail_write(link, h.id, a, at.error());
    return nowhere;
  }
  ++a.receiving;
  return frame_sink{frame_sink::kind::memory, *at, h.target.region};
}

result<void> tcp_inbound::end_write(tcp_link& link, const frame_header& h, const frame_sink& sink) {
  const bool wrote = sink.to == frame_sink::kind::memory;
  const bool intact = is_intact(h, sink, node_.options.checksums);
  std::lock_guard lock{mutex_};
  const auto it = assemblies_.find(h.id);
  if (it == assemblies_.end()) return {};
  auto& a = it->second;
  if (wrote) --a.receiving;
  ++a.done;
  if (!intact) a.corrupt = true;
  if (a.failed && a.receiving == 0) {
    answer_failed(link, h.id);
  } else if (!a.failed && a.done == a.begun.size()) {
    conclude(link, h.id, a);
  }
  return {};
}

// All pieces are here. The landing is announced before the sender hears of it.
void tcp_inbound::conclude(tcp_link& link, transfer_id id, assembly& a) {
  if (node_.landings.finish(peer_.node, peer_.incarnation, id, !a.corrupt)) {
    landing l{peer_.node, id, a.tag, a.bytes, !a.corrupt};
    link.defer([self = shared_from_this(), l] { self->node_.announce(l, transfer_path::tcp); });
  }
  reply(link, frame_type::write_result, id,
        a.corrupt ? error{ec::corrupt, "the bytes arrived with a wrong checksum"} : error{});
  assemblies_.erase(id);
}

// Answers a transfer that has ended here before, landed or not, or arrives over another path at this moment:
// not a byte of it is taken.
void tcp_inbound::answer_repeated(tcp_link& link, transfer_id id, landing_log::state state) {
  error outcome;
  if (state == landing_log::state::failed) {
    const auto known =
        std::find_if(refused_.begin(), refused_.end(), [&](const auto& r) { return r.first == id; });
    outcome = known != refused_.end() ? known->second : error{ec::cancelled, "this transfer failed before"};
  }
  if (state == landing_log::state::claimed)
    outcome = {ec::unavailable, "this transfer arrives over another path"};
  reply(link, frame_type::write_result, id, outcome);
}

void tcp_inbound::fail_write(tcp_link& link, transfer_id id, assembly& a, error why) {
  a.failed = true;
  a.cause = std::move(why);
  node_.landings.finish(peer_.node, peer_.incarnation, id, false);
  if (a.receiving == 0) answer_failed(link, id);
}

// No connection writes any piece of it now, and none will: the log knows that it failed.
void tcp_inbound::answer_failed(tcp_link& link, transfer_id id) {
  const auto a = std::move(assemblies_[id]);
  assemblies_.erase(id);
  if (!a.cancelled_by) {
    // Pieces that come later, over another connection, may be answered before this answer has left.
    refused_.emplace_back(id, a.cause);
    if (refused_.size() > refused_max) refused_.pop_front();
    return reply(link, frame_type::write_result, id, a.cause);
  }
  reply(*a.cancelled_by, frame_type::cancel_result, id, {});
  if (a.cancelled_by != &link) a.cancelled_by->kick();
}

void tcp_inbound::cancel(tcp_link& link, transfer_id id) {
  std::lock_guard lock{mutex_};
  for (auto& [l, queue] : answers_)
    std::erase_if(queue, [&](const answer& a) { return a.is_read && a.frame.header.id == id; });
  if (const auto it = assemblies_.find(id); it != assemblies_.end()) {
    it->second.cancelled_by = &link;
    return fail_write(link, id, it->second, {ec::cancelled, {}});
  }
  // No byte of the transfer may land from now on, though pieces may still be on their way over other
  // connections.
  node_.landings.finish(peer_.node, peer_.incarnation, id, false);
  reply(link, frame_type::cancel_result, id, {});
}

// ---- reads and answers ----

result<void> tcp_inbound::begin_read(tcp_link& link, const frame_header& h,
                                     std::span<const std::byte> control) {
  const auto entries = parse_read_entries(control, h.count);
  if (!entries) return fail(entries.error());
  std::lock_guard lock{mutex_};
  if (over_) return {};
  auto& queue = answers_[&link];
  for (const auto& e : *entries) {
    auto& a = queue.emplace_back();
    a.frame.header.id = h.id;
    a.is_read = true;
    a.entry = e;
  }
  return {};
}

void tcp_inbound::reply(tcp_link& link, frame_type type, transfer_id id, const error& outcome) {
  if (over_) return;
  node_.stats.update(peer_.node, transfer_path::tcp, [](path_stats& s) { ++s.control_messages; });
  // Answers go before read data that waits, since they let the peer's next transfer start.
  auto& a = answers_[&link].emplace_front();
  auto& f = a.frame;
  f.header.type = type;
  f.header.id = id;
  f.header.status = outcome.code;
  const auto text =
      std::as_bytes(std::span{outcome.detail.data(), std::min<std::size_t>(outcome.detail.size(), 512)});
  f.own.assign(text.begin(), text.end());
  f.header.payload_bytes = static_cast<std::uint32_t>(f.own.size());
}

bool tcp_inbound::next_frame(tcp_link& link, outgoing_frame& out) {
  std::unique_lock lock{mutex_};
  const auto it = answers_.find(&link);
  if (it == answers_.end() || it->second.empty() || over_) return false;
  if (may_wait(it->second) && link.amid_a_stream()) return false;
  auto a = std::move(it->second.front());
  it->second.pop_front();
  out = std::move(a.frame);
  if (!a.is_read) {
    out.payload = out.own.data();
    return true;
  }
  lock.unlock();
  const auto id = out.header.id;
  if (make_read_frame(id, a.entry, out)) return true;
  // The other pieces of that transfer would fail likewise: one reason is enough.
  lock.lock();
  auto& queue = answers_[&link];
  std::erase_if(queue, [&](const answer& other) { return other.is_read && other.frame.header.id == id; });
  return true;
}

// The sender of a write that goes on with others does not wait for this outcome alone: the end of the present
// arrivals brings us here again.
bool tcp_inbound::may_wait(const std::deque<answer>& queue) {
  const auto is_outcome = [](const answer& a) {
    return !a.is_read && a.frame.header.type == frame_type::write_result;
  };
  return queue.size() < answers_together && std::all_of(queue.begin(), queue.end(), is_outcome);
}

// Resolved when it leaves, so that a region unregistered meanwhile is not read. False: `out` is the refusal.
bool tcp_inbound::make_read_frame(transfer_id id, const read_entry& e, outgoing_frame& out) {
  const auto at = node_.regions.resolve(e.source, e.access_key);
  out.header = {};
  out.header.id = id;
  if (!at) {
    out.header.type = frame_type::read_result;
    out.header.status = at.error().code;
    const auto text = std::as_bytes(std::span{at.error().detail.data(), at.error().detail.size()});
    out.own.assign(text.begin(), text.end());
    out.header.payload_bytes = static_cast<std::uint32_t>(out.own.size());
    out.payload = out.own.data();
    return false;
  }
  out.header.type = frame_type::read_data;
  out.header.index = e.index;
  out.header.payload_bytes = static_cast<std::uint32_t>(e.source.length);
  out.payload = *at;
  out.region = e.source.region;
  if (node_.options.checksums) {
    out.header.has_checksum = true;
    out.header.checksum = cold_checksum(*at, e.source.length);
  }
  const auto f = node_.next_fault(transfer_path::tcp, id, e.index);
  if (f.what == fault::kind::corrupt && e.source.length > 0) {
    out.own.assign(*at, *at + e.source.length);
    out.own[e.source.length / 2] ^= std::byte{1};
    out.payload = out.own.data();
  }
  return true;
}

void tcp_inbound::on_abandoned(tcp_link&, const frame_header& h, const frame_sink&) {
  if (h.type != frame_type::write_data) return;
  std::lock_guard lock{mutex_};
  if (const auto it = assemblies_.find(h.id); it != assemblies_.end()) --it->second.receiving;
}

}  // namespace mooncaf
