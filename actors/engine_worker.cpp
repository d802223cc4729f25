#include "actors/engine_worker.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/stray_errors.hpp"
#include "runtime/engines/engine_facts.hpp"

namespace mooncaf {

namespace {

constexpr auto look_interval = std::chrono::seconds(1);
constexpr auto look_limit = std::chrono::seconds(5);

}  // namespace

engine_worker::engine_worker(caf::actor_config& config, engine_setup setup)
    : core_actor(config, setup.core), setup_(std::move(setup)) {}

engine_worker_actor::behavior_type engine_worker::make_behavior() {
  outlive_stray_errors(*this);
  set_down_handler([this](const caf::down_msg& down) { followers_.gone(down.source); });
  const engine_worker_actor self{this};
  if (!setup_.news.news.empty()) {
    // The addresses are known to be right: `process` has tried them.
    auto started = kv_listener::start(setup_.news, [self](engine_news news) {
      caf::anon_send(self, blocks_atom_v, std::make_shared<const engine_news>(std::move(news)));
    });
    if (!started) quit(to_caf(started.error()));
    else listener_ = std::move(*started);
  }
  tick();
  return {
      [this](job_atom, const generate_job& job) {
        if (!core_.wants(job.id)) return;
        gateways_.emplace(job.id.owner(), caf::actor_cast<gateway_actor>(job.gateway));
        tell(&engine_core::take, job);
      },
      [this](cancel_atom, const attempt_id& id) { tell(&engine_core::cancel, id); },
      [this](roll_atom, const roll_call& call) { return tell(&engine_core::answer_roll, call); },
      [this](peer_down_atom, node_id peer) { tell(&engine_core::peer_lost, peer); },
      [this](leave_atom) {
        tell(&engine_core::leave, error{ec::unavailable, "the node leaves"});
      },
      [this](follow_atom, const caf::actor& conductor) {
        followers_.add(*this, conductor);
        tell(&engine_core::follow);
      },
      [this](status_atom) { return status(); },
      [this](tokens_atom, std::uint64_t owner, const completion_piece_ptr& piece) {
        tell(&engine_core::heard, owner, *piece);
      },
      [this](failed_atom, std::uint64_t owner, const error& why, bool retriable) {
        tell(&engine_core::ended, owner, why, retriable);
      },
      [this](blocks_atom, const engine_news_ptr& news) { tell(&engine_core::news, *news); },
      [this](event_atom, const error& why) { tell(&engine_core::looked, why); },
      [this](load_atom, std::uint32_t requests) { core_.counted(requests); },
      [this](tick_atom) { tick(); },
  };
}

void engine_worker::on_exit() {
  listener_.reset();
  setup_.engine.reset();
  gateways_.clear();
  followers_.clear();
}

void engine_worker::tick() {
  setup_.engine->get(std::string{life_path(setup_.core.terms.make)}, look_limit,
                     [self = engine_worker_actor{this}](const result<std::string>& answer) {
                       caf::anon_send(self, event_atom_v, answer ? error{} : answer.error());
                     });
  setup_.engine->get("/metrics", look_limit,
                     [self = engine_worker_actor{this}](const result<std::string>& answer) {
                       const auto requests = answer ? requests_in(*answer) : std::nullopt;
                       if (requests) caf::anon_send(self, load_atom_v, *requests);
                     });
  delayed_send(this, look_interval, tick_atom_v);
}

node_report engine_worker::status() const {
  node_report out;
  auto [prefill, decode] = core_.load(now());
  prefill.id = setup_.prefill;
  decode.id = setup_.decode;
  out.workers = {std::move(prefill), std::move(decode)};
  return out;
}

void engine_worker::carry_out(engine_action::ask& order) {
  const engine_worker_actor self{this};
  const auto owner = order.owner;
  engine_client::listener to;
  to.heard = [self, owner](completion_piece piece) {
    caf::anon_send(self, tokens_atom_v, owner, std::make_shared<const completion_piece>(std::move(piece)));
  };
  to.ended = [self, owner](error why, bool retriable) {
    caf::anon_send(self, failed_atom_v, owner, std::move(why), retriable);
  };
  setup_.engine->complete(owner, setup_.core.terms.make, std::move(order.body), std::move(to));
}

void engine_worker::carry_out(first_token& token) {
  send(gateway_of(token.id), first_atom_v, std::move(token));
}

void engine_worker::carry_out(token_run& run) {
  const auto& gateway = gateway_of(run.id);
  token_batch batch;
  batch.runs.push_back(std::move(run));
  send(gateway, tokens_atom_v, std::move(batch));
}

void engine_worker::carry_out(attempt_failed& message) {
  send(gateway_of(message.id), failed_atom_v, std::move(message));
}

}  // namespace mooncaf
