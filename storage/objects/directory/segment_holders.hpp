#pragma once
// Which session has mounted which segment, of memory or of an SSD, and how clients reach that memory.

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "storage/objects/wire/store_wire.hpp"

namespace mooncaf {

/// A segment has one holder as long as it is mounted. A session keeps the right to speak of a segment that it
/// had mounted until it ends, so that a word about one that was just given up is no breach of the protocol.
/// @thread  not synchronised
class segment_holders {
 public:
  void mount(std::uint32_t segment, std::uint64_t session, store_wire::peer_release holder,
             store_wire::segment_address address = {}) {
    mounted_[segment] = {session, std::move(holder), std::move(address)};
    had_[session].push_back(segment);
  }
  void unmount(std::uint32_t segment) { mounted_.erase(segment); }
  bool is_mounted(std::uint32_t segment) const { return mounted_.count(segment) != 0; }
  /// @returns the session; zero if the segment is not mounted.
  std::uint64_t of(std::uint32_t segment) const {
    const auto found = mounted_.find(segment);
    return found == mounted_.end() ? 0 : found->second.session;
  }
  /// @pre it is mounted
  const store_wire::segment_address& address(std::uint32_t segment) const {
    return mounted_.at(segment).address;
  }
  /// The process that mounts it. @pre it is mounted
  const store_wire::peer_release& holder(std::uint32_t segment) const { return mounted_.at(segment).holder; }

  /// Whether the session has mounted the segment, now or before.
  bool has(std::uint64_t session, std::uint32_t segment) const {
    const auto& all = of_session(session);
    return std::find(all.begin(), all.end(), segment) != all.end();
  }
  /// All segments that the session has mounted, now or before, in this order.
  const std::vector<std::uint32_t>& of_session(std::uint64_t session) const {
    static const std::vector<std::uint32_t> none;
    const auto found = had_.find(session);
    return found == had_.end() ? none : found->second;
  }
  void end_session(std::uint64_t session) { had_.erase(session); }

  /// Calls `tell(segment, session)` for all that are mounted, by their numbers.
  template <class F>
  void each(const F& tell) const {
    for (const auto& [segment, m] : mounted_) tell(segment, m.session);
  }

 private:
  struct mounted_by {
    std::uint64_t session;
    store_wire::peer_release holder;
    store_wire::segment_address address;
  };
  std::map<std::uint32_t, mounted_by> mounted_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> had_;
};

}  // namespace mooncaf
