#pragma once
// Notices that leader and ranks of a group send each other by transfers, beside KV.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// leader ── call: order and rows in the rank's memory ──► rank
///        ◄── layer: its KV is in the leader's pages ──
///        ◄── reply: the outcome and rows in the leader's memory ──
///        ── quiet: nothing, which arrives as long as the rank is there; likewise the rank's KV ──►
///
/// ranks of a tensor group, each to each:
///        ── columns: its share of a tensor's columns in the other's memory ──►
///        ── mapped: likewise the first ones, from a rank that has mapped the other's memory ──►
///        ── broken: the pass ends here, there will be no more columns ──►
enum class rank_notice : std::uint32_t {
  call = 1,
  layer = 2,
  reply = 3,
  columns = 4,
  mapped = 5,
  broken = 6,
  quiet = 7
};

/// Transfers with this request are notices; KV has the number of an attempt's owner, which is never 0.
inline constexpr request_id notice_request{0};

/// A node whose notices do not come is asked this often whether it is still there.
inline constexpr auto peer_look = std::chrono::milliseconds(250);

/// Notices that have landed, until they are asked for. @thread  Safe.
class rank_notices {
 public:
  struct notice {
    rank_notice kind{};
    std::uint32_t call =
        0;  ///< number of the call that it belongs to; columns, mapped: how often the group has gathered
    std::uint32_t value = 0;  ///< layer: which; call and reply: bytes; of an exchange: number of the group
  };
  /// Notices of a node come in two streams, each with a reader of its own: of the leader's calls, and of an exchange.
  enum class stream : std::uint8_t { calls, exchange };

  static transfer_tag tag_of(const notice& n) noexcept {
    return {notice_request, n.call, n.value, static_cast<std::uint32_t>(n.kind)};
  }

  /// @returns false: it is an attempt's KV, and somebody else's business. Damaged notices count as not sent: whoever sent
  /// them hears of it.
  bool take(const landing& l) {
    if (l.tag.request != notice_request) return false;
    const notice n{static_cast<rank_notice>(l.tag.kind), l.tag.chunk, l.tag.layer};
    if (!l.verified || l.tag.kind >= static_cast<std::uint32_t>(rank_notice::quiet)) return true;
    {
      const std::lock_guard lock{mutex_};
      const bool exchanged = n.kind >= rank_notice::columns;
      auto& of = waiting_[{l.from, exchanged ? stream::exchange : stream::calls}];
      // A peer may send without end, and its notices may never be asked for.
      if (of.size() < 4096) of.push_back(n);
    }
    changed_.notify_all();
    return true;
  }
  /// The next one of this node; nothing if none comes in time.
  std::optional<notice> next(node_id from, stream which, duration limit) {
    std::unique_lock lock{mutex_};
    auto& of = waiting_[{from, which}];
    if (!changed_.wait_for(lock, limit, [&] { return !of.empty(); })) return std::nullopt;
    const auto n = of.front();
    of.pop_front();
    return n;
  }
  /// Drops a stream's notices.
  void forget(node_id node, stream which) {
    const std::lock_guard lock{mutex_};
    waiting_[{node, which}].clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<node_id, stream>, std::deque<notice>> waiting_;
};

}  // namespace mooncaf
