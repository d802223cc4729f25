#pragma once
// The cluster as the conductor knows it: nodes, instances, and the charges of every placed request.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/sched/decode_forecast.hpp"
#include "runtime/sched/decode_pool.hpp"
#include "runtime/sched/decode_survival.hpp"
#include "runtime/sched/prefill_pool.hpp"
#include "runtime/sched/request_life.hpp"
#include "runtime/sched/session_answers.hpp"
#include "runtime/sched/tenant_answers.hpp"
#include "runtime/sched/transfer_board.hpp"

namespace mooncaf {

/// An instance and its load, for people to look at.
struct instance_view {
  worker_id id;
  node_id node;
  worker_role role = worker_role::prefill;
  instance_state state = instance_state::live;
  std::uint32_t charged = 0;  ///< requests placed there, prefill (decode) not ended
  duration queue{};           ///< prefill: predicted
  duration step{};            ///< decode: predicted
};

/// Load is charged when a request is placed and given back exactly once, whatever becomes of the request:
///
///   charge ──► prefill owes its cost ── first_token ──► (nothing)
///          └─► decode owes its context ─────────────────────────── release ──► (nothing)
///              forecast: prefill ends at the predicted time, then at the real one
///
/// @thread  Owned by the conductor; not synchronised.
class cluster_state {
 public:
  /// @param decode_span  t_d: how long a request is taken to decode; more than zero.
  explicit cluster_state(duration decode_span);

  // ---- nodes and instances ----
  void add_node(node_id id, node_index index, time_point now);
  bool has_node(node_id id) const { return nodes_.contains(id); }
  std::optional<node_index> index_of(node_id id) const;
  node_id node_at(node_index index) const noexcept {
    return index < by_index_.size() ? by_index_[index] : node_id{};
  }
  /// The node's blocks are known under another number from now on.
  void renumber(node_id id, node_index index);
  /// @returns requests that are released now: placed on its instances, or sent by its own clients.
  std::vector<request_id> remove_node(node_id id);
  /// The conductor was away for so long and heard no node: none counts as the more silent for it.
  void excuse(duration away, time_point now);
  /// A sign of life.
  void touch(node_id id, time_point now);
  std::vector<node_id> silent_since(time_point when) const;

  /// @error `ec::not_found` if its node is unknown, `ec::already_exists` if its id is in use.
  result<void> add_instance(const instance_desc& desc);
  /// @error `ec::not_found`.
  result<void> set_state(worker_id worker, instance_state state);
  /// @returns requests that were placed there and are released now.
  std::vector<request_id> remove_instance(worker_id worker);
  void report(worker_id worker, const instance_load& load, time_point now);

  // ---- requests ----
  struct placed {
    instance_slot prefill = no_slot;
    instance_slot decode = no_slot;
    duration prefill_cost{};
    time_point prefill_end{};  ///< predicted
    std::uint64_t context_tokens = 0;
    bool urgent = false;              ///< high priority
    node_id gateway{};                ///< where its client is
    std::uint64_t memory_tokens = 0;  ///< that decode is taken to need: context and answer
    std::size_t answer = 0;           ///< `answer_class`
    duration step{};                  ///< predicted for its decoding, without a margin
    block_key session;                ///< of the prompt's last full block; zero: it has none
    std::uint64_t tenant = 0;         ///< that sent the request; 0: unknown
    time_point since{};               ///< when it was charged
    duration predicted{};             ///< time from then to the end of its prefill
    hand_over kv{};                   ///< as it was promised, until its prefill ends
  };
  /// Charges both instances. A request that is charged already is released first.
  void charge(request_id id, const placed& p, time_point now);
  /// @returns false if nothing is charged under this id, or it is past this.
  bool prefill_started(request_id id);
  /// Its prefill ended. @returns its charges, if it was still in prefill.
  std::optional<placed> first_token(request_id id, time_point now);
  /// It ended as `how`, a terminal state; all that is still charged is given back.
  /// @param tokens  of its answer, if it finished; 0: not known.
  /// @returns false if nothing is charged under this id: a second word about its end changes nothing.
  bool release(request_id id, request_state how, time_point now, std::uint32_t tokens = 0);
  /// The charges of a request; null if none.
  const placed* charged(request_id id) const;
  /// Requests charged before `when`.
  std::vector<request_id> charged_before(time_point when) const;
  std::size_t charged_requests() const noexcept { return charges_.size(); }

  prefill_pool& prefill() noexcept { return prefill_; }
  const prefill_pool& prefill() const noexcept { return prefill_; }
  const decode_pool& decode() const noexcept { return decode_; }
  decode_forecast& forecast() noexcept { return forecast_; }
  const decode_forecast& forecast() const noexcept { return forecast_; }
  const decode_survival& survival() const noexcept { return survival_; }
  const session_answers& sessions() const noexcept { return sessions_; }
  const tenant_answers& tenants() const noexcept { return tenants_; }
  /// The decode instances of a node.
  std::span<const instance_slot> decode_on(node_id id) const;
  std::optional<instance_view> view(worker_id worker, time_point now) const;
  std::vector<instance_view> views(time_point now) const;

 private:
  struct node {
    node_index index = 0;
    time_point seen{};
  };
  struct seat {
    worker_role role = worker_role::prefill;
    instance_slot slot = no_slot;
  };
  struct charge_record {
    placed what;
    time_point since{};
    request_life life;
    bool in_prefill() const noexcept { return life.state() < request_state::decoding; }
  };

  std::vector<request_id> charged_to(const seat& s) const;
  std::vector<request_id> charged_by(node_id gateway) const;
  void unseat(const seat& s);
  /// Decode instances that hold this prompt in memory while it is computed for another node.
  template <class Visit>
  void for_each_host(const placed& p, Visit&& visit) const;

  duration decode_span_;
  std::unordered_map<node_id, node> nodes_;
  std::vector<node_id> by_index_;
  std::unordered_map<worker_id, seat> seats_;
  std::unordered_map<request_id, charge_record> charges_;
  std::unordered_map<node_id, std::vector<instance_slot>> decode_on_;  // instances by node
  prefill_pool prefill_;
  decode_pool decode_;
  decode_forecast forecast_;
  decode_survival survival_;
  session_answers sessions_;
  tenant_answers tenants_;
};

}  // namespace mooncaf
