#pragma once
// A node's knowledge of its links: the price of every path to every peer, and the bytes under way on it.

#include <algorithm>
#include <array>
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

/// Whether bytes come to this node or leave it: the two do not wait for each other.
enum class link_flow : std::uint8_t { in, out };

/// Every transfer of this node is entered when it begins and when it ends. Transfers that flow the same way share
/// the node's network, so one that took long need not have had a slow link: it may have waited for the bytes of
/// others. A price is what a lone transfer would take, and it stays where the time can be explained so.
/// @thread  Safe: fetches, hand-overs and workers that weigh a fetch use it from threads of their own.
class link_book {
 public:
  /// A transfer under way, to be given back to `ended`.
  struct entry {
    node_id peer;
    link_flow flow = link_flow::in;
    std::uint64_t bytes = 0;
    std::uint64_t past = 0;  ///< bytes of this flow that had ended by then
  };

  /// @param assumed  the price of a path before any was used.
  explicit link_book(const transfer_price& assumed = {}) : assumed_(assumed) {}

  entry began(node_id peer, link_flow flow, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    auto& all = flows_[static_cast<std::size_t>(flow)];
    all.begun += bytes;
    return {peer, flow, bytes, all.ended};
  }
  /// @param learn  false: it failed, or it moved something else than a lone transfer would.
  void ended(const entry& e, std::uint8_t path, duration took, bool learn, time_point now);
  /// How long it takes to fetch `bytes` from this peer if that begins now, behind all that comes already.
  duration estimate(node_id peer, std::uint8_t path, std::uint64_t bytes, time_point now) const {
    const std::lock_guard lock{mutex_};
    const auto& in = flows_[static_cast<std::size_t>(link_flow::in)];
    return price(peer, path, now).estimate(bytes + in.begun - in.ended);
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
  struct bytes_so_far {
    std::uint64_t begun = 0, ended = 0;
  };
  std::array<bytes_so_far, 2> flows_;
};

}  // namespace mooncaf
