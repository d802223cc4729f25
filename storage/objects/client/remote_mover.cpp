#include "storage/objects/client/remote_mover.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <future>
#include <optional>
#include <utility>

#include "runtime/base/hash.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t parts_max = 4;  ///< parts of one object that are under way at once
constexpr std::uint64_t part_bytes_max = 2 * MiB;
/// Less is in the staging memory, and out of it, before it is mounted; so are many pieces.
constexpr std::uint64_t direct_from = 64 * KiB;
constexpr std::size_t direct_pieces_max = 16;  ///< that are made known for one transfer
/// In the mean: a transport takes an order for each piece.
constexpr std::uint64_t direct_piece_min = 4 * KiB;
constexpr std::size_t orders_together_max = 256;  ///< small ones, in one transfer
constexpr duration transfer_limit = std::chrono::seconds(30);

/// Walks through a list of spans as if they were one.
template <class Byte>
class cursor {
 public:
  explicit cursor(std::span<const std::span<Byte>> pieces) : pieces_(pieces) {}
  /// Steps on by `n` bytes. @param use  takes each run of them that lies together: its piece, and where in
  /// it.
  template <class Use>
  void each(std::uint64_t n, const Use& use) {
    while (n > 0) {
      auto piece = pieces_[number_].subspan(at_);
      piece = piece.first(std::min<std::uint64_t>(n, piece.size()));
      if (!piece.empty()) use(piece, number_, at_);
      n -= piece.size();
      at_ += piece.size();
      if (at_ == pieces_[number_].size()) {
        ++number_;
        at_ = 0;
      }
    }
  }

 private:
  std::span<const std::span<Byte>> pieces_;
  std::size_t number_ = 0, at_ = 0;
};

}  // namespace

/// A buffer that a caller has registered, as the transports know it.
struct remote_mover::known_buffer {
  std::weak_ptr<data_plane> plane;
  region_id region;  ///< zero: they refused it

  ~known_buffer() {
    const auto there = plane.lock();
    if (there && region) (void)there->unregister_region(region);
  }
};

/// The caller's memory as the transports know it for as long as its bytes are under way. No peer is told of it.
class remote_mover::known_pieces {
 public:
  struct place {
    region_id region;
    std::uint64_t offset = 0;
  };

  explicit known_pieces(const std::shared_ptr<data_plane>& plane) : plane_(plane) {}
  known_pieces(const known_pieces&) = delete;
  ~known_pieces() {
    for (const auto id : regions_) (void)plane_->unregister_region(id);
  }
  /// Makes the pieces known for this once.
  template <class Byte>
  bool add(std::span<const std::span<Byte>> pieces) {
    for (const auto& p : pieces) {
      // Transports only read from the source of a write.
      const std::span<std::byte> bytes{const_cast<std::byte*>(p.data()), p.size()};
      const auto known = bytes.empty() ? result<region_desc>{region_desc{}} : plane_->register_region(bytes);
      if (!known) return false;
      if (known->id) regions_.push_back(known->id);
      places_.push_back({known->id, 0});
    }
    return true;
  }
  /// @returns whether all pieces lie in buffers that the caller has registered, and the transports know those.
  template <class Byte>
  bool find(const registered_memory& registered, std::span<const std::span<Byte>> pieces) {
    for (const auto& p : pieces) {
      const auto buffer = p.empty() ? nullptr : registered.find(std::as_bytes(p));
      const auto known = buffer ? known_as(*buffer) : nullptr;
      if (!p.empty() && (!known || !known->region)) {
        places_.clear();
        return false;
      }
      places_.push_back(known ? place{known->region, begin_of(p) - buffer->begin} : place{});
      held_.push_back(known);
    }
    return true;
  }
  const place& of_piece(std::size_t number) const { return places_[number]; }

 private:
  /// The transports learn a buffer when it is first used, since most are never used over a network.
  std::shared_ptr<known_buffer> known_as(registered_memory::buffer& buffer) {
    std::lock_guard lock{buffer.mutex};
    auto known = std::static_pointer_cast<known_buffer>(buffer.made);
    if (known && known->plane.lock() == plane_) return known;
    const auto region =
        plane_->register_region({reinterpret_cast<std::byte*>(buffer.begin), buffer.end - buffer.begin});
    known = std::make_shared<known_buffer>();
    known->plane = plane_;
    if (region) known->region = region->id;
    buffer.made = known;
    return known;
  }

  std::shared_ptr<data_plane> plane_;
  std::vector<region_id> regions_;
  std::vector<place> places_;
  std::vector<std::shared_ptr<known_buffer>> held_;
};

/// A transfer, of an object or of several small ones, and the memory that it uses here.
struct remote_mover::part {
  std::uint64_t bytes = 0;
  std::optional<offset_allocator::extent> staged;  ///< or, where they lie with the caller, nowhere
  std::vector<slice_pair> slices;
  std::span<order> of;  ///< a write's
  std::promise<completion> promise;
  std::future<completion> ended = promise.get_future();
};

result<std::unique_ptr<remote_mover>> remote_mover::start(
    const key_ring& secret, std::uint64_t staging_bytes,
    std::shared_ptr<const registered_memory> registered) {
  auto staging = arena::create("mooncaf-staging", staging_bytes);
  if (!staging) return fail(staging.error());
  const auto number = make_random_u64();
  if (!number) return fail(number.error());
  data_plane_options options;
  options.node = node_id{*number};
  options.cluster_secret = secret;
  options.shm = false;
  auto plane = data_plane::start(std::move(options), [](const landing&) {});
  if (!plane) return fail(plane.error());
  const auto step = std::clamp<std::uint64_t>(staging->size_bytes() / 16, 64 * KiB, part_bytes_max);
  std::unique_ptr<remote_mover> made{new remote_mover(std::move(*staging), step, std::move(registered))};
  made->plane_ = std::move(*plane);
  const auto region = made->plane_->register_region(made->staging_.bytes(), made->staging_.fd());
  if (!region) return fail(region.error());
  made->region_ = region->id;
  made->has_nic_ = !made->plane_->rails().empty();
  return made;
}

result<void> remote_mover::add_peer(const announcement& peer) {
  return plane_->add_peer(peer.address, peer.regions);
}

/// @returns whether the pieces move from or into the caller's memory. A NIC has to have learned of it before: that
/// takes longer than a copy.
template <class Byte>
bool remote_mover::go_straight(known_pieces& known, std::span<const std::span<Byte>> pieces) const {
  const auto bytes = size_of(pieces);
  if (bytes < direct_from || bytes / pieces.size() < direct_piece_min) return false;
  if (registered_ && known.find(*registered_, pieces)) return true;
  return !has_nic_ && pieces.size() <= direct_pieces_max && known.add(pieces);
}

bool remote_mover::stage(part& p) {
  std::lock_guard lock{mutex_};
  return (p.staged = space_.allocate(p.bytes)).has_value();
}

void remote_mover::submit(part& p, transfer_op op, node_id peer) {
  transfer t;
  {
    std::lock_guard lock{mutex_};
    t.id = transfer_id{next_transfer_++};
  }
  t.peer = peer;
  t.op = op;
  t.slices = std::move(p.slices);
  t.deadline = clock_type::now() + transfer_limit;
  plane_->submit(std::move(t), [&p](const completion& c) { p.promise.set_value(c); });
}

/// Awaits the oldest transfer under way. @param take  is called with it and with how it ended.
template <class Take>
void remote_mover::end_one(parts& under_way, const Take& take) {
  const auto p = std::move(under_way.front());
  under_way.pop_front();
  take(*p, p->ended.get());
  if (!p->staged) return;
  std::lock_guard lock{mutex_};
  space_.release(p->staged->handle);
  room_.notify_all();
}

/// Begins another transfer once there is room for it. A thread that waits for room in the staging memory
/// holds none, since others may wait for that. @param take  as of `end_one`
template <class Take>
remote_mover::part& remote_mover::begin(parts& under_way, std::uint64_t bytes, bool staged,
                                        const Take& take) {
  if (under_way.size() == parts_max) end_one(under_way, take);
  auto p = std::make_unique<part>();
  p->bytes = bytes;
  while (staged && bytes > 0 && !stage(*p)) {
    if (!under_way.empty()) {
      end_one(under_way, take);
      continue;
    }
    std::unique_lock lock{mutex_};
    room_.wait(lock, [&] { return (p->staged = space_.allocate(bytes)).has_value(); });
    break;
  }
  if (staged) staged_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return *under_way.emplace_back(std::move(p));
}

namespace {

constexpr auto note_outcome = [](const auto& p, const completion& done) {
  for (auto& o : p.of) {
    o.settled = o.settled && done.fenced;
    if (!done.outcome && o.sum) o.sum = fail(done.outcome.error());
  }
};

}  // namespace

/// Writes in parts, from the caller's memory or from the staging memory.
void remote_mover::write_large(order& o) {
  known_pieces known{plane_};
  parts under_way;
  const bool direct = go_straight(known, o.pieces);
  const auto step = direct ? part_bytes_max : step_;
  const auto total = size_of(o.pieces);
  cursor from{o.pieces};
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (std::uint64_t at = 0; at < total && o.sum;) {
    auto& p = begin(under_way, std::min(step, total - at), !direct, note_outcome);
    p.of = {&o, 1};
    if (!direct)
      p.slices = {
          {{region_, p.staged->offset, p.bytes}, {o.to.region, o.to.offset + at, p.bytes}, std::nullopt}};
    auto* staged = direct ? nullptr : staging_.base() + p.staged->offset;
    std::vector<std::span<const std::byte>> sent;
    from.each(p.bytes, [&](std::span<const std::byte> piece, std::size_t number, std::size_t offset) {
      sent.push_back(piece);
      if (direct)
        p.slices.push_back(
            {{known.of_piece(number).region, known.of_piece(number).offset + offset, piece.size()},
             {o.to.region, o.to.offset + at, piece.size()},
             std::nullopt});
      else staged = std::copy(piece.begin(), piece.end(), staged);
      at += piece.size();
    });
    submit(p, transfer_op::write, o.to.node);
    for (const auto& piece : sent) XXH3_64bits_update(&hash, piece.data(), piece.size());
  }
  while (!under_way.empty()) end_one(under_way, note_outcome);
  if (o.sum) o.sum = XXH3_64bits_digest(&hash);
}

/// Together, from the staging memory, which has room for them, to one node.
void remote_mover::write_small(std::span<order> orders, parts& under_way) {
  std::uint64_t bytes = 0;
  for (const auto& o : orders) bytes += size_of(o.pieces);
  auto& p = begin(under_way, bytes, true, note_outcome);
  p.of = orders;
  auto here = p.bytes > 0 ? p.staged->offset : 0;
  for (auto& o : orders) {
    const auto begin = here;
    for (const auto& piece : o.pieces) {
      if (!piece.empty()) std::memcpy(staging_.base() + here, piece.data(), piece.size());
      here += piece.size();
    }
    o.sum = XXH3_64bits(staging_.base() + begin, here - begin);
    if (here > begin)
      p.slices.push_back(
          {{region_, begin, here - begin}, {o.to.region, o.to.offset, here - begin}, std::nullopt});
  }
  submit(p, transfer_op::write, orders.front().to.node);
}

// Small objects share a transfer: one after the other each would wait for a round trip.
void remote_mover::write(std::span<order> orders) {
  parts under_way;
  std::vector<std::span<order>> together;
  const auto is_small = [](const order& o) { return size_of(o.pieces) < direct_from; };
  for (std::size_t i = 0; i < orders.size();) {
    if (!is_small(orders[i])) {
      write_large(orders[i++]);
      continue;
    }
    const auto first = i;
    for (std::uint64_t bytes = 0; i < orders.size() && i - first < orders_together_max; ++i) {
      const auto& o = orders[i];
      bytes += size_of(o.pieces);
      if (i > first && (!is_small(o) || bytes > step_ || o.to.node != orders[first].to.node)) break;
    }
    together.push_back(orders.subspan(first, i - first));
    write_small(together.back(), under_way);
  }
  while (!under_way.empty()) end_one(under_way, note_outcome);
  // A transfer of many orders may be refused for one of them, so each is tried alone; where the peer does not
  // answer that is of no use.
  const auto refused = [](const order& o) {
    constexpr std::array own{ec::invalid_argument, ec::not_found, ec::corrupt};
    return !o.sum && o.settled && std::ranges::count(own, o.sum.error().code) > 0;
  };
  for (const auto& group : together)
    for (auto& o : group)
      if (group.size() > 1 && refused(o)) {
        write_small({&o, 1}, under_way);
        end_one(under_way, note_outcome);
      }
}

// Parts are hashed in their order while later ones are under way.
result<std::uint64_t> remote_mover::read(const place& from, std::span<const std::span<std::byte>> pieces) {
  const auto total = size_of(pieces);
  known_pieces own{plane_};
  const bool direct = go_straight(own, pieces);
  const auto step = direct ? part_bytes_max : step_;
  cursor asked_for{pieces}, to{pieces};
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  parts under_way;
  error problem;
  // The network writes into staging memory; the reader is told of bytes in its own memory.
  const auto arrived = [&](const part& p, const completion& done) {
    if (!done.outcome && problem.code == ec::none) problem = done.outcome.error();
    if (problem.code != ec::none) return;
    const auto* staged = p.staged ? staging_.base() + p.staged->offset : nullptr;
    to.each(p.bytes, [&](std::span<std::byte> piece, std::size_t, std::size_t) {
      constexpr std::size_t cached = 32 * KiB;
      for (; !piece.empty(); piece = piece.subspan(std::min(cached, piece.size()))) {
        const auto now = piece.first(std::min(cached, piece.size()));
        if (staged) std::memcpy(now.data(), std::exchange(staged, staged + now.size()), now.size());
        XXH3_64bits_update(&hash, now.data(), now.size());
      }
    });
  };
  for (std::uint64_t at = 0; at < total && problem.code == ec::none;) {
    auto& p = begin(under_way, std::min(step, total - at), !direct, arrived);
    if (!direct) {
      p.slices = {
          {{region_, p.staged->offset, p.bytes}, {from.region, from.offset + at, p.bytes}, std::nullopt}};
      at += p.bytes;
    } else {
      asked_for.each(p.bytes, [&](std::span<std::byte> piece, std::size_t number, std::size_t offset) {
        p.slices.push_back({{own.of_piece(number).region, own.of_piece(number).offset + offset, piece.size()},
                            {from.region, from.offset + at, piece.size()},
                            std::nullopt});
        at += piece.size();
      });
    }
    submit(p, transfer_op::read, from.node);
  }
  while (!under_way.empty()) end_one(under_way, arrived);
  if (problem.code != ec::none) return fail(problem);
  return XXH3_64bits_digest(&hash);
}

}  // namespace mooncaf
