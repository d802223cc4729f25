#pragma once
// What a pool keeper decides: which copies to make next, and from whom, without its mailbox.
//
//   order ──► waits for its source ──► pin what is here ──► reserve the rest ──► fetch ──► commit, release
//                                            └── all is here, or something fails ────────► release

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/request_ids.hpp"
#include "runtime/request/claim_actions.hpp"

namespace mooncaf {

/// Orders to the actor, in order.
namespace copy_action {
using claim_action::commit;
using claim_action::pin;
using claim_action::release;
using claim_action::reserve;
/// Ask the messenger: tell `fetched`, with nothing if it failed; until then blocks may arrive.
struct fetch {
  std::uint64_t owner = 0;
  fetch_plan what;
};
}  // namespace copy_action

using copy_actions = std::vector<std::variant<copy_action::pin, copy_action::reserve, copy_action::fetch,
                                              copy_action::commit, copy_action::release>>;

/// One order is at work at a time. @thread  Owned by the pool keeper; not synchronised.
class copy_core {
 public:
  explicit copy_core(node_id self) : ids_(self, request_issuer::pool_keeper) {}

  /// The actions that the calls so far led to; each is given once.
  copy_actions take_actions() { return std::exchange(actions_, {}); }

  void take(const keep_order& order);
  void peer_up(node_id peer);
  /// Its orders are forgotten; a fetch from it that is under way ends by itself.
  void peer_down(node_id peer);
  void pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held);
  void reserved(std::uint64_t owner, std::span<const slot_index> slots);
  void refused(std::uint64_t owner);
  void fetched(std::uint64_t owner, const remote_blocks& got);
  /// Nothing is done any more.
  void close();

  /// The owner of the copy under way: the actor renews its lease.
  std::optional<std::uint64_t> at_work() const;

 private:
  struct copy {
    node_id source;
    std::uint32_t blocks = 0;
    block_claim claim;
  };
  bool is_at_work(std::uint64_t owner) const { return working_ && working_->claim.owner() == owner; }
  void next();
  /// Frees slots that were not committed, and goes on with the next order.
  void done();

  std::unordered_set<node_id> peers_;
  std::deque<keep_order> waiting_;
  std::optional<copy> working_;
  request_ids ids_;
  copy_actions actions_;
};

}  // namespace mooncaf
