#include "storage/engine/transfer_engine.hpp"

#include <algorithm>
#include <charconv>
#include <future>
#include <optional>

namespace mooncaf {

namespace {

constexpr duration answer_limit = std::chrono::seconds(5);
constexpr std::size_t words_max = 65'536;

struct address {
  std::string host;
  std::uint16_t port = 0;
};

result<address> parse_target(const std::string& target) {
  const auto colon = target.rfind(':');
  address at;
  if (colon != std::string::npos) {
    at.host = target.substr(0, colon);
    if (at.host.starts_with('[') && at.host.ends_with(']')) at.host = at.host.substr(1, at.host.size() - 2);
    const auto* const end = target.data() + target.size();
    const auto read = std::from_chars(target.data() + colon + 1, end, at.port);
    if (read.ec == std::errc{} && read.ptr == end && at.port != 0 && !at.host.empty()) return at;
  }
  return fail(ec::invalid_argument, "'" + target + "' is no engine's HOST:PORT");
}

bool overlaps(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

result<std::unique_ptr<transfer_engine>> transfer_engine::start(transfer_engine_options options) {
  const auto number = make_random_u64();
  if (!number) return fail(number.error());
  data_plane_options plane;
  plane.node = node_id{*number | 1};
  plane.cluster_secret = options.secret;
  plane.listen_host = options.host;
  plane.rdma.enabled = options.rdma;
  std::unique_ptr<transfer_engine> made{new transfer_engine(std::move(options))};
  auto started = data_plane::start(std::move(plane), [](const landing&) {});
  if (!started) return fail(started.error());
  made->plane_ = std::move(*started);
  auto endpoint =
      engine_endpoint::open(made->options_.host, made->options_.port, made->options_.secret,
                            {[self = made.get()] { return encode(self->plane_->local_announcement()); },
                             [self = made.get()](std::string name, std::string text) {
                               self->heard({std::move(name), std::move(text)});
                             }});
  if (!endpoint) return fail(endpoint.error());
  made->endpoint_ = std::move(*endpoint);
  return made;
}

transfer_engine::~transfer_engine() {
  endpoint_.reset();
  plane_.reset();  // transfers under way end, and report it, while the rest is still there
}

// ---- memory

result<void> transfer_engine::add(std::uint64_t address, std::uint64_t bytes, int fd, bool managed) {
  if (address == 0 || bytes == 0 || bytes > ~std::uint64_t{0} - address)
    return fail(ec::invalid_argument, "there is no memory of that size at that address");
  std::lock_guard lock{mutex_};
  for (const auto& [begin, o] : offered_)
    if (overlaps(begin, o.bytes, address, bytes))
      return fail(ec::already_exists, "it overlaps with memory that is registered");
  const auto region =
      plane_->register_region({reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)}, fd);
  if (!region) return fail(region.error());
  offered_[address] = {region->id, bytes, managed};
  return {};
}

result<void> transfer_engine::offer(std::uint64_t address, std::uint64_t bytes) {
  return add(address, bytes, -1, false);
}

result<void> transfer_engine::take_back(std::uint64_t address) {
  std::unique_lock lock{mutex_};
  const auto found = offered_.find(address);
  if (found == offered_.end() || found->second.managed)
    return fail(ec::not_found, "nothing that is registered begins there");
  const auto region = found->second.region;
  offered_.erase(found);
  lock.unlock();
  return plane_->unregister_region(region);
}

result<std::uint64_t> transfer_engine::allocate(std::uint64_t bytes) {
  if (bytes == 0) return fail(ec::invalid_argument, "a buffer of no bytes");
  const auto cut = [&](std::size_t i) -> std::optional<std::uint64_t> {
    const auto part = pools_[i]->space.allocate(bytes);
    if (!part) return std::nullopt;
    const auto address = reinterpret_cast<std::uint64_t>(pools_[i]->memory.base()) + part->offset;
    buffers_[address] = {i, part->handle};
    return address;
  };
  {
    std::lock_guard lock{mutex_};
    for (std::size_t i = 0; i < pools_.size(); ++i)
      if (const auto address = cut(i)) return *address;
  }
  auto memory = arena::create("mooncaf-engine", std::max(bytes, options_.arena_bytes));
  if (!memory) return fail(memory.error());
  const auto base = reinterpret_cast<std::uint64_t>(memory->base());
  const auto size = memory->size_bytes();
  if (auto ok = add(base, size, memory->fd(), true); !ok) return fail(ok.error());
  std::lock_guard lock{mutex_};
  pools_.push_back(std::make_unique<pool>(pool{std::move(*memory), offset_allocator{size}}));
  return *cut(pools_.size() - 1);
}

result<void> transfer_engine::release(std::uint64_t address) {
  std::lock_guard lock{mutex_};
  const auto found = buffers_.find(address);
  if (found == buffers_.end()) return fail(ec::not_found, "no managed buffer begins there");
  pools_[found->second.first]->space.release(found->second.second);
  buffers_.erase(found);
  return {};
}

result<slice> transfer_engine::local_slice(std::uint64_t address, std::uint64_t bytes, regions& borrowed) {
  {
    std::lock_guard lock{mutex_};
    const auto after = offered_.upper_bound(address);
    if (after != offered_.begin()) {
      const auto& [begin, o] = *std::prev(after);
      if (bytes <= o.bytes && address - begin <= o.bytes - bytes)
        return slice{o.region, address - begin, bytes};
    }
  }
  const auto region =
      plane_->register_region({reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)});
  if (!region) return fail(region.error());
  borrowed.push_back(region->id);
  return slice{region->id, 0, bytes};
}

void transfer_engine::unregister(const regions& borrowed) {
  // No peer was told of these regions, and their transfer is over, so none is in use.
  for (const auto id : borrowed) static_cast<void>(plane_->unregister_region(id));
}

// ---- peers

result<announcement> transfer_engine::describe(const std::string& target, bool again) {
  if (!again) {
    std::lock_guard lock{mutex_};
    if (const auto found = peers_.find(target); found != peers_.end()) return found->second;
  }
  const auto at = parse_target(target);
  if (!at) return fail(at.error());
  const auto until = clock_type::now() + answer_limit;
  const auto answer =
      ask_engine(at->host, at->port, options_.secret, {engine_wire::op::describe, {}, {}}, until);
  if (!answer) return fail(answer.error());
  auto peer = decode_announcement(*answer);
  if (!peer) return fail(peer.error());
  if (peer->address.node != plane_->local_address().node) {
    if (auto ok = plane_->add_peer(peer->address, peer->regions); !ok) return fail(ok.error());
  }
  std::lock_guard lock{mutex_};
  return peers_.insert_or_assign(target, std::move(*peer)).first->second;
}

result<std::uint64_t> transfer_engine::first_address(const std::string& target) {
  const auto peer = describe(target, true);
  if (!peer) return fail(peer.error());
  if (peer->regions.empty()) return fail(ec::not_found, target + " has registered no memory");
  const auto first = std::ranges::min_element(peer->regions, {}, [](const auto& r) { return r.id.value; });
  return first->base;
}

result<void> transfer_engine::probe(const std::string& target) {
  const auto peer = describe(target, true);
  return peer ? result<void>{} : fail(peer.error());
}

result<void> transfer_engine::notify(const std::string& target, const engine_word& word) {
  const auto at = parse_target(target);
  if (!at) return fail(at.error());
  const auto answer =
      ask_engine(at->host, at->port, options_.secret, {engine_wire::op::notify, word.name, word.text},
                 clock_type::now() + answer_limit);
  return answer ? result<void>{} : fail(answer.error());
}

void transfer_engine::heard(engine_word word) {
  std::lock_guard lock{mutex_};
  if (words_.size() == words_max) words_.erase(words_.begin());
  words_.push_back(std::move(word));
}

std::vector<engine_word> transfer_engine::take_words() {
  std::lock_guard lock{mutex_};
  return std::exchange(words_, {});
}

// ---- transfers

result<transfer> transfer_engine::prepare(transfer_op op, const announcement& peer,
                                          const std::vector<engine_piece>& pieces, duration limit,
                                          regions& borrowed) {
  transfer t;
  t.peer = peer.address.node;
  t.op = op;
  t.deadline = clock_type::now() + limit;
  for (const auto& p : pieces) {
    if (p.bytes == 0) continue;
    const auto there = std::ranges::find_if(peer.regions, [&](const region_desc& r) {
      return p.remote >= r.base && p.bytes <= r.length && p.remote - r.base <= r.length - p.bytes;
    });
    if (there == peer.regions.end())
      return fail(ec::not_found, "the address there is not within memory that the peer has registered");
    const auto here = local_slice(p.local, p.bytes, borrowed);
    if (!here) return fail(here.error());
    t.slices.push_back({*here, {there->id, p.remote - there->base, p.bytes}, std::nullopt});
  }
  std::lock_guard lock{mutex_};
  t.id = transfer_id{next_++};
  return t;
}

result<completion> transfer_engine::attempt(transfer_op op, const std::string& target,
                                            const std::vector<engine_piece>& pieces, duration limit,
                                            bool again) {
  const auto peer = describe(target, again);
  if (!peer) return fail(peer.error());
  regions borrowed;
  auto t = prepare(op, *peer, pieces, limit, borrowed);
  result<completion> done = fail(t ? error{} : t.error());
  if (t) {
    const auto promise = std::make_shared<std::promise<completion>>();
    plane_->submit(std::move(*t), [promise](const completion& c) { promise->set_value(c); });
    done = promise->get_future().get();
  }
  unregister(borrowed);
  return done;
}

result<void> transfer_engine::move(transfer_op op, const std::string& target,
                                   const std::vector<engine_piece>& pieces, duration limit) {
  error why;
  for (const bool again : {false, true}) {  // the peer may have begun anew, or have registered more
    const auto done = attempt(op, target, pieces, limit, again);
    if (done && done->outcome) return {};
    why = done ? done->outcome.error() : done.error();
    if (why == ec::invalid_argument || why == ec::timed_out) break;
  }
  return fail(why);
}

// A transfer to regions that the peer does not know is tried again once with the peer's new list.
result<std::uint64_t> transfer_engine::begin(transfer_op op, const std::string& target,
                                             const std::vector<engine_piece>& pieces, duration limit) {
  error why;
  for (const bool again : {false, true}) {
    const auto peer = describe(target, again);
    if (!peer) return fail(peer.error());
    regions borrowed;
    auto t = prepare(op, *peer, pieces, limit, borrowed);
    if (!t) {
      unregister(borrowed);
      why = t.error();
      if (why != ec::not_found) break;
      continue;
    }
    const auto number = t->id.value;
    {
      std::lock_guard lock{mutex_};
      under_way_[number].borrowed = std::move(borrowed);
    }
    plane_->submit(std::move(*t), [this, number, target](const completion& c) {
      std::lock_guard lock{mutex_};
      auto& o = under_way_[number];
      o.ended = true;
      o.good = c.outcome.has_value();
      if (!c.outcome) peers_.erase(target);  // perhaps another engine lives there by now
      changed_.notify_all();
    });
    return number;
  }
  return fail(why);
}

transfer_engine::state transfer_engine::ended(std::uint64_t number, bool wait) {
  std::unique_lock lock{mutex_};
  for (;;) {
    const auto found = under_way_.find(number);
    if (found == under_way_.end()) return state::unknown;
    if (found->second.ended) {
      const auto over = std::move(found->second);
      under_way_.erase(found);
      lock.unlock();
      unregister(over.borrowed);
      return over.good ? state::done : state::failed;
    }
    if (!wait) return state::running;
    changed_.wait(lock);
  }
}

}  // namespace mooncaf
