#pragma once
// A node's knowledge of its links: the price of every path to every peer, and the bytes under way on it.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/sched/transfer_price.hpp"

namespace mooncaf {

/// A path to a peer as it was learned.
struct link_view {
  node_id peer;
  std::uint8_t path = 0;  ///< as the transport numbers them
  double bytes_per_s = 0;
  duration latency{};
  std::uint64_t samples = 0;
};

/// Every transfer of this node is entered when it begins and when it ends. Transfers to one peer share its
/// link: one that begins behind others is expected to wait for their bytes, and its time is held against all
/// of these bytes together.
/// @thread  Safe: fetches, hand-overs and workers that weigh a fetch use it from threads of their own.
class link_book {
 public:
  /// @param assumed  the price of a path before any was used.
  explicit link_book(const transfer_price& assumed = {}) : assumed_(assumed) {}

  /// @returns bytes ahead of it, to be given back to `ended`.
  std::uint64_t began(node_id peer, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    return std::exchange(under_way_[peer], under_way_[peer] + bytes);
  }
  /// @param learn  false: it failed, or it moved something else than a lone transfer would.
  void ended(node_id peer, std::uint8_t path, std::uint64_t bytes, std::uint64_t ahead, duration took,
             bool learn, time_point now) {
    const std::lock_guard lock{mutex_};
    if (const auto i = under_way_.find(peer); i != under_way_.end()) {
      i->second -= std::min(i->second, bytes);
      if (i->second == 0) under_way_.erase(i);
    }
    if (!learn) return;
    prices_[{peer, path}].observe(bytes + ahead, took, now);
    paths_[path].observe(bytes + ahead, took, now);
  }
  /// How long `bytes` take from or to this peer if they start now.
  duration estimate(node_id peer, std::uint8_t path, std::uint64_t bytes, time_point now) const {
    const std::lock_guard lock{mutex_};
    const auto ahead = under_way_.find(peer);
    return price(peer, path, now).estimate(bytes + (ahead == under_way_.end() ? 0 : ahead->second));
  }
  void forget(node_id peer) {
    const std::lock_guard lock{mutex_};
    std::erase_if(prices_, [&](const auto& e) { return e.first.first == peer; });
  }
  /// Everything learned, by peer and path.
  std::vector<link_view> view(time_point now) const {
    const std::lock_guard lock{mutex_};
    std::vector<link_view> out;
    for (const auto& [at, learned] : prices_) out.push_back(view_of(at, learned, now));
    return out;
  }
  /// What was learned of one path; nothing if it was never used.
  std::optional<link_view> view(node_id peer, std::uint8_t path, time_point now) const {
    const std::lock_guard lock{mutex_};
    const auto i = prices_.find({peer, path});
    if (i == prices_.end()) return std::nullopt;
    return view_of(i->first, i->second, now);
  }

 private:
  /// A peer's path that was not used for long costs what the same path costs with all peers together.
  transfer_price price(node_id peer, std::uint8_t path, time_point now) const {
    const auto of_path = paths_.find(path);
    const auto usual = of_path == paths_.end() ? assumed_ : of_path->second.at(now, assumed_);
    const auto i = prices_.find({peer, path});
    return i == prices_.end() ? usual : i->second.at(now, usual);
  }
  link_view view_of(const std::pair<node_id, std::uint8_t>& at, const ageing_price& learned,
                    time_point now) const {
    const auto p = price(at.first, at.second, now);
    return {at.first, at.second, p.bytes_per_s(), p.latency(), learned.samples()};
  }

  const transfer_price assumed_;
  mutable std::mutex mutex_;
  std::map<std::pair<node_id, std::uint8_t>, ageing_price> prices_;
  std::map<std::uint8_t, ageing_price> paths_;  // with all peers
  std::map<node_id, std::uint64_t> under_way_;  // bytes
};

}  // namespace mooncaf
