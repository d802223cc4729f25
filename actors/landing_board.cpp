#include "actors/landing_board.hpp"

#include <utility>

namespace mooncaf {

void landing_board::open(std::uint64_t owner, callback on_complete) {
  const std::lock_guard lock{mutex_};
  entries_[owner] = entry{std::move(on_complete), 0, std::nullopt};
}

void landing_board::landed(std::uint64_t owner, bool verified) {
  std::unique_lock lock{mutex_};
  const auto i = entries_.find(owner);
  if (i == entries_.end()) return;
  if (!verified) return settle(lock, i, false);
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
