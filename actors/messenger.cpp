#include "actors/messenger.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/executor.hpp"
#include "actors/stray_errors.hpp"

namespace mooncaf {

namespace {

constexpr auto pin_limit = std::chrono::seconds(10);  ///< the source may read SSD first
constexpr auto close_again = std::chrono::seconds(1);

}  // namespace

messenger::messenger(caf::actor_config& config, context_ptr context, executor_actor blocking)
    : messenger_actor::base(config),
      context_(std::move(context)),
      blocking_(std::move(blocking)),
      shards_(context_),
      reader_(context_),
      fetches_(reader_.options()) {}

/// The data plane calls on its own threads, so the end of a read comes back as a message.
messenger_actor::behavior_type messenger::make_behavior() {
  outlive_stray_errors(*this);
  guard_.install();
  return {
      [this](peer_up_atom, const node_info& peer) {
        shards_.greeted(peer);
        peers_.up(peer.id);
        act();
      },
      [this](peer_down_atom, node_id peer) {
        peers_.down(peer);
        act();
      },
      [this](fetch_atom, const fetch_plan& plan) { return fetch(plan, nullptr); },
      [this](load_atom, const fetch_plan& plan, const prefix_load_ptr& load) { return fetch(plan, load); },
      [this](stop_atom, const attempt_id& id) {
        fetches_.stop(id);
        act();
      },
      [this](fence_atom, node_id peer, std::uint64_t fences) { return fence(peer, fences); },
      [this](read_atom, std::uint64_t read, const error& failure) {
        reader_.done(read);
        fetches_.ended(read, failure);
        act();
      },
      [this](status_atom) { return report(); },
      [this](tick_atom, node_id peer) { carry_out(peer_action::close{peer}); },
  };
}

void messenger::on_exit() {
  guard_.forget_all();
  shards_.clear();
  replies_.clear();
  loads_.clear();
  blocking_ = nullptr;
}

caf::result<remote_blocks> messenger::fetch(const fetch_plan& plan, const prefix_load_ptr& load) {
  const auto ticket = next_ticket_++;
  auto promise = replies_[ticket] = make_response_promise();
  loads_[ticket] = load;
  fetches_.fetch(ticket, plan, load != nullptr);
  act();
  return promise;
}

caf::result<void> messenger::fence(node_id peer, std::uint64_t fences) {
  const auto ticket = next_ticket_++;
  auto promise = replies_[ticket] = make_response_promise();
  peers_.fence(peer, fences, context_->plane->fences_of(peer), ticket);
  act();
  return promise;
}

transfer_report messenger::report() {
  auto out = report_of(*context_->plane, *context_->links, clock_type::now());
  rails_.look(context_->plane->rails());
  out.fenced = peers_.fenced();
  return out;
}

void messenger::act() {
  const auto all = [this](auto actions) {
    for (auto& action : actions) std::visit([this](auto& what) { carry_out(what); }, action);
  };
  all(peers_.take_actions());
  all(fetches_.take_actions());
}

void messenger::carry_out(const peer_action::admit& order) {
  if (shards_.admit(order.peer)) fetches_.peer_up(order.peer);
}

void messenger::carry_out(const peer_action::part& order) {
  shards_.part(order.peer);
  fetches_.peer_down(order.peer);
}

void messenger::carry_out(const peer_action::remove& order) {
  shards_.remove(order.peer);
  fetches_.peer_down(order.peer);
}

void messenger::carry_out(const peer_action::close& order) {
  auto shut = std::make_shared<bool>(false);
  auto task =
      make_task([context = context_, peer = order.peer, shut] { *shut = close_peer(*context, peer); });
  request(blocking_, caf::infinite, run_atom_v, std::move(task))
      .then([this, peer = order.peer, shut](const task_ptr&) {
        peers_.closed(peer, *shut);
        act();
      });
}

void messenger::carry_out(const peer_action::close_later& order) {
  delayed_send(this, close_again, tick_atom_v, order.peer);
}

void messenger::carry_out(const peer_action::fenced& order) {
  replies_.extract(order.ticket).mapped().deliver(caf::unit);
}

void messenger::carry_out(fetch_action::pin& order) {
  guard_
      .request(shards_.find(order.node), pin_limit, pin_remote_atom_v, order.reader, std::move(order.keys),
               order.worth_ns)
      .then(
          [this, fetch = order.fetch, node = order.node](const remote_blocks& held) {
            fetches_.pinned(fetch, node, held, clock_type::now());
            act();
          },
          [this, fetch = order.fetch, node = order.node](const error& why) {
            fetches_.not_pinned(fetch, node, why);
            act();
          });
}

void messenger::carry_out(const fetch_action::release& order) {
  send(shards_.find(order.node), release_atom_v, order.reader);  // a message to no actor, if the node is gone
}

void messenger::carry_out(const fetch_action::read& order) {
  // The data plane completes on a thread of its own; the core hears of it in our mailbox.
  const auto ended = [self = messenger_actor{this}, id = order.id](const error& failure) {
    caf::anon_send(self, read_atom_v, id, failure);
  };
  reader_.read(order, loads_.at(order.fetch), ended);
}

void messenger::carry_out(const fetch_action::cancel& order) { reader_.cancel(order.id); }

void messenger::carry_out(const fetch_action::give_up& order) { loads_.at(order.fetch)->give_up(); }

void messenger::carry_out(fetch_action::verify& order) {
  auto good = std::make_shared<std::uint32_t>(0);
  const auto fetch = order.fetch;
  auto task = make_task(
      [context = context_, what = std::move(order), good] { *good = leading_good(*context, what); });
  request(blocking_, caf::infinite, run_atom_v, std::move(task)).then([this, fetch, good](const task_ptr&) {
    fetches_.verified(fetch, *good);
    act();
  });
}

void messenger::carry_out(fetch_action::answer& order) {
  auto reply = replies_.extract(order.fetch).mapped();
  loads_.erase(order.fetch);
  if (order.failure.code == ec::none) {
    reply.deliver(std::move(order.got));
  } else {
    reply.deliver(to_caf(order.failure));
  }
}

}  // namespace mooncaf
