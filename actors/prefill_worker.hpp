#pragma once
// A prefill worker: computes what `prefill_core` decides, and streams the KV out.

#include <algorithm>
#include <caf/response_promise.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/compute_step.hpp"
#include "actors/device_health.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "runtime/request/prefill_core.hpp"

namespace mooncaf {

/// Local actors that a worker talks to.
struct worker_links {
  worker_id id;
  cache_shard_actor shard;
  messenger_actor messenger;
  executor_actor executor;
  /// Decode on a device with memory of its own: a thread that brings prompts there, beside the steps; may
  /// wait for the device. Invalid: the first step of each loads its prompt.
  executor_actor loads;
  prefill_model passes;  ///< prefill: how long a pass takes, as calibrated
  decode_model steps;    ///< decode: how long a step takes, as calibrated
  std::shared_ptr<device_health> health = std::make_shared<device_health>();
  /// Is told once when the worker computes nothing any more, and why. Called by the worker's thread.
  std::function<void(const std::string& why)> device_lost;
};

class prefill_worker final : public prefill_worker_actor::base {
 public:
  /// Prompts that one step may end, and so the rows of logits that its runner needs: with prompts shorter
  /// than 16 tokens a step is not filled, which costs less than room for logits that are hardly ever wanted.
  static constexpr std::uint32_t requests_per_step(std::uint32_t budget_tokens) {
    return std::max(1u, budget_tokens / 16);
  }

  prefill_worker(caf::actor_config& config, context_ptr context, worker_links links,
                 std::shared_ptr<engine> machine);

  const char* name() const override { return "mooncaf.prefill_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// What computing needs of an attempt; `prefill_core` has the rest.
  struct live {
    generate_job job;
    prefix_load_ptr load;               ///< its prefix, if that comes layer by layer
    std::vector<std::byte*> blocks;     ///< addresses of its slots
    std::deque<step_item> outcomes;     ///< of steps, oldest first, until the core says what they are worth
    std::vector<token_msg> scores;      ///< log-probabilities of the prompt, as far as it is computed
    std::vector<double> pooled;         ///< of its hidden states, as far as it is computed
    std::shared_ptr<kv_stream> stream;  ///< null: none is open
    std::shared_ptr<sampler> sample;
    token_msg first;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    std::vector<caf::response_promise> waiting;  ///< cancels to answer
  };
  using live_ptr = std::shared_ptr<live>;

  void take(const generate_job& job);
  caf::result<void> cancel(const attempt_id& id);
  /// Carries out what the core wants done; to be called after every call of it.
  void act();
  void carry_out(prefill_action::look& order);
  void carry_out(prefill_action::pin& order);
  void carry_out(const prefill_action::reserve& order);
  void carry_out(prefill_action::fetch& order);
  void carry_out(const prefill_action::remind& order);
  void carry_out(const prefill_action::stop_fetch& order);
  void carry_out(prefill_action::commit& order);
  void carry_out(const prefill_action::found_on_device& order);
  void carry_out(const prefill_action::compute& order);
  void carry_out(const prefill_action::count& order);
  void carry_out(const prefill_action::discard& order);
  void carry_out(const prefill_action::answer& order);
  void carry_out(const prefill_action::open_stream& order);
  void carry_out(const prefill_action::aim& order);
  void carry_out(const prefill_action::send& order);
  void carry_out(prefill_action::finish_stream& order);
  void carry_out(const prefill_action::stop_stream& order);
  void carry_out(prefill_action::hand_over& order);
  void carry_out(const prefill_action::stop_decode& order);
  void carry_out(const prefill_action::withdraw& order);
  void carry_out(const prefill_action::release& order);
  void carry_out(const prefill_action::forget& order);
  void carry_out(attempt_failed& message);

  step_item make_item(const prefill_part& part);
  /// Ends computing if the device has failed, for this worker or for another one.
  void look_after_device(const std::optional<device_failure>& own = {});
  void step_done(const std::shared_ptr<compute_step>& task);
  /// Stands before the first token of its answer.
  void make_sampler_of(std::uint64_t owner);

  context_ptr context_;
  worker_links links_;
  std::shared_ptr<engine> machine_;
  prefill_core core_;
  std::string failure_;                                   ///< of the device; empty: it works
  std::unordered_map<std::uint64_t, live_ptr> requests_;  ///< by owner; those that the core has
};

}  // namespace mooncaf
