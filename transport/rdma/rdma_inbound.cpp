#include "transport/rdma/rdma_inbound.hpp"

#include <algorithm>

#include "transport/copy/stream_copy.hpp"
#include "transport/peer_address.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {
namespace {

constexpr std::size_t unverified_max = 1u
                                       << 20;  // pieces; a peer that runs this far ahead is not one of ours
constexpr std::uint64_t verify_step_bytes = 1 * MiB;

}  // namespace

rdma_inbound::rdma_inbound(rdma_node& shared, const link_identity& peer, ended_handler on_ended)
    : shared_(shared), node_(shared.node), peer_(peer), on_ended_(std::move(on_ended)) {}

std::shared_ptr<control_link> rdma_inbound::attach(std::shared_ptr<tcp_link> link) {
  const std::weak_ptr<rdma_inbound> weak = shared_from_this();
  control_ = std::make_shared<control_link>(
      [weak](const rdma_control& c) {
        if (const auto self = weak.lock()) self->on_control(c);
      },
      [weak](const error& why) {
        if (const auto self = weak.lock()) self->end(why);
      });
  control_->attach(std::move(link));
  return control_;
}

void rdma_inbound::end(const error& why) {
  if (std::exchange(ended_, true)) return;
  rails_.clear();  // first: the peer takes the closed link as the proof that nothing can land any more
  if (control_) control_->close(why);
  for (const auto& [id, a] : assemblies_) node_.landings.release(peer_.node, peer_.incarnation, id);
  assemblies_.clear();
  unverified_.clear();
  on_ended_(*this);
}

void rdma_inbound::on_control(const rdma_control& c) {
  if (ended_) return;
  switch (c.type) {
    case rdma_control_type::connect_rail:
      return connect_rail(c);
    case rdma_control_type::retire_rail:
      return retire_rail(c.rail);
    case rdma_control_type::map_request:
      return grant(c);
    case rdma_control_type::query:
      return answer_query(c.id);
    case rdma_control_type::abandon:
      return abandon(c.id);
    case rdma_control_type::goodbye:
      return end({ec::peer_lost, "the peer ended the link"});
    default:
      return end({ec::corrupt, "the peer sent what only an owner may say"});
  }
}

// ---- rails ----

void rdma_inbound::connect_rail(const rdma_control& c) {
  rdma_control reply{.type = rdma_control_type::rail_connected, .rail = c.rail};
  const auto refuse = [&](const error& why) {
    reply.status = why.code;
    reply.detail = why.detail;
    control_->send(reply);
  };
  if (c.remote_rail >= shared_.rails.size() || rails_.contains(c.rail) || rails_.size() >= rails_max)
    return refuse({ec::invalid_argument, "the peer asks for a rail that this node does not have"});
  auto pair = queue_pair::make(*shared_.rails[c.remote_rail], shared_.options());
  if (!pair) return refuse(pair.error());
  if (const auto ok = (*pair)->connect(c.endpoint); !ok) return refuse(ok.error());
  auto r = std::make_unique<rail>(*this, c.rail);
  r->pair = std::move(*pair);
  reply.endpoint = r->pair->endpoint();
  rails_[c.rail] = std::move(r);
  control_->send(reply);
}

void rdma_inbound::retire_rail(std::uint32_t number) {
  // Notices that have arrived count: the pieces that they tell of are in memory.
  if (const auto it = rails_.find(number); it != rails_.end())
    while (const auto n = it->second->pair->poll(*it->second))
      if (*n == 0) break;
  lose_rail(number, "retired");
}

// Destroys a queue pair before the peer hears of it. Acknowledgements that it may have taken with it go over
// the control link.
void rdma_inbound::lose_rail(std::uint32_t number, const std::string& why) {
  rails_.erase(number);
  for (const auto& [id, outcome] : std::exchange(unconfirmed_, {}))
    control_->send(
        {.type = rdma_control_type::ack, .id = id, .status = outcome.code, .detail = outcome.detail});
  control_->send({.type = rdma_control_type::rail_retired, .rail = number, .detail = why});
}

void rdma_inbound::grant(const rdma_control& c) {
  node_.stats.update(peer_.node, transfer_path::rdma, [](path_stats& s) { ++s.control_messages; });
  rdma_control reply{.type = rdma_control_type::map_reply, .region = c.region};
  const auto at = node_.regions.locate({c.region, 0, 0}, c.access_key);
  const auto region = node_.regions.find(c.region);
  const auto registered = shared_.memory.find(c.region);
  if (!at || !region) {
    reply.status = at ? ec::not_found : at.error().code;
    reply.detail = at ? "the region is gone" : at.error().detail;
  } else if (!registered || !registered->reachable()) {
    reply.status = ec::unsupported;
    reply.detail = "no NIC of the peer has region " + to_string(c.region) +
                   (registered ? ": " + registered->why_not() : std::string{});
  } else {
    reply.base = region->desc.base;
    reply.length = region->desc.length;
    for (const auto& r : shared_.rails) {
      const auto& mr = registered->by_device[shared_.memory.device_number(*r->device)];
      reply.keys.push_back(mr ? mr->rkey : 0);
    }
  }
  control_->send(reply);
}

bool rdma_inbound::poll() {
  if (ended_) return false;
  bool worked = false;
  std::vector<std::pair<std::uint32_t, std::string>> broken;
  for (const auto& [number, r] : rails_) {
    const auto n = r->pair->poll(*r);
    if (!n) broken.emplace_back(number, n.error().detail);
    worked |= !n || *n > 0;
  }
  for (const auto& [number, why] : broken) lose_rail(number, why);
  worked |= verify_some();
  // The landing is announced before the sender hears of it.
  for (const auto& l : std::exchange(landed_, {})) node_.announce(l, transfer_path::rdma);
  for (const auto& [number, r] : rails_)
    if (!r->pair->flush()) broken_ = {ec::io_error, "the NIC refuses orders"};
  if (broken_.code != ec::none) end(broken_);
  return worked;
}

void rdma_inbound::arm() {
  for (const auto& [number, r] : rails_) r->pair->arm();
}

// ---- writes ----

void rdma_inbound::on_message(std::span<const std::byte> bytes) {
  const auto m = parse_message(bytes);
  if (m && m->is_notice) on_notice(m->notice);
  else broken_ = {ec::corrupt, "the peer sent a malformed notice"};
}

// Notes the pieces that lie in memory now; their checksums are looked at later, a bounded amount per poll.
// The first notice of a transfer decides whether this link may land it.
void rdma_inbound::on_notice(const rdma_notice& n) {
  auto it = assemblies_.find(n.id);
  if (it == assemblies_.end()) {
    const auto before = node_.landings.claim(peer_.node, peer_.incarnation, n.id);
    if (before == landing_log::state::landed) return acknowledge(n.id, {});
    if (before == landing_log::state::failed)
      return acknowledge(n.id, {ec::cancelled, "this transfer failed before"});
    if (before == landing_log::state::claimed)
      return acknowledge(n.id, {ec::unavailable, "this transfer arrives over another path"});
    if (assemblies_.size() >= assemblies_max) {
      broken_ = {ec::overloaded, "the peer has too many transfers open"};
      return;
    }
    it = assemblies_.try_emplace(n.id).first;
    it->second.tag = n.tag;
    it->second.total_bytes = n.total_bytes;
    it->second.seen.resize(n.total_pieces);
  }
  auto& a = it->second;
  if (a.seen.size() != n.total_pieces || a.total_bytes != n.total_bytes ||
      unverified_.size() >= unverified_max) {
    broken_ = {ec::corrupt, "the peer's notices contradict each other"};
    return;
  }
  for (const auto& p : n.pieces) {
    if (a.seen[p.index]) continue;  // repeated over another rail
    a.seen[p.index] = true;
    ++a.seen_count;
    unverified_.push_back({n.id, n.has_checksums, p});
  }
}

// A bounded amount, so that other peers are not kept waiting.
bool rdma_inbound::verify_some() {
  std::uint64_t bytes = 0;
  bool worked = false;
  while (!unverified_.empty() && bytes < verify_step_bytes) {
    const auto u = unverified_.front();
    unverified_.pop_front();
    bytes += u.piece.at.length + 1024;
    verify(u);
    worked = true;
  }
  return worked;
}

void rdma_inbound::verify(const unverified& u) {
  const auto it = assemblies_.find(u.id);
  if (it == assemblies_.end()) return;  // abandoned
  auto& a = it->second;
  ++a.verified;
  a.bytes += u.piece.at.length;
  if (u.piece.at.length > 0 && a.cause.code == ec::none) {
    const auto place = node_.regions.locate(u.piece.at);
    if (!place) a.cause = place.error();
    else if (u.has_checksum && node_.options.checksums && place->kind == memory_kind::host &&
             wide_checksum(place->at, u.piece.at.length) != u.piece.checksum)
      a.corrupt = true;
  }
  if (a.verified == a.seen.size()) conclude(u.id);
}

void rdma_inbound::conclude(transfer_id id) {
  const auto a = std::move(assemblies_[id]);
  assemblies_.erase(id);
  error outcome = a.cause;
  if (a.bytes != a.total_bytes) outcome = {ec::corrupt, "the pieces do not add up to the transfer"};
  if (a.corrupt) outcome = {ec::corrupt, "the bytes arrived with a wrong checksum"};
  const bool landed = outcome.code == ec::none;
  if (node_.landings.finish(peer_.node, peer_.incarnation, id, landed) && (landed || a.corrupt))
    landed_.push_back({peer_.node, id, a.tag, a.bytes, landed});
  acknowledge(id, std::move(outcome));
}

void rdma_inbound::answer_query(transfer_id id) {
  rdma_control reply{.type = rdma_control_type::query_reply, .id = id, .status = ec::not_found};
  if (const auto it = assemblies_.find(id); it != assemblies_.end()) {
    if (it->second.seen_count == it->second.seen.size()) reply.status = ec::overloaded;
  } else {
    const auto state = node_.landings.look(peer_.node, peer_.incarnation, id);
    if (state == landing_log::state::landed) reply.status = ec::none;
    if (state == landing_log::state::claimed) reply.status = ec::unavailable;
    if (state == landing_log::state::failed) {
      reply.status = ec::cancelled;
      reply.detail = "this transfer failed before";
    }
  }
  control_->send(reply);
}

void rdma_inbound::abandon(transfer_id id) {
  assemblies_.erase(id);
  node_.landings.finish(peer_.node, peer_.incarnation, id, false);
}

// Over any queue pair that has room: it is faster than the control link.
void rdma_inbound::acknowledge(transfer_id id, error outcome) {
  node_.stats.update(peer_.node, transfer_path::rdma, [](path_stats& s) { ++s.control_messages; });
  for (const auto& [number, r] : rails_) {
    if (!r->pair->connected() || !r->pair->message_room()) continue;
    std::vector<std::byte> bytes;
    encode_ack(rdma_ack{id, outcome}, bytes);
    r->pair->add_message(bytes, {.id = id}, false);
    unconfirmed_[id] = std::move(outcome);
    return;
  }
  control_->send(
      {.type = rdma_control_type::ack, .id = id, .status = outcome.code, .detail = outcome.detail});
}

}  // namespace mooncaf
