#pragma once
// A prefill worker: a mailbox, a device and streams of KV around `prefill_core`, which has the drawing of a
// prompt's life.

#include <caf/typed_event_based_actor.hpp>
#include <memory>

#include "actors/prefill_request.hpp"
#include "actors/worker_actor.hpp"

namespace mooncaf {

class prefill_worker final
    : public worker_actor<prefill_worker, prefill_worker_actor, prefill_core, prefill_request> {
 public:
  prefill_worker(caf::actor_config& config, const context_ptr& context, const worker_links& links,
                 std::shared_ptr<engine> machine);

  const char* name() const override { return "mooncaf.prefill_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  friend core_actor;
  friend worker_actor;

  caf::result<void> cancel(const attempt_id& id);
  using worker_actor::carry_out;
  void carry_out(prefill_action::look& order);
  void carry_out(prefill_action::pin& order);
  void carry_out(prefill_action::fetch& order);
  void carry_out(const prefill_action::remind& order);
  void carry_out(const prefill_action::stop_fetch& order);
  void carry_out(prefill_action::commit& order);
  void carry_out(const prefill_action::found_on_device& order);
  void carry_out(const prefill_action::compute& order) { compute(order.parts); }
  void carry_out(const prefill_action::choose_again& order);
  void carry_out(const prefill_action::open_stream& order);
  void carry_out(const prefill_action::aim& order) { live_at(order.owner).stream->set_target(order.target); }
  void carry_out(const prefill_action::send& order);
  void carry_out(prefill_action::finish_stream& order);
  void carry_out(const prefill_action::stop_stream& order) { live_at(order.owner).stream->stop(); }
  void carry_out(prefill_action::hand_over& order);
  void carry_out(const prefill_action::stop_decode& order);
  void carry_out(const prefill_action::withdraw& order) { live_at(order.owner).cancelled->store(true); }
  void carry_out(const prefill_action::release& order);
  void carry_out(const prefill_action::forget& order);
  void carry_out(first_token& message);

  decode_worker_actor decode_of(std::uint64_t owner);
  step_item make_item(const prefill_part& part);
  void step_done(compute_step& step);
};

}  // namespace mooncaf
