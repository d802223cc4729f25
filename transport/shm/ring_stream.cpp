#include "transport/shm/ring_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/shm/link_memory.hpp"
#include "transport/shm/ring_bytes.hpp"

namespace mooncaf {
namespace {

using namespace ring_bytes;

result<std::shared_ptr<ring_pair>> mapped(int memory) {
  auto mapping = shared_mapping::map(memory, sizeof(ring_pair));
  if (!mapping) return fail(mapping.error());
  const auto keep = std::make_shared<shared_mapping>(std::move(*mapping));
  return std::shared_ptr<ring_pair>(keep, reinterpret_cast<ring_pair*>(keep->base()));
}

}  // namespace

result<ring_stream::made> ring_stream::make(std::unique_ptr<link_stream>& beside) {
  auto memory = make_memfd("mooncaf-ring", sizeof(ring_pair));
  if (!memory) return fail(memory.error());
  auto rings = mapped(memory->get());
  if (!rings) return fail(rings.error());
  return made{std::make_unique<ring_stream>(std::move(beside), std::move(*rings), side::maker),
              std::move(*memory)};
}

result<std::unique_ptr<ring_stream>> ring_stream::join(std::unique_ptr<link_stream>& beside, int memory) {
  if (const auto sound = check_memfd(memory, sizeof(ring_pair)); !sound) return fail(sound.error());
  auto rings = mapped(memory);
  if (!rings) return fail(rings.error());
  return std::make_unique<ring_stream>(std::move(beside), std::move(*rings), side::guest);
}

ring_stream::ring_stream(std::unique_ptr<link_stream> beside, std::shared_ptr<ring_pair> memory, side of)
    : beside_(std::move(beside)),
      memory_(std::move(memory)),
      in_(of == side::maker ? memory_->from_maker : memory_->to_maker),
      out_(of == side::maker ? memory_->to_maker : memory_->from_maker) {}

/// @returns how many bytes the other end has not read, or more than fit.
std::uint64_t ring_stream::unread() const { return written_ - out_.tail.load(); }

link_stream::passed ring_stream::broken() {
  nonsense_ = true;
  return {state::broken};
}

link_stream::passed ring_stream::send(std::span<const std::byte> bytes) {
  if (over_) return {state::broken};
  auto before = unread();
  if (before == byte_ring::capacity) {
    // Either this end sees that the reader made room meanwhile, or the reader sees that this end waits.
    out_.wants_room.store(1);
    before = unread();
  }
  if (before > byte_ring::capacity) return broken();
  const auto n = std::min<std::size_t>(bytes.size(), byte_ring::capacity - before);
  if (n == 0) return {state::again};
  copy_in(out_, written_, bytes.first(n));
  published();
  written_ += n;
  out_.head.store(written_);  // likewise with `settle`
  if (const auto at = out_.wake_at.load(); at != 0 && before + n >= at) wake();
  return {state::ok, n};
}

link_stream::passed ring_stream::receive(std::span<std::byte> into) {
  const bool over = over_;  // read first, since bytes that were sent before the end are in the ring by then
  const auto here = in_.head.load() - read_;
  if (here > byte_ring::capacity) return broken();
  if (here == 0) return {over ? state::closed : state::again};
  observed();
  const auto n = std::min<std::size_t>(into.size(), here);
  copy_out(in_, read_, into.first(n));
  read_ += n;
  in_.tail.store(read_);
  if (in_.wants_room.load() != 0 && in_.wants_room.exchange(0) != 0) ring_bell();
  return {state::ok, n};
}

std::string ring_stream::why() const {
  return nonsense_ ? "the memory shared with it holds numbers that cannot be" : "it closed the connection";
}

bool ring_stream::settle() {
  in_.wake_at.store(wake_at_);
  return in_.head.load() - read_ < wake_at_;
}

void ring_stream::woken(bool told) {
  in_.wake_at.store(0, std::memory_order_relaxed);
  if (!told) return;
  std::byte rung[64];
  const auto got = beside_->receive(rung);
  if (got.at == state::closed || got.at == state::broken) over_ = true;
}

void ring_stream::wake() {
  if (out_.wake_at.load() != 0 && out_.wake_at.exchange(0) != 0) ring_bell();
}

/// Where there is no room for it others are there already.
void ring_stream::ring_bell() {
  const std::byte one{1};
  beside_->send({&one, 1});
}

}  // namespace mooncaf
