#pragma once
// The decode instances: the requests each will run, and where a step will be the shortest.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/sched/instance.hpp"
#include "runtime/sched/learned_margin.hpp"
#include "runtime/sched/speed_class.hpp"

namespace mooncaf {

/// A decode instance that a request could go to.
struct decode_choice {
  instance_slot slot = no_slot;
  duration tbt{};          ///< predicted step with this request in its batch
  duration tbt_running{};  ///< … without the requests still in prefill
  bool saturated = false;  ///< its batch is full and as many requests wait already
};

/// A decode instance's load is the requests placed there and not finished, whether their KV has arrived or
/// not, and their context, corrected by the instance's reports of its batch.
/// @thread  Owned by the conductor; not synchronised.
class decode_pool {
 public:
  /// @param span  how long a request is taken to decode: one that waits for a place in a full batch pays as
  /// much.
  explicit decode_pool(duration span) : span_(span) {}

  instance_slot add(const instance_desc& desc);
  void remove(instance_slot slot);
  void set_state(instance_slot slot, instance_state state);

  /// Tokens of an instance that a request takes.
  struct needs {
    std::uint64_t context = 0;
    std::uint64_t memory = 0;  ///< context, and the room that its answer is taken to need
  };
  void charge(instance_slot slot, const needs& n);
  /// The charged request's prefill is over: from now on it is part of the instance's reports.
  void arrived(instance_slot slot, const needs& n);
  void release(instance_slot slot, const needs& n, bool had_arrived);
  /// Memory of the node that something other than decoding takes (prompts computed there for elsewhere).
  void occupy(instance_slot slot, std::uint64_t tokens);
  void vacate(instance_slot slot, std::uint64_t tokens);
  void report(instance_slot slot, const instance_load& load);

  /// The live instance on which this request's steps are predicted to be the shortest, full ones counting the
  /// wait for a place; of equals the lowest slot. `no_slot` if none is live.
  /// @param avoid  taken only if no other is live. @param barred  nodes of instances that are never taken.
  /// @source  Mooncake, FAST '25, section 4.1, Algorithm 1 (SelectDecodingInstance).
  decode_choice select(std::uint64_t prompt_tokens, std::span<const worker_id> avoid = {},
                       std::span<const node_id> barred = {}) const;
  /// The key of `select`: the predicted step, longer where the batch or the memory is full.
  duration cost(instance_slot slot, std::uint64_t prompt_tokens) const;
  /// Predicted step with one more request of `prompt_tokens`; with zero requests more if `extra` is false.
  duration step(instance_slot slot, std::uint64_t prompt_tokens, bool extra = true) const;
  /// Mean predicted step of the pool if `requests` with `context_tokens` in all were spread evenly over it.
  duration mean_step(std::uint64_t requests, std::uint64_t context_tokens) const;

  /// Tokens of its memory that all requests charged to it will take, also the ones in prefill.
  std::uint64_t reserved(instance_slot slot) const noexcept {
    return all_[slot].reserved + all_[slot].occupied;
  }
  /// … of which nothing is decoding's own (`occupy`).
  std::uint64_t occupied(instance_slot slot) const noexcept { return all_[slot].occupied; }
  /// … of the requests that decode there now.
  std::uint64_t reserved_running(instance_slot slot) const noexcept { return all_[slot].arrived_memory; }
  /// The live instance with the most memory that is not charged to any request; `no_slot` if no instance's
  /// memory is known. @cost  a look at every live instance.
  instance_slot roomiest(std::span<const worker_id> avoid = {}) const;
  /// Memory of the largest live instance; 0 if one of them has no known limit.
  std::uint64_t largest_memory() const noexcept { return largest_; }
  /// This instance as `select` would return it.
  decode_choice choice(instance_slot slot, std::uint64_t prompt_tokens) const;

  /// How much steps differ from what the models say.
  const pass_noise& noise() const noexcept { return noise_; }
  const instance_desc& desc(instance_slot slot) const noexcept { return all_[slot].desc; }
  const instance_load& latest(instance_slot slot) const noexcept { return all_[slot].latest; }
  std::uint32_t charged(instance_slot slot) const noexcept { return all_[slot].charged; }
  /// Nobody decodes there, as far as is known: neither requests that were placed nor others.
  bool is_idle(instance_slot slot) const noexcept { return batch_of(all_[slot]) == 0; }
  std::span<const instance_slot> live() const noexcept { return live_; }

 private:
  struct member {
    instance_desc desc;
    std::size_t speed = 0;
    std::uint32_t charged = 0;
    std::uint32_t arrived = 0;
    std::uint64_t context = 0;          // of all charged, as placed
    std::uint64_t arrived_context = 0;  // of the arrived ones
    std::uint64_t grown = 0;            // generated since, as last reported
    std::uint64_t reserved = 0;         // memory that all charged will take
    std::uint64_t arrived_memory = 0;   // … of the arrived ones
    std::uint64_t occupied = 0;         // memory taken by other uses than decoding
    instance_load latest;
    bool used = false;
  };

  std::uint64_t context_of(const member& m) const noexcept { return m.context + m.grown; }
  std::uint32_t batch_of(const member& m) const noexcept { return m.charged + m.latest.others; }
  double load_seconds(const member& m) const;
  void publish(instance_slot slot);

  duration span_;
  std::vector<member> all_;  // by slot
  std::vector<instance_slot> live_;
  std::vector<std::size_t> live_in_class_;
  std::uint64_t largest_ = 0;
  speed_classes<decode_model> classes_;
  pass_noise noise_;
};

}  // namespace mooncaf
