#include "runtime/compute/prefix_load.hpp"

#include <utility>

namespace mooncaf {

prefix_load::prefix_load(std::uint32_t layers, std::function<void()> on_progress)
    : on_progress_(std::move(on_progress)), in_(layers) {}

void prefix_load::landed(std::uint32_t first, std::uint32_t count) {
  std::unique_lock lock{mutex_};
  for (auto layer = first; layer < first + count && layer < in_.size(); ++layer) in_[layer] = true;
  ++landings_;
  const auto before = leading_;
  while (leading_ < in_.size() && in_[leading_]) ++leading_;
  const bool more = leading_ > before;
  lock.unlock();
  changed_.notify_all();
  if (more && on_progress_) on_progress_();
}

void prefix_load::give_up() {
  {
    const std::lock_guard lock{mutex_};
    given_up_ = true;
  }
  changed_.notify_all();
}

bool prefix_load::wait(std::uint32_t layer, duration patience) {
  std::unique_lock lock{mutex_};
  while (!given_up_ && leading_ <= layer) {
    const auto seen = landings_;
    const bool moved =
        changed_.wait_for(lock, patience, [&] { return given_up_ || leading_ > layer || landings_ != seen; });
    if (!moved) return false;
  }
  return !given_up_;
}

std::uint32_t prefix_load::leading() const {
  const std::lock_guard lock{mutex_};
  return leading_;
}

}  // namespace mooncaf
