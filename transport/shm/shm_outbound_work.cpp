#include <algorithm>

#include "transport/copy/stream_copy.hpp"
#include "transport/shm/shm_outbound.hpp"

// The initiator's end of a shared-memory link: mapping, hashing, copying, telling.

namespace mooncaf {
namespace {

// A long transfer is told in parts, so that the owner works on the first while the rest is prepared.
constexpr std::uint64_t notice_bytes = 4 * MiB;
// The pieces and checksums of a short transfer are told in one notice.
constexpr std::uint64_t told_at_once = 32 * KiB;
constexpr std::size_t told_ahead = 4;  // transfers: the owner has always something to copy
constexpr int acks_per_poll = 64;

}  // namespace

bool shm_outbound::poll() {
  if (stage_ != stage::open) return false;
  const auto self = shared_from_this();
  const bool acked = take_acks();
  book_.take().tell();  // before the next piece is copied
  answer_views();
  if (stage_ != stage::open) return true;
  const bool worked = work();
  book_.take().tell();
  return worked || acked;
}

void shm_outbound::arm() {
  if (memory_) ring_reader{memory_->acks}.arm();
}
void shm_outbound::disarm() {
  if (memory_) ring_reader{memory_->acks}.disarm();
}

bool shm_outbound::take_acks() {
  ring_reader acks{memory_->acks};
  for (int i = 0; i < acks_per_poll; ++i) {
    const auto status = acks.take(record_);
    if (status == ring_reader::status::empty) return i > 0;
    const auto a =
        status == ring_reader::status::record ? parse_ack(record_) : fail(ec::corrupt, "damaged ring");
    if (!a) {
      end(a.error());
      return true;
    }
    ++progress_;
    auto* const j = book_.find(a->id);
    if (!j || j->queued) continue;
    if (j->given_up()) book_.confirm(*j);
    else book_.settle(*j, a->outcome.code == ec::none ? result<void>{} : fail(a->outcome));
  }
  return true;
}

// Tells the owner of the next transfers, then does a part of the first.
bool shm_outbound::work() {
  begin_waiting();
  bool worked = false;
  for (std::size_t i = 0; i < std::min(queue_.size(), told_ahead);) {
    if (queue_[i]->prepared) {
      ++i;
      continue;
    }
    const auto s = prepare(*queue_[i]);
    if (stage_ != stage::open) return true;
    if (s == step::waits) break;
    worked = true;
  }
  if (queue_.empty()) return worked;
  auto& j = *queue_.front();
  if (!j.prepared || (j.hold_until != time_point{} && clock_type::now() < j.hold_until)) return worked;
  return copy_some(j) != step::waits || worked;
}

// @returns worked: the transfer can be copied, and the owner knows where its pieces are; finished: it has
// left the queue.
shm_outbound::step shm_outbound::prepare(job& j) {
  auto s = map_regions(j);
  if (s == step::worked) s = offer_regions(j);
  if (s == step::worked) s = tell(j);
  if (s == step::worked) j.prepared = true;
  return s;
}

// Asks for the peer's regions that this transfer writes or reads. @returns worked: all of them are mapped
// here.
shm_outbound::step shm_outbound::map_regions(job& j) {
  bool waits = false;
  for (const auto& pair : j.what.slices) {
    const auto there = mapped(pair.remote.region);
    if (stage_ != stage::open) return step::finished;
    if (!there) return finish(j, fail(there.error()));
    waits |= *there == nullptr;
  }
  return waits ? step::waits : step::worked;
}

// @returns null while the peer's answer is awaited. Without a connection any more the link ends.
result<const shm_outbound::mapped_region*> shm_outbound::mapped(region_id wanted) {
  const auto described = peer_->regions.find(wanted);
  if (described == peer_->regions.end())
    return fail(ec::not_found, "node " + to_string(peer()) + " has no region " + to_string(wanted));
  const auto [it, unknown] = regions_.try_emplace(wanted);
  auto& m = it->second;
  if (unknown || m.access_key != described->second.access_key) {
    m = {.access_key = described->second.access_key, .pending = true, .refusal = {}, .view = {}};
    node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
    const auto sent =
        send({.type = shm_packet_type::map_request, .region = wanted, .access_key = m.access_key});
    if (!sent) {
      end(sent.error());
      return fail(sent.error());
    }
  }
  if (m.pending) return nullptr;
  if (m.refusal.code == ec::none) return &m;
  const auto why = m.refusal;
  // Asked again next time, unless the answer is for good.
  if (why.code != ec::unsupported) regions_.erase(it);
  return fail(why);
}

// Decides which end copies, and offers the owner the regions that it shall copy from. @returns worked: that
// is decided.
shm_outbound::step shm_outbound::offer_regions(job& j) {
  j.pulled = j.what.op == transfer_op::write && node_.options.checksums;
  bool waits = false;
  region_id last;
  for (const auto& pair : j.what.slices) {
    if (!j.pulled) break;
    if (pair.local.region == last) continue;
    last = pair.local.region;
    const auto o = offer(last);
    if (!o) {
      end(o.error());
      return step::finished;
    }
    waits |= o->pending;
    j.pulled = o->pending || o->usable;
  }
  j.notice.pulled = j.pulled;
  return waits && j.pulled ? step::waits : step::worked;
}

result<shm_outbound::offered_region> shm_outbound::offer(region_id id) {
  const auto [it, unknown] = offers_.try_emplace(id);
  if (!unknown) return it->second;
  const auto region = node_.regions.find(id);
  if (!region || !region->fd) return it->second;
  it->second.pending = true;
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  const int fds[] = {region->fd.get()};
  const auto sent = send({.type = shm_packet_type::offer,
                          .region = id,
                          .fd_offset = region->fd_offset,
                          .fd_size = region->fd_size,
                          .fd_inode = region->fd_inode,
                          .length = region->desc.length},
                         fds);
  if (!sent) return fail(sent.error());
  return it->second;
}

// Tells the owner of the pieces that it shall copy: it begins to copy before this end begins to hash.
shm_outbound::step shm_outbound::tell(job& j) {
  if (!j.pulled) return step::worked;
  std::uint64_t untold = 0;
  for (; j.told_slice < j.what.slices.size(); ++j.told_slice, j.told_offset = 0) {
    const auto& pair = j.what.slices[j.told_slice];
    const auto local = node_.regions.resolve(pair.local);
    const auto inside = check_bounds(pair.remote, regions_[pair.remote.region].view.bytes.size(), "remote");
    if (!local || !inside) return finish(j, fail(local ? inside.error() : local.error()));
    while (j.told_offset < pair.local.length) {
      if (j.notice.pieces.size() >= shm_notice::pieces_max || untold >= notice_bytes) {
        if (!publish(j, false)) return step::waits;
        untold = 0;
      }
      const auto n = std::min(node_.options.slice_bytes, pair.local.length - j.told_offset);
      j.notice.pieces.push_back({{pair.remote.region, pair.remote.offset + j.told_offset, n},
                                 pair.local.region,
                                 pair.local.offset + j.told_offset});
      j.told_offset += n;
      untold += n;
    }
  }
  if (j.notice.pieces.empty() || j.notice.total_bytes <= told_at_once) return step::worked;
  return publish(j, false) ? step::worked : step::waits;
}

// Copies or hashes about one piece, so that the loop then gets to its other links.
shm_outbound::step shm_outbound::copy_some(job& j) {
  std::uint64_t budget = node_.options.slice_bytes;
  while (budget > 0 && j.slice_index < j.what.slices.size()) {
    const bool full = j.notice.pieces.size() >= shm_notice::pieces_max ||
                      j.notice.sums.size() >= shm_notice::pieces_max || j.unnoticed_bytes >= notice_bytes;
    if (full && !publish(j, false)) return step::waits;
    const auto& pair = j.what.slices[j.slice_index];
    const auto n = std::min(node_.options.slice_bytes, pair.local.length - j.slice_offset);
    if (const auto s = copy_piece(j, pair, n); s != step::worked) return s;
    budget -= std::min(budget, std::max<std::uint64_t>(n, 64));
    if (j.slice_offset < pair.local.length) continue;
    ++j.slice_index;
    j.slice_offset = 0;
  }
  if (j.slice_index < j.what.slices.size()) return step::worked;
  if (j.what.op == transfer_op::read) return finish(j, {});
  if (!j.lost && !publish(j, true)) return step::waits;
  dequeue(j);
  return step::finished;
}

// Moves or hashes `n` bytes of a slice and notes the next notice's words about them. Fault injection has its
// say before the bytes move (delay, cut) or after (drop, corrupt).
shm_outbound::step shm_outbound::copy_piece(job& j, const slice_pair& pair, std::uint64_t n) {
  const auto local = node_.regions.resolve({pair.local.region, pair.local.offset + j.slice_offset, n});
  const slice remote{pair.remote.region, pair.remote.offset + j.slice_offset, n};
  const auto& m = regions_[remote.region];
  const auto inside = check_bounds(remote, m.view.bytes.size(), "remote");
  if (!local || !inside) return finish(j, fail(local ? inside.error() : local.error()));
  const auto f =
      j.hold_until != time_point{} ? fault{} : node_.next_fault(transfer_path::shm, j.what.id, j.piece_index);
  if (f.what == fault::kind::delay) {
    j.hold_until = clock_type::now() + f.wait;
    return step::waits;
  }
  j.hold_until = {};
  if (f.what == fault::kind::cut) {
    end({ec::peer_lost, "the link was cut"});
    return step::finished;
  }
  auto* there = m.view.bytes.data() + remote.offset;
  const bool write = j.what.op == transfer_op::write;
  const bool checksum = node_.options.checksums && (write || pair.expected_checksum);
  auto sum = j.pulled ? std::optional{wide_checksum(*local, n)}
             : write  ? copy_through_gate(*memory_, there, *local, n, checksum)
                      : copy_through_gate(*memory_, *local, there, n, checksum);
  if (!sum) {
    end({ec::peer_lost, "node " + to_string(peer()) + " revoked the link"});
    return step::finished;
  }
  j.lost |= f.what == fault::kind::drop;
  if (f.what == fault::kind::corrupt && j.pulled) *sum ^= 1;
  else if (f.what == fault::kind::corrupt && n > 0) (write ? there : *local)[n / 2] ^= std::byte{1};
  if (write && !j.pulled) j.notice.pieces.push_back({.at = remote, .source = {}});
  if (write && checksum && n > 0) j.notice.sums.push_back(*sum);
  ++j.piece_index;
  j.unnoticed_bytes += n;
  j.slice_offset += n;
  ++progress_;
  if (!write && checksum && j.slice_offset == pair.local.length) {
    if (const auto ok = check_slice(j, pair, *sum); !ok) return finish(j, ok);
  }
  return step::worked;
}

// The sum of a slice that was one piece is known; a longer one is hashed again as a whole, and so is any that
// a fault may have changed after the copy.
result<void> shm_outbound::check_slice(const job& j, const slice_pair& pair, std::uint64_t piece_sum) {
  if (pair.local.length > node_.options.slice_bytes || node_.options.faults) {
    const auto at = node_.regions.resolve(pair.local);
    if (!at) return fail(at.error());
    piece_sum = wide_checksum(*at, pair.local.length);
  }
  if (piece_sum == *pair.expected_checksum) return {};
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.checksum_failures; });
  return fail(ec::corrupt,
              "slice " + std::to_string(j.slice_index) + " does not have the checksum its owner states");
}

// Puts the prepared notice into the ring. @returns false if the ring is full for now.
bool shm_outbound::publish(job& j, bool last) {
  if (j.what.op != transfer_op::write) {
    j.unnoticed_bytes = 0;
    return true;
  }
  j.notice.last = last;
  encode_notice(j.notice, record_);
  ring_writer notices{memory_->notices};
  if (!notices.put(record_)) return false;
  if (notices.must_wake() && peer_wake_) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(peer_wake_.get(), &one, sizeof(one));
  }
  node_.stats.update(peer(), transfer_path::shm, [](path_stats& s) { ++s.control_messages; });
  j.notice.pieces.clear();
  j.notice.sums.clear();
  j.unnoticed_bytes = 0;
  j.noticed_some = true;
  ++progress_;
  return true;
}

}  // namespace mooncaf
