#pragma once
// The conductor without its mailbox: the list of members, their questions and the ends of what was placed,
// and what their shards announce. What the conductor actor and a simulated cluster both call, with time as an
// argument. Soft state only: after a restart nodes join again and shards announce what they hold.
//
//   join ──► member ── report ──► … ── leave, or silent for `heartbeat_limit` ──► forgotten, with all that
//   its
//              │                                             clients asked for and were charged for
//              └── told with the next report that it is none ◄── it lives: it joins again

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/request/cluster_board.hpp"
#include "runtime/request/leadership_core.hpp"
#include "runtime/request/schedule_core.hpp"
#include "runtime/sched/event_stream.hpp"
#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sched/shadow_core.hpp"

namespace mooncaf {

/// A node, as far as decisions need to know it.
struct member_card {
  node_id id;
  std::vector<instance_desc> workers;
  bool has_shard = false;
  bool keeps_copies = false;  ///< it has a pool keeper
  std::uint32_t seat = 0;     ///< as in its introduction
  // For people:
  std::string name{};
  std::string roles{};
  std::string host{};

  /// It stores and does not compute: it keeps copies of other nodes' blocks.
  bool is_pool() const noexcept { return keeps_copies && workers.empty(); }
};

/// Orders to the conductor: answer a question; have a shard send a snapshot and every change after it; have a
/// node copy blocks; note that a member was dropped, or that a charge expired whose end no gateway reported.
struct answer_question {
  schedule_core::ticket asked = 0;
  placement_msg where;
};
struct follow_shard {
  node_id node;
};
struct copy_blocks {
  node_id target;
  keep_order order;
};
struct member_left {
  node_id node;
};
/// Log it: the last resort, as charges go with their gateway's membership.
struct charge_expired {
  request_id charge;
};
/// Tell a member whom to obey, and `answered` what it says.
struct claim_lead {
  node_id member;
  lead_claim claim;
};
/// Log what this conductor has decided by itself, of which nobody hears: whether it leads, who plays which role.
struct log_turn {
  std::string event;
  std::string about;   ///< a member, a term
  std::string stands;  ///< "leaves prefill"
  std::string why;
};
/// Tell what goes with the leader how long this conductor may lead.
struct tell_right {
  lead_right right;
};
/// Tell whoever starts and stops nodes how many there should be, and log it.
struct tell_wish {
  std::string wanted;  ///< `counts_of`
  std::string loads;   ///< by which it was decided
};
/// Play these minutes under each rule of admission (`rules_to_play`) and with what else could be different, and
/// `played` how that went.
struct play_minutes {
  shadow_question question;
};
using conductor_action = std::variant<answer_question, follow_shard, copy_blocks, member_left, charge_expired,
                                      claim_lead, log_turn, tell_right, tell_wish, play_minutes>;

/// @thread  Owned by the conductor; not synchronised.
class cluster_core {
 public:
  /// @param lead  whether this conductor is the one that places requests; unless given there is no other.
  cluster_core(const conductor_options& core, admission_queue_options queue, journal::sink journal = {},
               leadership_core lead = {{}, 0, 1, {}});

  /// The actions that the calls so far led to; each is given once.
  std::vector<conductor_action> take_actions();

  // ---- members ----
  /// A node that was a member before leaves first. @error of `conductor_core::add_node`.
  result<void> join(const member_card& node, time_point now);
  void leave(node_id node, time_point now);
  bool is_member(node_id node) const { return members_.contains(node); }
  standing report(const node_report& message, time_point now);

  // ---- requests ----
  /// An `answer_question` with this ticket follows, now or later.
  void ask(const schedule_job& job, schedule_core::ticket asked, time_point now);
  void event(const request_event& e, time_point now);

  // ---- blocks ----
  void blocks(const block_event_batch& batch);

  // ---- admission `adaptive` ----
  /// A `play_minutes` was carried out. @param took  processor time.
  void played(const played_minutes& played, duration took, time_point now);

  // ---- other conductors ----
  /// To be called every `lead_interval`, which is a day where there are none.
  void lead_tick(time_point now);
  duration lead_interval() const;
  /// As `leadership_core` has them.
  void heard(const lead_claim& claim, time_point now);
  void answered(node_id from, const lead_claim& claim, time_point sent, const lead_vote& vote,
                time_point now);

  /// To be called twice a second: silent members, questions that wait, hot blocks, the journal.
  void tick(time_point now);
  /// No question is answered after it.
  void close();

  const conductor_core& scheduler() const noexcept { return scheduler_; }
  const schedule_core& questions() const noexcept { return questions_; }
  const admission_queue& queue() const noexcept { return queue_; }
  /// The cluster for people; the model's name and the conductor's uptime are for the caller to add.
  cluster_status status(time_point now) const;

 private:
  struct member {
    member_card card;
    event_stream stream;                   ///< the announcements of its shard
    bool draining = false;                 ///< it was told to stop: nothing is placed there
    std::unordered_set<worker_id> away{};  ///< of its workers
  };

  /// Forgets a member of which the core has dropped everything.
  void forget(node_id node, time_point now);
  /// Only an answer that came to its own end teaches the scheduler how long answers take.
  void over(const request_event& e, time_point now);
  /// A node that was told to stop finishes its requests.
  void drain(node_id node);
  /// Whether there is nobody else for the work of one of its workers.
  bool last_of_a_role(const member& leaving) const;
  /// A worker whose device failed; its node stays.
  void drop_worker(node_id node, worker_id worker);
  void follow_absence(member& m, const worker_load& worker);
  /// Takes over the prices that the node measured of its links and its disk.
  void learn_prices(const node_report& message);
  /// Tells the pool which of these blocks to copy.
  void offer(const block_event_batch& batch);
  void copy_hot_blocks(time_point now);
  void assign_roles(time_point now);
  void wish_nodes(time_point now);
  /// Something may have made room.
  void advance(time_point now);
  /// This conductor may have become the leader, or be it no more.
  void turn(time_point now);
  lead_status lead_of(time_point now) const;
  admission_status admission() const;
  request_counts counters() const;

  journal::recorder journal_;
  recorded_core scheduler_;
  recorded_queue queue_;
  schedule_core questions_;
  std::unordered_map<node_id, member> members_;
  leadership_core lead_;
  lead_right told_;
  bool placing_ = false;  ///< it led when it last changed; and the term in which it placed last
  std::uint64_t placed_term_ = 0;
  std::uint64_t roster_ = 0;  ///< grows with every join and leave
  cluster_board board_;
  scale_wish wish_;  ///< that was told last
  shadow_core shadow_;
  request_counts totals_;   ///< ends that gateways reported; the scheduler and the queue count the others
  std::uint64_t gaps_ = 0;  ///< in the announcements of shards: resyncs that were needed
  std::vector<conductor_action> actions_;
};

}  // namespace mooncaf
