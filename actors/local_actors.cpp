#include "actors/local_actors.hpp"

#include <caf/send.hpp>
#include <memory>
#include <utility>

namespace mooncaf {

namespace {

constexpr auto status_limit = std::chrono::seconds(5);

template <class Handle, class... Message>
void tell(const Handle& to, const Message&... message) {
  if (to) caf::anon_send(to, message...);
}

/// The last answer to come or fail completes the report.
struct collection {
  node_report report;
  caf::typed_response_promise<node_report> promise;
  std::size_t missing = 1;  ///< one is the asking itself

  void answered() {
    if (--missing == 0) promise.deliver(report);
  }
};

/// @param add  puts the answer into the report.
template <class Answer, class Handle, class Add>
void ask(node_actor::base& asker, const std::shared_ptr<collection>& all, const Handle& from, Add add) {
  if (!from) return;
  ++all->missing;
  asker.request(from, status_limit, status_atom_v)
      .then(
          [all, add](const Answer& answer) {
            add(all->report, answer);
            all->answered();
          },
          [all](const caf::error&) { all->answered(); });
}

void add_worker(node_report& to, const worker_load& load) {
  to.requests_live += load.running + load.waiting;
  to.workers.push_back(load);
}

void add_shard(node_report& to, const shard_status& shard) {
  to.has_shard = true;
  to.shard = shard;
}

}  // namespace

void local_actors::peer_up(const node_info& peer) const {
  tell(messenger, peer_up_atom_v, peer);
  tell(keeper, peer_up_atom_v, peer.id);
  tell(gateway, peer_up_atom_v, peer);
}

void local_actors::peer_down(node_id peer) const {
  tell(messenger, peer_down_atom_v, peer);
  tell(keeper, peer_down_atom_v, peer);
  tell(gateway, peer_down_atom_v, peer);
  for (const auto& worker : prefill) tell(worker, peer_down_atom_v, peer);
  for (const auto& worker : decode) tell(worker, peer_down_atom_v, peer);
  tell(engine, peer_down_atom_v, peer);
}

void local_actors::follow(const conductor_actor& now, std::uint64_t term) const {
  tell(gateway, follow_atom_v, now ? caf::actor_cast<caf::actor>(now) : caf::actor{}, term);
}

void local_actors::announce_to(const conductor_actor& to) const {
  tell(shard, follow_atom_v, caf::actor_cast<caf::actor>(to));
  tell(engine, follow_atom_v, caf::actor_cast<caf::actor>(to));
}

void local_actors::heard(const lead_claim& claim) const { tell(conductor, claim_atom_v, claim); }

caf::result<node_report> local_actors::report(node_actor::base& asker, node_report begun) const {
  const auto all = std::make_shared<collection>();
  all->report = std::move(begun);
  all->report.metrics = metrics_at;
  all->report.ranks = ranks;
  all->report.release = MOONCAF_VERSION;
  all->promise = asker.make_response_promise<node_report>();
  for (const auto& worker : prefill) ask<worker_load>(asker, all, worker, add_worker);
  for (const auto& worker : decode) ask<worker_load>(asker, all, worker, add_worker);
  ask<node_report>(asker, all, engine, [](node_report& to, const node_report& of_engine) {
    for (const auto& worker : of_engine.workers) add_worker(to, worker);
  });
  ask<shard_status>(asker, all, shard, add_shard);
  ask<transfer_report>(asker, all, messenger,
                       [](node_report& to, const transfer_report& moved) { to.moved = moved; });
  ask<std::uint64_t>(asker, all, gateway,
                     [](node_report& to, std::uint64_t live) { to.requests_live += live; });
  auto promise = all->promise;
  all->answered();
  return promise;
}

}  // namespace mooncaf
