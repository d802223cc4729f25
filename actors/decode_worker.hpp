#pragma once
// A decode worker: a mailbox, a device and slots around `decode_core`, which has the drawing of an answer's
// life.

#include <caf/typed_event_based_actor.hpp>
#include <memory>

#include "actors/cluster/guarded_request.hpp"
#include "actors/prompt_loads.hpp"
#include "actors/worker_actor.hpp"
#include "runtime/compute/landing_board.hpp"
#include "runtime/request/decode_core.hpp"

namespace mooncaf {

struct decode_request : worker_request {
  std::shared_ptr<const decode_sequence> sequence;  ///< that the step at work extends
};

class decode_worker final
    : public worker_actor<decode_worker, decode_worker_actor, decode_core, decode_request> {
 public:
  decode_worker(caf::actor_config& config, const context_ptr& context, const worker_links& links,
                std::shared_ptr<engine> machine, std::shared_ptr<landing_board> board);

  const char* name() const override { return "mooncaf.decode_worker"; }
  behavior_type make_behavior() override;
  void on_exit() override;

 private:
  friend core_actor;
  friend worker_actor;

  using worker_actor::carry_out;
  void carry_out(decode_action::pin& order);
  void carry_out(const decode_action::receive& order);
  void carry_out(const decode_action::expect& order) { board_->expect(order.owner, order.transfers); }
  void carry_out(const decode_action::confirm& order) { send(links_.shard, confirm_atom_v, order.owner); }
  void carry_out(decode_action::commit& order);
  void carry_out(const decode_action::make_room& order);
  void carry_out(const decode_action::load& order);
  void carry_out(const decode_action::begin& order) { live_at(order.owner).sample->accept(order.first); }
  void carry_out(const decode_action::compute& order) { compute(order.parts); }
  void carry_out(decode_action::send_tokens& order);
  void carry_out(const decode_action::withdraw& order) { board_->close(order.owner); }
  void carry_out(const decode_action::release& order);
  void carry_out(const decode_action::stop_prefill& order);
  void carry_out(const decode_action::fence& order);
  void carry_out(const decode_action::forget& order) { requests_.erase(order.owner); }

  step_item make_item(const decode_part& part);
  void step_done(compute_step& step);

  std::shared_ptr<landing_board> board_;
  prompt_loads loads_;
  request_guard<decode_worker> guard_{this};  ///< of requests to prefill workers
};

}  // namespace mooncaf
