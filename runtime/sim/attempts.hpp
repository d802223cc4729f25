#pragma once
// The way of a request from its question for a place to its end, whatever breaks in between.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/sched/journal/recorded_core.hpp"
#include "runtime/sim/arrivals.hpp"
#include "runtime/sim/decode_instance.hpp"
#include "runtime/sim/step_history.hpp"
#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Plays the gateway: asks the conductor through the production admission queue, counts how requests end, and
/// tries a request again if its machine died (`retry_rules`). Every request ends exactly once: completed,
/// refused, or failed.
class attempts {
 public:
  /// @param w, source  outlive this.
  attempts(world& w, arrivals& source);

  // ---- places ----
  void ask(std::uint32_t slot);
  /// Requests that wait for a place may get one. A first token or an end does as much.
  void look_for_room();
  /// Decisions that the calls so far led to, about any request; each is given once. The caller acts on each.
  std::vector<decision> take_decisions() { return std::exchange(decided_, {}); }
  /// There was no place: a request that lost its machine tries again, and another one that has not waited
  /// too long.
  void unplaced(std::uint32_t slot, const rejection& why);

  // ---- ends, and first tokens ----
  void refuse(std::uint32_t slot, const rejection& why);
  /// The same of a request that had a place.
  void refuse_placed(std::uint32_t slot, const rejection& why);
  void first_token(std::uint32_t slot);
  /// @param tbt  seconds.
  void finish(std::uint32_t slot, double tbt);

  // ---- machines that die ----
  /// A member of a batch got so far before its machine died.
  void torn(const torn_answer& answer);
  /// A machine died with it: another attempt, with the tokens that the client has behind the prompt. Others may
  /// die with that one: there is no look for room before it is known which.
  void lose(std::uint32_t slot);
  /// Gaps between tokens that earlier attempts of a request made.
  std::span<const token_gaps::value_type> gaps_before(std::uint32_t slot) const;
  /// TBT of an answer that ends with the token that prefill gave.
  double tbt_of_before(std::uint32_t slot) const;

  /// Requests that missed an SLO, were refused or failed, as far as is known.
  std::uint64_t missed() const noexcept { return missed_; }
  /// The longest answer that a scheduler is told to expect.
  std::uint32_t max_tokens_of(const request_state_record& r) const noexcept;

 private:
  /// Earlier attempts of a request that was lost; its record describes the attempt under way.
  struct past_attempts {
    token_gaps gaps;        ///< of its answer so far
    ticks first_token = 0;  ///< of the answer; 0: there is none yet
    ticks last_token = 0;
    ticks placing_since = 0;     ///< when it was last known to have a place
    double prefill_seconds = 0;  ///< spent in vain
    std::uint32_t attempt = 0, losses = 0;
  };

  void count_refusal(const request_state_record& r, const rejection& why);
  void resumes(std::uint32_t slot);
  void try_later(std::uint32_t slot);
  void give_up(std::uint32_t slot);
  void close(std::uint32_t slot);
  past_attempts& past_of(std::uint32_t slot);
  void count(const request_state_record& r, const request_counts& what) {
    w_.out.count(r.priority, r.share.owner, what);
  }

  world& w_;
  arrivals& source_;
  recorded_queue queue_;
  std::vector<decision> decided_;
  std::unordered_map<std::uint32_t, past_attempts> past_;  // by slot
  std::uint64_t missed_ = 0;
};

}  // namespace mooncaf::sim
