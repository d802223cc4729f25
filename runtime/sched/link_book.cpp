#include "runtime/sched/link_book.hpp"

namespace mooncaf {

void link_book::ended(const entry& e, std::uint8_t path, duration took, bool learn, time_point now) {
  const std::lock_guard lock{mutex_};
  auto& all = flows_[static_cast<std::size_t>(e.flow)];
  all.ended += e.bytes;
  if (!learn) return;
  // In its time its own bytes moved at least, and at most all that were under way meanwhile.
  const auto most = all.begun - e.past;
  const bool known = paths_.contains(path);
  const auto moved = known ? std::clamp(price(e.peer, path, now).bytes_in(took), e.bytes, most) : most;
  prices_[{e.peer, path}].observe(moved, took, now);
  paths_[path].observe(moved, took, now);
}

}  // namespace mooncaf
