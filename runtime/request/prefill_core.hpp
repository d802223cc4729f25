#pragma once
// What a prefill worker decides about an attempt from the job to its end, but for the computing: what is
// reused and where it comes from, when it is computed, where its KV goes, and who gives its blocks back.
//
//          job            looked            pinned           slots            fetched         chunks done
//   (new) ─────► looking ────────► pinning ───────► reserving ─────► fetching ──────► queued ◄──► computing
//                             (reads the SSD,                   (only what is         ▲               │ last
//                              where it pays,                    worth it) ───────────┘               ▼ chunk
//                              if in one piece)       early, while layers come in        handed over (same
//        any state ── cancel, error ──► ended                                            node): forgotten
//                                                                                        sending (other node)
//                                                                                        ──► ended
//
// Prompts that come at once and begin alike look one after the other (prefix_turns.hpp).
//
// An attempt that computes early is not believed before its whole prefix is verified: until then its outcomes
// are held, and if the prefix turns out bad they are thrown away and computed again.
//
// A prefix comes by layers from another node or from the own SSD, by `fetch` both times. From SSD it is the
// shard that verifies and publishes the blocks, some perhaps where others are bad: then the attempt gives
// back all that it holds and pins anew what is good.
//
// "Ended" is one function: it frees the slots once nothing can write from them any more, and says so.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/request/claim_actions.hpp"
#include "runtime/sched/estimators.hpp"
#include "runtime/sched/journal/worker_journal.hpp"
#include "runtime/sched/layer_arrival.hpp"
#include "runtime/sched/load_plan.hpp"
#include "runtime/sched/prefetch_policy.hpp"
#include "runtime/sched/prefill_batch.hpp"
#include "runtime/sched/prefix_turns.hpp"

namespace mooncaf {

/// A prompt's share of a step.
struct prefill_part {
  std::uint64_t owner = 0;
  std::uint32_t start = 0, tokens = 0;  ///< positions [start, start + tokens)
  std::uint32_t reused = 0;             ///< positions before it that were not computed here
  bool last = false;                    ///< ends the prompt: a token is to be chosen
  std::uint32_t named_blocks =
      0;                 ///< leading full blocks whose content is verified: other requests may find them
  bool streams = false;  ///< its KV leaves as layers are computed
  bool stays = false;    ///< its KV never leaves this process
  std::optional<duration> patience;  ///< layers before it still come in: each is waited for so long
  std::uint32_t scored = 0;          ///< leading positions whose next token's log-probability is wanted
  bool pools = false;                ///< its hidden states are wanted
  std::vector<double> pooled;        ///< … added to these, of the parts before it
};

/// The outcome of a part. Of a step that failed only the first two lines count.
struct prefill_outcome {
  std::uint64_t owner = 0;
  std::uint32_t start = 0, tokens = 0;
  bool streamed = false;                       ///< as the part said
  std::uint32_t first_block = 0;               ///< index of the first of
  std::vector<std::uint64_t> checksums;        ///< … the full blocks that it wrote to memory, ascending
  token_msg token;                             ///< of the last part
  finish_reason finish = finish_reason::none;  ///< whether the answer ends with it
  std::vector<token_msg> scores;               ///< of `scored` positions
  std::vector<double> pooled;
};

namespace prefill_action {
/// Ask the shard which of these blocks it holds; tell `looked` or `refused`.
struct look {
  std::uint64_t owner = 0;
  block_keys_t keys;
};
using claim_action::pin;  // or tell `not_pinned`
using claim_action::release;
using claim_action::reserve;
/// Ask the messenger, who bounds it, or where the plan's source is this node the shard; tell `fetched`, with
/// nothing if it failed. By layers: tell `layers_in`, too.
struct fetch {
  std::uint64_t owner = 0;
  fetch_plan what;
  bool by_layers = false;
};
/// Tell `waited` when so much time has passed.
struct remind {
  std::uint64_t owner = 0;
  duration after{};
};
/// The fetch ends with the blocks that it has; `fetched` follows. A step that waits for its layers waits no
/// longer.
struct stop_fetch {
  attempt_id id;
};
struct commit {
  std::uint64_t owner = 0;
  std::vector<commit_item> items;
  bool fetched = false;  ///< from another node
};
/// So many blocks of a prompt, which memory missed, are on the device alone: the shard counts them as found.
struct found_on_device {
  std::uint64_t owner = 0;
  std::uint32_t blocks = 0;
};
/// The free device computes these; tell `step_ended`, and in a pipeline group `stage_free` before it.
struct compute {
  std::vector<prefill_part> parts;
};
/// A token that was chosen for it does not count: its sampler stands where it stood at first.
struct choose_again {
  std::uint64_t owner = 0;
};
/// Decode is on another node: open a stream to it. Tell `sent` when it has ended; one that is stopped or
/// fails ends, too.
struct open_stream {
  std::uint64_t owner = 0;
};
/// Where the stream goes.
struct aim {
  std::uint64_t owner = 0;
  kv_target target;
};
/// Positions [from, until) are there in all layers, and may leave.
struct send {
  std::uint64_t owner = 0;
  std::uint32_t from = 0, until = 0;
};
/// Nothing more is to leave: tell decode, with the stream's number of transfers, as soon as that is known.
struct finish_stream {
  std::uint64_t owner = 0;
  prefill_done message;
};
struct stop_stream {
  std::uint64_t owner = 0;
};
/// Decode is on this node: the blocks are its from now on.
struct hand_over {
  std::uint64_t owner = 0;
  prefill_done message;
};
/// The first token was the last one: decode need not wait.
struct stop_decode {
  std::uint64_t owner = 0;
};
/// It is over: a step that computes it may stop.
struct withdraw {
  std::uint64_t owner = 0;
};
/// The attempt is forgotten; always its last action. Cancels that wait for it are answered.
struct forget {
  std::uint64_t owner = 0;
  bool fenced = true;  ///< nothing of it can be written at decode; false: decode has to shut this node out
};
}  // namespace prefill_action

/// Orders to the worker, in order; `first_token` and `attempt_failed` go to the attempt's gateway.
using prefill_actions =
    std::vector<std::variant<prefill_action::look, prefill_action::pin, prefill_action::reserve,
                             prefill_action::fetch, prefill_action::remind, prefill_action::stop_fetch,
                             prefill_action::commit, prefill_action::found_on_device, prefill_action::compute,
                             prefill_action::choose_again, prefill_action::open_stream, prefill_action::aim,
                             prefill_action::send, prefill_action::finish_stream, prefill_action::stop_stream,
                             prefill_action::hand_over, prefill_action::stop_decode, prefill_action::withdraw,
                             prefill_action::release, prefill_action::forget, first_token, attempt_failed>>;

struct prefill_core_options {
  std::uint32_t layers = 1;
  std::uint32_t stages = 1;      ///< of a pipeline group: steps that are computed at once
  bool layerwise = true;         ///< KV leaves while it is being computed
  std::uint32_t disk_parts = 1;  ///< runs of layers in which the own disk gives blocks back
  std::size_t max_attempts = 1;
  /// A prompt waits for another that computes so many tokens of what both begin with.
  std::uint32_t shared_tokens = prefix_turns::shared_tokens;
  prefill_batch_options batch;
  prefetch_options prefetch;
  /// Leading blocks of those with `keys` that are in the device's own memory. Empty: it has none.
  std::function<std::uint32_t(std::span<const block_key> keys)> on_device;
  /// The same, and the device keeps them for the owner, if they are more than `have`; else 0.
  std::function<std::uint32_t(std::uint64_t owner, std::span<const block_key> keys, std::uint32_t have)>
      keep_on_device;
  /// Time until so many blocks of memory, the leading ones of which have these keys, are in the device's own.
  /// Empty: it has none.
  std::function<duration(std::span<const block_key> keys, std::uint32_t blocks)> to_device;
  /// Time until so many blocks of a node are here.
  std::function<duration(node_id source, std::uint32_t blocks, time_point now)> link;
  journal::sink journal{};  ///< gets its decisions; empty: nothing is written down
};

/// @thread  Owned by the prefill worker; not synchronised.
class prefill_core {
 public:
  enum class phase : std::uint8_t { looking, pinning, reserving, fetching, queued, sending };

  struct attempt {
    attempt_id id;
    node_id gateway;
    placement_msg placement;
    std::uint32_t prompt_tokens = 0;  ///< with the tokens of earlier attempts
    std::uint32_t scored_tokens = 0;  ///< leading ones whose log-probabilities are wanted; 0: none
    pooling_kind pooling = pooling_kind::none;
    std::uint32_t reusable = 0;  ///< leading blocks that need not be computed
    bool remote = false;         ///< its KV goes to another node
    std::uint8_t priority = 1;
    time_point arrived, asked, deadline;  ///< the job here, the request at its gateway, its first token
    phase at = phase::looking;
    load_plan plan;         ///< the blocks that are loaded, and the time that this may take
    time_point load_began;  ///< of the stage at work: SSD, then the other node
    block_claim claim;      ///< its blocks here, and those that it fetches
    layer_arrival arrival;
    std::uint32_t on_disk_until = 0;  ///< leading blocks that are in memory or on disk
    std::uint32_t coming = 0;         ///< blocks of the load at work, or of the last one
    bool by_layers = false;           ///< its prefix comes layer by layer
    bool from_disk = false;           ///< … from the own disk
    bool early = false;               ///< computes behind a prefix that is not verified
    bool again = false;               ///< … which failed: computed anew when nothing touches its blocks
    std::vector<std::pair<prefill_outcome, duration>> held;  ///< that nobody may see before that
    std::uint32_t computed = 0;                              ///< positions [0, computed) are in the blocks
    std::uint32_t on_device = 0;  ///< … the last of them in the device's alone, until its first pass
    prefill_stats stats;
    first_token first;           ///< outputs of the prompt for its gateway, as far as they are computed
    std::vector<double> pooled;  ///< hidden states, as far as they are computed
    bool streams = false;        ///< a stream was opened
    bool aimed = false;          ///< … and knows where to
    bool sent = false;           ///< … and has ended
    bool fenced = true;          ///< … so that nothing of it can land any more
    std::uint32_t in_steps = 0;  ///< steps that write its blocks
    bool over = false;           ///< cancelled or failed; waits until nothing touches its blocks
  };

  prefill_core(node_id self, prefill_core_options options, prefill_model computing);

  /// The actions that the calls so far led to; each is given once.
  prefill_actions take_actions() { return std::exchange(actions_, {}); }
  /// Whether this job is new here, and wanted: it is neither known nor cancelled.
  bool wants(const attempt_id& id) const;

  // ---- events ----
  /// @pre `wants(job.id)`
  void take(const work_order& job, time_point now);
  /// A job that is wanted, and that this worker can never compute.
  void turn_away(const attempt_id& id, error why);
  void looked(std::uint64_t owner, const prefix_view& here, time_point now);
  void pinned(std::uint64_t owner, std::uint32_t turn, const pinned_slots& held);
  void not_pinned(std::uint64_t owner, std::uint32_t turn, const error& why);
  void reserved(std::uint64_t owner, std::span<const slot_index> slots, time_point now);
  /// The shard refused the order of the attempt.
  void refused(std::uint64_t owner, const error& why);
  void fetched(std::uint64_t owner, const remote_blocks& got, time_point now);
  /// So many leading layers of the fetched blocks are in.
  void layers_in(std::uint64_t owner, std::uint32_t layers, time_point now);
  void waited(std::uint64_t owner, time_point now);
  /// The first stage of the group can take the next step.
  void stage_free(time_point now);
  /// The oldest step has ended. @param took  the whole of it. @param failure  code none: all of it was computed.
  void step_ended(std::vector<prefill_outcome> outcomes, duration took, const error& failure, time_point now);
  /// Decode's slots; may come before the job.
  void target(const kv_target& where, time_point now);
  /// Its stream has ended. @param fenced  nothing of it can land any more.
  void sent(std::uint64_t owner, bool delivered, bool fenced);
  /// @returns whether it was not here, so that nothing of it can be written anywhere; else `forget` says so.
  bool cancel(const attempt_id& id, time_point now);
  void peer_lost(node_id peer);
  /// Ends attempts that the gateway has lost sight of. @returns those of the call that are not here, and
  /// those that wait for the slots to write to.
  roll_answer answer_roll(const roll_call& call);
  /// Gives up attempts whose job or target never came, and hands over the journal. @returns owners whose leases go on.
  std::vector<std::uint64_t> sweep(time_point now);
  void fail(std::uint64_t owner, error cause, bool retriable);
  /// Nothing is computed here any more: attempts that still need it are given back, now and whenever they
  /// come; computed ones go on to decode. A step at work ends as ever.
  void device_lost(error why);
  /// The process leaves: gives prompts back that are not computed yet, and takes no more.
  void leave(error why);

  /// Null if it is not here.
  attempt* find(std::uint64_t owner);
  /// Nothing more is written down.
  void close_journal() { decisions_.close(); }
  std::size_t size() const noexcept { return attempts_.size(); }
  /// All but the worker's id and its device's failure.
  worker_load load() const;

 private:
  // The reused prefix (prefill_loading.cpp).
  void begin_look(const attempt& a);
  /// Other prompts can find so much of it.
  void publish(const attempt& a);
  void look_in_turn();
  void weigh(attempt& a, const prefix_view& here, time_point now);
  void pin(attempt& a, std::uint32_t from_ssd, time_point now);
  void fetch(attempt& a, time_point now);
  void adopt_from_device(attempt& a);
  /// Loads the blocks behind those that are here, up to `until`.
  void load(attempt& a, node_id source, std::uint32_t until, duration expected, time_point now);
  /// The load went wrong, or took too long: the attempt pins anew the blocks that are here.
  void pin_again(attempt& a, std::uint32_t from_ssd, time_point now);
  std::uint32_t adopt(attempt& a, const remote_blocks& got);
  /// Whether nothing is being computed and nothing waits to be.
  bool idle() const noexcept { return steps_ == 0 && queue_.size() == 0; }
  /// Tokens that the stage at work loads; 0: none is.
  std::uint32_t tokens_loading(const attempt& a) const;
  void remind(const attempt& a);
  /// Ends loading if its time is over.
  void maybe_stop(attempt& a, time_point now);
  void stop_loading(const attempt& a);
  /// Stops loads that the idle device does not wait for, and begins with the most urgent request whose layers
  /// come in fast enough.
  void use_idle_device(time_point now);
  duration first_pass(const attempt& a) const;
  void begin_early(attempt& a, time_point now);
  /// The prefix of an early attempt is verified, or is not to be had.
  void settle(attempt& a, const remote_blocks& got, time_point now);
  void compute_again(attempt& a, time_point now);

  std::uint32_t tokens_of(std::uint32_t blocks) const noexcept {
    return blocks * options_.batch.block_tokens;
  }
  void enqueue(attempt& a, time_point now);
  /// Tokens that are left to compute.
  void queue(const attempt& a);
  /// @param sure  leading positions that may leave.
  void open_stream(attempt& a, std::uint32_t sure);
  void step(time_point now);
  /// The time of one stage in a step that has ended.
  duration stage_time(duration took, time_point now) const;
  prefill_part part_of(attempt& a, const prefill_chunk& chunk);
  void part_ended(prefill_outcome&& outcome, duration took, const error& failure, time_point now);
  void use(attempt& a, prefill_outcome&& outcome, duration took);
  /// All is computed: tells the first token, and sees to it that decode gets the KV.
  void answer(attempt& a, const token_msg& token, finish_reason finish);
  void end(std::uint64_t owner);

  node_id self_;
  prefill_core_options options_;
  prefill_model computing_model_;  ///< as calibrated, refined by every pass
  journal::worker_journal decisions_;
  prefetch_policy prefetch_;
  prefill_batch queue_;
  prefix_turns turns_;
  std::unordered_map<std::uint64_t, attempt> attempts_;  ///< by owner
  std::unordered_map<std::uint64_t, std::pair<kv_target, time_point>> early_targets_;
  std::unordered_map<std::uint64_t, time_point> cancelled_early_;  ///< cancels that overtook their job
  bool entered_ = false;                                           ///< a step is at the first stage
  std::uint32_t steps_ = 0;                                        ///< that are being computed
  bool beside_ = false;                                            ///< … since when the last one ended
  time_point last_end_{};                                          ///< of a step
  duration busy_{};                                                ///< that steps took, since the start
  bool step_waits_ = false;                                        ///< the step at work waits for layers
  std::optional<error> lost_;  ///< why the device computes nothing any more
  bool leaving_ = false;       ///< … it is whole, and its process leaves
  prefill_actions actions_;
};

}  // namespace mooncaf
