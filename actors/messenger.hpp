#pragma once
// The messenger: fetches prefix blocks from other nodes, and fences peers. A mailbox around the data plane,
// which moves the bytes on threads of its own.
//
//            peer_up                     peer_down, fence                    no byte can land
//   absent ──────────► admitted ──────────────────────────────► shutting ─────────────────────► absent
//                                     (a peer_up that comes now waits)  │  └─ cannot be said yet ─► tries
//                                     again
//                                                                       └─► fences answered

#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "actors/cluster/guarded_request.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"

namespace mooncaf {

class messenger final : public messenger_actor::base {
 public:
  messenger(caf::actor_config& config, context_ptr context, executor_actor blocking);

  const char* name() const override { return "mooncaf.messenger"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// A peer that is shut out, until no byte of it can land.
  struct shutting {
    std::optional<node_info> next;  ///< it was greeted anew in the meantime
    std::vector<caf::response_promise> waiting;
  };

  void up(const node_info& peer);
  void admit(const node_info& peer);
  void down(node_id peer);
  caf::result<void> fence(node_id peer, std::uint64_t fences);
  void shut(node_id peer);
  void closed(node_id peer);

  /// A node that pinned blocks for a fetch.
  struct sender {
    node_id node;
    remote_blocks held;           ///< behind the plan's `skip`
    std::uint32_t under_way = 0;  ///< pieces
  };
  /// A fetch from the pin at its source to the answer. Its bytes come as pieces, each a transfer of its own:
  /// runs of whole blocks, verified as they arrive, or layers of all blocks, verified at the end. The source
  /// says what is wanted; a piece comes from it, or from one of those who have the same blocks beside it.
  struct reading {
    fetch_plan plan;
    prefix_load_ptr load;  ///< null: in runs
    caf::response_promise reply;
    remote_blocks wanted;           ///< as they lie at the source
    std::vector<sender> senders;    ///< the source first; who failed has no blocks any more
    std::vector<bool> arrived;      ///< by piece
    std::uint32_t submitted = 0;    ///< pieces, in order
    std::uint32_t end = 0;          ///< the first piece that nobody can send any more, or all
    std::set<std::uint32_t> again;  ///< that somebody did not deliver
    std::vector<transfer_id> under_way;
    bool begun = false;    ///< the source has answered
    bool stopped = false;  ///< no more pieces are begun
    error failure;         ///< of the first piece that failed
  };
  using reading_ptr = std::shared_ptr<reading>;

  caf::result<remote_blocks> fetch(const fetch_plan& plan, prefix_load_ptr load);
  void pin_beside(const reading_ptr& work);
  /// Somebody beside the source has pinned blocks.
  void join(const reading_ptr& work, sender other);
  void begin(const reading_ptr& work, remote_blocks held);
  /// Submits what may be under way; answers when nothing is and nothing more will be.
  void go_on(const reading_ptr& work);
  std::uint32_t pieces(const reading& work) const;
  std::vector<slice_pair> slices_of(const reading& work, std::uint32_t piece,
                                    const remote_blocks& there) const;
  /// Blocks that a piece is of, from the first.
  static std::uint32_t blocks_until(const reading& work, std::uint32_t piece);
  /// Who sends the piece; null: all who could have enough to do.
  static sender* sender_for(reading& work, std::uint32_t piece);
  /// Whether somebody has what the piece is of, busy or not.
  static bool can_come(const reading& work, std::uint32_t piece);
  void submit(const reading_ptr& work, std::uint32_t piece, sender& from);
  void arrived(const reading_ptr& work, std::uint32_t piece, transfer_id id, node_id from,
               const error& failure);
  void stop(const attempt_id& id);
  void finish(const reading_ptr& work);
  /// The checksums of all blocks, on a thread of its own, since layers came without.
  void finish_load(const reading_ptr& work);
  void verify(const reading_ptr& work);
  void let_go(const reading& work);
  transfer_report report();

  /// Logs what happened to the rails since the last look.
  void tell_of_rails(std::vector<rail_stats> now);

  context_ptr context_;
  executor_actor blocking_;                                ///< fencing waits for peers
  request_guard<messenger> guard_{this};                   ///< of requests to peers
  std::unordered_map<node_id, cache_shard_actor> shards_;  ///< of the peers
  std::unordered_map<node_id, shutting> shutting_;
  std::vector<node_id> fenced_;                                                  ///< not greeted anew since
  std::unordered_map<std::uint64_t, std::function<void(const error&)>> pieces_;  ///< under way, by ticket
  std::unordered_map<std::uint64_t, reading_ptr> reading_;                       ///< by reader
  std::uint64_t next_ticket_ = 1;
  std::vector<rail_stats> seen_rails_;
};

}  // namespace mooncaf
