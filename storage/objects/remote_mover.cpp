#include "storage/objects/remote_mover.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <future>

#include "runtime/base/hash.hpp"
#include "transport/net/handshake.hpp"

namespace mooncaf {

namespace {

constexpr std::size_t parts_max = 4;  ///< of one object, under way at once
constexpr duration transfer_limit = std::chrono::seconds(30);

/// Walks through a list of spans as if they were one.
template <class Byte>
class cursor {
 public:
  explicit cursor(std::span<const std::span<Byte>> pieces) : pieces_(pieces) {}
  /// Copies `n` bytes from the list to `staging`.
  void copy(std::byte* staging, std::uint64_t n) {
    each(n, [&](std::span<Byte> piece) {
      std::memcpy(staging, piece.data(), piece.size());
      staging += piece.size();
    });
  }
  /// Copies from there into the list, in steps, each of which is hashed where it arrived while the cache has
  /// it.
  void copy_and_hash(const std::byte* staging, std::uint64_t n, XXH3_state_t& hash) {
    constexpr std::size_t step = 32 * KiB;
    each(n, [&](std::span<Byte> piece) {
      for (; !piece.empty(); piece = piece.subspan(std::min(step, piece.size()))) {
        const auto now = std::min(step, piece.size());
        std::memcpy(piece.data(), staging, now);
        XXH3_64bits_update(&hash, piece.data(), now);
        staging += now;
      }
    });
  }

 private:
  /// Steps on by `n` bytes. @param use  takes what lies together of them.
  template <class Use>
  void each(std::uint64_t n, const Use& use) {
    while (n > 0) {
      auto piece = pieces_.front().subspan(at_);
      piece = piece.first(std::min<std::uint64_t>(n, piece.size()));
      use(piece);
      n -= piece.size();
      at_ += piece.size();
      if (at_ == pieces_.front().size()) {
        pieces_ = pieces_.subspan(1);
        at_ = 0;
      }
    }
  }

  std::span<const std::span<Byte>> pieces_;
  std::size_t at_ = 0;
};

template <class Byte>
std::uint64_t size_of(std::span<const std::span<Byte>> pieces) {
  std::uint64_t n = 0;
  for (const auto& p : pieces) n += p.size();
  return n;
}

}  // namespace

struct remote_mover::part {
  offset_allocator::extent extent;
  std::uint64_t bytes = 0;
  std::promise<completion> promise;
  std::future<completion> ended = promise.get_future();
};

result<std::unique_ptr<remote_mover>> remote_mover::start(const std::string& secret,
                                                          std::uint64_t staging_bytes) {
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
  const auto step = std::clamp<std::uint64_t>(staging->size_bytes() / 16, 64 * KiB, 2 * MiB);
  std::unique_ptr<remote_mover> made{new remote_mover(std::move(*staging), step)};
  made->plane_ = std::move(*plane);
  const auto region = made->plane_->register_region(made->staging_.bytes(), made->staging_.fd());
  if (!region) return fail(region.error());
  made->region_ = region->id;
  return made;
}

result<void> remote_mover::add_peer(const announcement& peer) {
  return plane_->add_peer(peer.address, peer.regions);
}

std::unique_ptr<remote_mover::part> remote_mover::begin(std::uint64_t bytes) {
  auto made = std::make_unique<part>();
  std::unique_lock lock{mutex_};
  std::optional<offset_allocator::extent> extent;
  room_.wait(lock, [&] { return (extent = space_.allocate(bytes)).has_value(); });
  made->extent = *extent;
  made->bytes = bytes;
  return made;
}

void remote_mover::submit(part& p, transfer_op op, const place& at, std::uint64_t bytes) {
  transfer t;
  {
    std::lock_guard lock{mutex_};
    t.id = transfer_id{next_transfer_++};
  }
  t.peer = at.node;
  t.op = op;
  t.slices.push_back({{region_, p.extent.offset, bytes}, {at.region, at.offset, bytes}, std::nullopt});
  t.deadline = clock_type::now() + transfer_limit;
  plane_->submit(std::move(t), [&p](const completion& c) { p.promise.set_value(c); });
}

result<std::uint64_t> remote_mover::write(const place& to, std::span<const std::span<const std::byte>> pieces,
                                          bool& settled) {
  const auto total = size_of(pieces);
  cursor from{pieces};
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  std::deque<std::unique_ptr<part>> under_way;
  std::uint64_t at = 0;
  error problem;
  const auto end_one = [&] {
    const auto done = under_way.front()->ended.get();
    settled = settled && done.fenced;
    if (!done.outcome && problem.code == ec::none) problem = done.outcome.error();
    std::lock_guard lock{mutex_};
    space_.release(under_way.front()->extent.handle);
    room_.notify_all();
    under_way.pop_front();
  };
  while (at < total && problem.code == ec::none) {
    if (under_way.size() == parts_max) end_one();
    const auto n = std::min(step_, total - at);
    auto p = begin(n);
    auto* const staged = staging_.base() + p->extent.offset;
    from.copy(staged, n);
    XXH3_64bits_update(&hash, staged, n);
    submit(*p, transfer_op::write, {to.node, to.region, to.offset + at}, n);
    under_way.push_back(std::move(p));
    at += n;
  }
  while (!under_way.empty()) end_one();
  if (problem.code != ec::none) return fail(problem);
  return XXH3_64bits_digest(&hash);
}

result<std::uint64_t> remote_mover::read(const place& from, std::span<const std::span<std::byte>> pieces) {
  const auto total = size_of(pieces);
  cursor to{pieces};
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  std::deque<std::unique_ptr<part>> under_way;
  std::uint64_t asked = 0;
  error problem;
  const auto end_one = [&] {
    auto& p = *under_way.front();
    const auto done = p.ended.get();
    if (!done.outcome && problem.code == ec::none) problem = done.outcome.error();
    // Staging memory is lent to the network: what the reader is told of is what lies in his own.
    if (problem.code == ec::none) to.copy_and_hash(staging_.base() + p.extent.offset, p.bytes, hash);
    std::lock_guard lock{mutex_};
    space_.release(p.extent.handle);
    room_.notify_all();
    under_way.pop_front();
  };
  while (asked < total && problem.code == ec::none) {
    if (under_way.size() == parts_max) end_one();
    const auto n = std::min(step_, total - asked);
    auto p = begin(n);
    submit(*p, transfer_op::read, {from.node, from.region, from.offset + asked}, n);
    under_way.push_back(std::move(p));
    asked += n;
  }
  while (!under_way.empty()) end_one();
  if (problem.code != ec::none) return fail(problem);
  return XXH3_64bits_digest(&hash);
}

}  // namespace mooncaf
