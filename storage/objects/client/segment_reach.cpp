#include "storage/objects/client/segment_reach.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <thread>

#include "runtime/base/hash.hpp"
#include "runtime/base/host_place.hpp"
#include "transport/copy/stream_copy.hpp"

namespace mooncaf {

namespace {

/// Shorter values are better off in the caches, where their reader looks next.
constexpr std::size_t stream_from = 256 * KiB;

/// There is another way than an endpoint that cannot be reached, as behind a firewall; how long one tries,
/// and does not.
constexpr auto looker_dial_limit = std::chrono::seconds(1);
constexpr auto looker_rest = std::chrono::minutes(1);
/// Mean length of the pieces of an object from which the endpoint is asked: it takes a question for each.
constexpr std::uint64_t endpoint_piece_min = 4 * KiB;

std::uint64_t copy_checked(void* to, const void* from, std::size_t n) noexcept {
  if (n < stream_from) return near_copy_checksum(to, from, n);
  const auto sum = stream_copy_checksum(to, from, n);
  fence_streamed_stores();
  return sum;
}

/// Copies pieces one after the other, in steps, and hashes each step's bytes while they are in the cache.
template <class Byte, class Copy>
std::uint64_t copy_and_look(std::span<const std::span<Byte>> pieces, const Copy& copy) {
  constexpr std::size_t step = 32 * KiB;
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  std::size_t at = 0;
  for (const auto& p : pieces)
    for (std::size_t done = 0; done < p.size(); done += step) {
      const auto part = p.subspan(done, std::min(step, p.size() - done));
      const auto arrived = copy(part, at);
      XXH3_64bits_update(&hash, arrived, part.size());
      at += part.size();
    }
  return XXH3_64bits_digest(&hash);
}

/// The directory's news may reach an endpoint later than us: seconds later on a machine under load.
template <class Call>
result<std::uint64_t> patiently(const Call& call) {
  auto done = call();
  for (int tries = 1; tries < 8 && !done && done.error() == ec::not_found; ++tries) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(1 << tries));  // an old object's checksum differs at once
    done = call();
  }
  return done;
}

/// The spans of a list, as if they were one, from `at` on.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<const std::span<Byte>> pieces, std::uint64_t at,
                                 std::uint64_t bytes) {
  std::vector<std::span<Byte>> all;
  for (const auto& p : pieces) {
    if (bytes == 0) break;
    if (at >= p.size()) {
      at -= p.size();
      continue;
    }
    const auto n = std::min<std::uint64_t>(bytes, p.size() - at);
    all.push_back(p.subspan(at, n));
    bytes -= n;
    at = 0;
  }
  return all;
}

}  // namespace

void segment_reach::authorize(endpoint_pass pass) {
  std::lock_guard lock{mutex_};
  pass_ = std::move(pass);
}

std::optional<endpoint_pass> segment_reach::pass() const {
  std::lock_guard lock{mutex_};
  return pass_;
}

void segment_reach::learn(std::vector<store_wire::mounted_segment> segments) {
  std::lock_guard lock{mutex_};
  std::unordered_map<std::uint32_t, std::shared_ptr<way>> now;
  for (auto& s : segments) {
    const auto known = ways_.find(s.view.id);
    if (known != ways_.end() && known->second->segment.address == s.address) {
      known->second->missing_since = time_point::max();
      now.insert(*known);
      continue;
    }
    auto made = std::make_shared<way>();
    made->segment = std::move(s);
    now.emplace(made->segment.view.id, std::move(made));
  }
  constexpr auto kept = std::chrono::seconds(30);
  const auto when = clock_type::now();
  for (auto& [id, w] : ways_) {
    if (now.count(id) != 0) continue;
    w->missing_since = std::min(w->missing_since, when);
    if (when - w->missing_since < kept) now.emplace(id, w);
  }
  ways_ = std::move(now);
}

std::shared_ptr<segment_reach::way> segment_reach::find(std::uint32_t segment) const {
  std::lock_guard lock{mutex_};
  const auto found = ways_.find(segment);
  return found == ways_.end() ? nullptr : found->second;
}

bool segment_reach::knows(std::uint32_t segment) const { return find(segment) != nullptr; }

bool segment_reach::is_local(std::span<const replica_place> replica) const {
  return std::all_of(replica.begin(), replica.end(), [&](const replica_place& p) {
    const auto w = find(p.segment);
    return w && same_host(w->segment.view.host, own_host_) && !pass();
  });
}

std::size_t segment_reach::closeness_of(std::span<const replica_place> replica) const {
  std::size_t least = on_one_host;
  for (const auto& p : replica) {
    const auto w = find(p.segment);
    least = std::min(least, w ? closeness(own_host_, w->segment.view.host) : 0);
  }
  return least;
}

result<std::shared_ptr<segment_reach::way>> segment_reach::open(std::uint32_t segment) {
  auto w = find(segment);
  if (!w) return fail(ec::not_found, "segment " + std::to_string(segment) + " is not mounted");
  std::call_once(w->opened, [&] { open_way(*w); });
  if (w->problem.code != ec::none) return fail(w->problem);
  return w;
}

// A tenant has the endpoint alone; others try mapped memory, then the data plane.
void segment_reach::open_way(way& w) {
  constexpr auto limit = std::chrono::seconds(2);
  const auto& s = w.segment;
  w.problem = {ec::unavailable, "segment " + s.view.name + " offers no way that this process can take"};
  if (pass()) {
    if (s.address.endpoint_host.empty()) return;
    w.endpoint = std::make_unique<endpoint_client>(s.address.endpoint_host, s.address.endpoint_port);
    w.problem = {};
    return;
  }
  if (same_host(s.view.host, own_host_) && !s.address.unix_name.empty()) {
    auto mapped = mapped_segment::map(s.address.unix_name, secret_.own(), clock_type::now() + limit);
    if (mapped) {
      w.mapped = std::move(*mapped);
      if (s.view.withheld_bytes == 0) w.mapped->touch_ahead();
      w.problem = {};
      return;
    }
    w.problem = mapped.error();  // another user's process: the data plane may do
  }
  if (s.address.announcement.empty()) return;
  const auto peer = decode_announcement(s.address.announcement);
  const auto by = mover();
  const auto added = !peer ? result<void>{fail(peer.error())}
                     : by  ? (*by)->add_peer(*peer)
                           : fail(by.error());
  w.problem = added ? error{} : added.error();
  if (peer) w.node = peer->address.node;
  if (!s.address.endpoint_host.empty())
    w.looker = std::make_unique<endpoint_client>(s.address.endpoint_host, s.address.endpoint_port,
                                                 looker_dial_limit);
}

result<remote_mover*> segment_reach::mover() {
  std::lock_guard lock{mutex_};
  if (!mover_) {
    auto started = remote_mover::start(secret_, staging_bytes_, registered_);
    if (!started) return fail(started.error());
    mover_ = std::move(*started);
  }
  return mover_.get();
}

result<std::span<std::byte>> segment_reach::mapped_part(const way& w, std::uint64_t offset,
                                                        std::uint64_t bytes) const {
  const auto all = w.mapped->bytes();
  if (bytes > all.size() || offset > all.size() - bytes)
    return fail(ec::corrupt, "a place outside of segment " + w.segment.view.name);
  return all.subspan(offset, bytes);
}

remote_mover::place segment_reach::place_of(const way& w, std::uint64_t offset) {
  return {w.node, region_id{w.segment.address.region}, offset};
}

result<std::uint64_t> segment_reach::write_one(const replica_place& to, source_pieces pieces, bool& settled) {
  const auto w = open(to.segment);
  if (!w) return fail(w.error());
  if ((*w)->endpoint) return patiently([&] { return (*w)->endpoint->write(*pass(), to.offset, pieces); });
  if (!(*w)->mapped) {
    const auto by = mover();
    if (!by) return fail(by.error());
    remote_mover::order one{place_of(**w, to.offset), pieces};
    (*by)->write({&one, 1});
    settled = settled && one.settled;
    return one.sum;
  }
  const auto part = mapped_part(**w, to.offset, size_of(pieces));
  if (!part) return fail(part.error());
  if (pieces.size() == 1) return copy_checked(part->data(), pieces[0].data(), pieces[0].size());
  return copy_and_look(pieces, [&](std::span<const std::byte> from, std::size_t at) {
    return std::memcpy(part->data() + at, from.data(), from.size());
  });
}

result<std::uint64_t> segment_reach::read_one(const replica_place& from, target_pieces pieces, bool arrived) {
  const auto w = open(from.segment);
  if (!w) return fail(w.error());
  if ((*w)->endpoint) return patiently([&] { return (*w)->endpoint->read(*pass(), from.offset, pieces); });
  if (!(*w)->mapped) {
    const auto by = mover();
    if (!by) return fail(by.error());
    // Over TCP the thread that wants the bytes asks for them itself: at most the endpoint's thread has to be
    // woken. An object that the endpoint does not know (any more) is read over the data plane.
    if (!(*by)->has_nic() && size_of(pieces) / pieces.size() >= endpoint_piece_min) {
      auto sum = ask_looker(**w, [&](endpoint_client& endpoint, const endpoint_pass& pass) {
        return endpoint.read(pass, from.offset, pieces);
      });
      if (sum) return sum;
    }
    return (*by)->read(place_of(**w, from.offset), pieces);
  }
  const auto part = mapped_part(**w, from.offset, size_of(pieces));
  if (!part) return fail(part.error());
  if (pieces.size() == 1)
    return (arrived ? near_copy_checksum : copy_checked)(pieces[0].data(), part->data(), pieces[0].size());
  return copy_and_look(pieces, [&](std::span<std::byte> to, std::size_t at) {
    return std::memcpy(to.data(), part->data() + at, to.size());
  });
}

/// Moves stripes, different segments' stripes at once where a network lies between.
template <class Byte, class Move>
result<std::uint64_t> segment_reach::in_stripes(std::span<const replica_place> places,
                                                std::span<const std::span<Byte>> pieces, const Move& move) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_segment;
  std::vector<std::vector<std::span<Byte>>> parts;
  std::uint64_t at = 0;
  for (const auto& place : places) {
    by_segment[place.segment].push_back(parts.size());
    parts.push_back(cut(pieces, at, place.bytes));
    at += place.bytes;
  }
  const auto all_of = [&](const std::vector<std::size_t>& some) -> result<void> {
    for (const auto i : some)
      if (auto moved = move(places[i], parts[i]); !moved) return fail(moved.error());
    return {};
  };
  result<void> outcome;
  if (is_local(places)) {  // one thread takes all that the memory gives
    for (const auto& [segment, some] : by_segment)
      if (outcome) outcome = all_of(some);
  } else {
    std::vector<std::future<result<void>>> under_way;
    for (const auto& [segment, some] : by_segment)
      under_way.push_back(std::async(std::launch::async, [&, &mine = some] { return all_of(mine); }));
    for (auto& one : under_way)
      if (auto ended = one.get(); !ended) outcome = ended;
  }
  if (!outcome) return fail(outcome.error());
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& p : pieces) XXH3_64bits_update(&hash, p.data(), p.size());
  return XXH3_64bits_digest(&hash);
}

result<std::uint64_t> segment_reach::write(std::span<const replica_place> to, source_pieces pieces,
                                           bool& settled) {
  if (to.size() == 1) return write_one(to.front(), pieces, settled);
  std::atomic<bool> all_settled = true;
  const auto done = in_stripes(to, pieces, [&](const replica_place& place, source_pieces part) {
    bool landed = true;
    auto written = write_one(place, part, landed);
    if (!landed) all_settled = false;
    return written;
  });
  settled = settled && all_settled;
  return done;
}

void segment_reach::write(std::span<order> orders) {
  std::vector<remote_mover::order> far;
  std::vector<order*> of_far;
  const auto by = [&]() -> remote_mover* {
    const auto made = mover();
    return made ? *made : nullptr;
  };
  for (auto& o : orders) {
    const auto w = o.to.size() == 1 ? open(o.to.front().segment) : fail(ec::not_found);
    if (w && !(*w)->endpoint && !(*w)->mapped && by()) {
      far.push_back({place_of(**w, o.to.front().offset), o.pieces});
      of_far.push_back(&o);
    } else {
      o.sum = write(o.to, o.pieces, o.settled);
    }
  }
  if (far.empty()) return;
  by()->write(far);
  for (std::size_t i = 0; i < far.size(); ++i) {
    of_far[i]->sum = std::move(far[i].sum);
    of_far[i]->settled = far[i].settled;
  }
}

result<std::uint64_t> segment_reach::read(std::span<const replica_place> from, target_pieces pieces,
                                          bool arrived) {
  if (from.size() == 1) return read_one(from.front(), pieces, arrived);
  return in_stripes(from, pieces, [&](const replica_place& place, target_pieces part) {
    return read_one(place, part, false);  // the caller checks the whole afterwards
  });
}

result<std::uint64_t> segment_reach::checksum(std::span<const replica_place> at) {
  XXH3_state_t hash;
  XXH3_64bits_reset(&hash);
  for (const auto& place : at) {
    const auto w = open(place.segment);
    if (!w) return fail(w.error());
    std::vector<std::byte> copy;
    std::span<const std::byte> there;
    if ((*w)->mapped) {
      const auto part = mapped_part(**w, place.offset, place.bytes);
      if (!part) return fail(part.error());
      there = *part;
    } else {
      copy.resize(place.bytes);
      const std::span<std::byte> whole{copy};
      if (auto read = read_one(place, {&whole, 1}, false); !read) return read;
      there = copy;
    }
    XXH3_64bits_update(&hash, there.data(), there.size());
  }
  return XXH3_64bits_digest(&hash);
}

/// Calls the endpoint of a segment on another host as a client that knows the store's key.
/// @error `ec::unavailable` where there is no endpoint to ask; errors of the call
template <class Visit>
result<std::uint64_t> segment_reach::ask_looker(way& w, const Visit& visit) {
  if (!w.looker || clock_type::now() < w.no_looks_before.load())
    return fail(ec::unavailable, "nobody looks there");
  // The store's key lets this process in, whichever directory there is.
  const endpoint_wire::greeting who{~std::uint64_t{0}, std::string{endpoint_wire::everyone}};
  const endpoint_pass pass{who, endpoint_wire::endpoint_key(secret_.own(), who)};
  auto done = visit(*w.looker, pass);
  if (done || done.error() == ec::not_found || done.error() == ec::corrupt) return done;
  w.no_looks_before = clock_type::now() + looker_rest;
  return fail(ec::unavailable, done.error().detail);
}

result<bool> segment_reach::agrees(std::span<const replica_place> replica, std::uint64_t expected) {
  if (replica.size() == 1) {
    const auto w = open(replica.front().segment);
    if (!w) return fail(w.error());
    if ((*w)->endpoint) {  // the endpoint checks parts only once it has heard of the publication
      const auto& at = replica.front();
      const auto sum = patiently([&] { return (*w)->endpoint->look(*pass(), at.offset, at.bytes); });
      if (!sum) return fail(sum.error());
      return *sum == expected;
    }
    if (!(*w)->mapped) {
      const auto sum = ask_looker(**w, [&](endpoint_client& endpoint, const endpoint_pass& pass) {
        return patiently([&] { return endpoint.look(pass, replica.front().offset, replica.front().bytes); });
      });
      if (sum) return *sum == expected;
      if (sum.error() == ec::not_found) return fail(sum.error());
    }
  }
  const auto sum = checksum(replica);
  if (!sum) return fail(sum.error());
  return *sum == expected;
}

}  // namespace mooncaf
