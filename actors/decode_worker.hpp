#pragma once
// A decode worker: receives the KV of prompts (`decode_intake`), runs the continuous batch, publishes the
// blocks that it fills.
//
// On a device with memory of its own a prompt goes on to the device while it lands (`kv_arrival`), on a
// thread beside the steps, and joins the batch when it is there: nobody in the batch waits for somebody
// else's load.
//
//   landing_board ── piece ──► links.loads: kv_arrival ──► device            step: takes the blocks over
//                 └─ all ────► decode_worker ── finish ──► (same) ── loaded ──► batch ──┘
//
// A running request that needs a block when none is to be had gives its place back: the gateway places it
// again, and its published blocks make that cheap.

#include <caf/typed_event_based_actor.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/cluster/guarded_request.hpp"
#include "actors/compute_step.hpp"
#include "actors/interfaces.hpp"
#include "actors/landing_board.hpp"
#include "actors/node_context.hpp"
#include "actors/prefill_worker.hpp"
#include "runtime/request/decode_intake.hpp"
#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/decode_batch.hpp"
#include "runtime/sched/instance.hpp"

namespace mooncaf {

class decode_worker final : public decode_worker_actor::base {
 public:
  decode_worker(caf::actor_config& config, context_ptr context, worker_links links,
                std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board);

  const char* name() const override { return "mooncaf.decode_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  /// What computing needs of an attempt; `decode_intake` has the rest.
  struct live {
    generate_job job;
    time_point arrived;
    std::vector<std::byte*> blocks;     ///< addresses of its slots
    std::int32_t next = -1;             ///< the token that the next step appends
    std::uint32_t position = 0;         ///< tokens in the blocks
    std::vector<std::int32_t> unnamed;  ///< tokens of the block that is filling up
    block_keys_t keys;                  ///< of the full blocks before it
    std::shared_ptr<sampler> sample;
    bool running = false;
    std::shared_ptr<kv_arrival> arrival;  ///< of its prompt on the device, until its first step has begun
  };
  using live_ptr = std::shared_ptr<live>;

  void take(const generate_job& job);
  /// Carries out what the intake wants done; to be called after every call of it.
  void act();
  void carry_out(decode_action::pin& order);
  void carry_out(const decode_action::reserve& order);
  void carry_out(const decode_action::receive& order);
  void carry_out(const decode_action::expect& order) { board_->expect(order.owner, order.transfers); }
  void carry_out(const decode_action::confirm& order);
  void carry_out(decode_action::commit& order);
  void carry_out(const decode_action::join& order);
  void join(std::uint64_t owner);
  /// Room on the device for its prompt; nothing if there is none, or no such device.
  void reserve_on_device(live& request);
  /// What lands goes on to the device. @returns whom the board is to tell.
  landing_board::piece_callback load_as_it_lands(const live& request, std::uint32_t have_blocks);
  /// @returns whether it joins later, when its prompt is on the device.
  bool joins_when_loaded(std::uint64_t owner, live& request);
  void carry_out(const decode_action::withdraw& order);
  void carry_out(const decode_action::release& order);
  void carry_out(const decode_action::stop_prefill& order);
  void carry_out(const decode_action::fence& order);
  void carry_out(const decode_action::forget& order) { requests_.erase(order.owner); }
  void carry_out(attempt_failed& message);

  decode_entry entry_of(const live& request) const;
  void step();
  bool has_room(live& request);
  void grown(std::uint64_t owner, const std::vector<slot_index>& slots);
  void not_grown(std::uint64_t owner, const error& why);
  /// Looks up the addresses of all its slots, as some have come.
  void locate(live& request);
  /// Ends computing if the device has failed, for this worker or for another one.
  void look_after_device(const std::optional<device_failure>& own = {});
  void step_done(const std::shared_ptr<compute_step>& task);
  /// @returns whether this was the request's last token.
  bool item_done(const live_ptr& request, step_item& item, token_run& run);
  static void name_block(live& request);
  void publish_blocks(const live& request, const step_item& item);
  worker_load load() const;

  context_ptr context_;
  worker_links links_;
  std::shared_ptr<engine> machine_;
  std::shared_ptr<landing_board> board_;
  std::shared_ptr<copy_queue> loads_;         ///< of tasks on `links_.loads`; null without
  request_guard<decode_worker> guard_{this};  ///< of requests to prefill workers
  decode_intake intake_;
  decode_batch batch_;
  std::unordered_map<std::uint64_t, live_ptr> requests_;  ///< by owner; those that the intake has
  bool computing_ = false;
  timed_step latest_step_;
  std::string failure_;  ///< of the device; empty: it works
};

}  // namespace mooncaf
