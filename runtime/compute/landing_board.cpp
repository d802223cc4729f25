#include "runtime/compute/landing_board.hpp"

#include <utility>

namespace mooncaf {

void landing_board::open(std::uint64_t owner, callback on_complete, piece_callback on_piece) {
  entry made{std::move(on_complete), nullptr, 0, std::nullopt};
  if (on_piece) made.on_piece = std::make_shared<const piece_callback>(std::move(on_piece));
  const std::lock_guard lock{mutex_};
  entries_[owner] = std::move(made);
}

void landing_board::landed(std::uint64_t owner, bool verified, const kv_piece& what) {
  std::unique_lock lock{mutex_};
  auto i = entries_.find(owner);
  if (i == entries_.end()) return;
  if (!verified) return settle(lock, i, false);
  // Before it counts, so that whoever completes the count comes after all pieces.
  if (const auto tell = i->second.on_piece) {
    lock.unlock();
    (*tell)(what);
    lock.lock();
    i = entries_.find(owner);
    if (i == entries_.end()) return;
  }
  ++i->second.landed;
  if (i->second.expected == i->second.landed) settle(lock, i, true);
}

void landing_board::expect(std::uint64_t owner, std::uint32_t count) {
  std::unique_lock lock{mutex_};
  const auto i = entries_.find(owner);
  if (i == entries_.end()) return;
  i->second.expected = count;
  if (i->second.landed >= count) settle(lock, i, true);
}

void landing_board::settle(std::unique_lock<std::mutex>& lock,
                           std::unordered_map<std::uint64_t, entry>::iterator i, bool ok) {
  const auto call = std::move(i->second.on_complete);
  entries_.erase(i);
  lock.unlock();
  call(ok);
}

void landing_board::close(std::uint64_t owner) {
  const std::lock_guard lock{mutex_};
  entries_.erase(owner);
}

std::size_t landing_board::size() const {
  const std::lock_guard lock{mutex_};
  return entries_.size();
}

}  // namespace mooncaf
