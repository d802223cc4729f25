#pragma once
// The common part of prefill and decode workers: jobs, a device, and orders of both cores to the shard and
// the gateway.

#include <algorithm>
#include <caf/send.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/core_actor.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_context.hpp"
#include "actors/worker_links.hpp"
#include "actors/worker_request.hpp"
#include "runtime/compute/compute_step.hpp"
#include "runtime/request/claim_actions.hpp"

namespace mooncaf {

/// @tparam Live  a `worker_request`. `Actor` has `make_item`, which turns a part of a step into a `step_item`
/// that keeps its request alive, and `step_done`.
template <class Actor, class Interface, class Core, class Live>
class worker_actor : public core_actor<Actor, Interface, Core> {
 protected:
  static constexpr auto tick_interval = std::chrono::milliseconds(500);
  static constexpr auto request_limit = std::chrono::seconds(30);  ///< for answers of the shard

  template <class... Arguments>
  worker_actor(caf::actor_config& config, context_ptr context, worker_links links,
               std::shared_ptr<engine> machine, Arguments&&... of_core)
      : core_actor<Actor, Interface, Core>(config, context->id, std::forward<Arguments>(of_core)...),
        context_(std::move(context)),
        links_(std::move(links)),
        machine_(std::move(machine)),
        device_(links_.health, links_.device_lost) {}

  Live& live_at(std::uint64_t owner) { return *requests_.at(owner); }
  /// Null if it is not here.
  Live* find(std::uint64_t owner) {
    const auto i = requests_.find(owner);
    return i == requests_.end() ? nullptr : i->second.get();
  }

  void take(const generate_job& job) {
    look_after_device();
    if (!this->core_.wants(job.id)) return;
    const auto request = std::make_shared<Live>();
    request->job = job;
    requests_.emplace(job.id.owner(), request);
    auto sample = make_sampler(*context_, job);
    if (!sample) return this->tell(&Core::turn_away, job.id, sample.error());
    request->sample = std::move(*sample);
    this->tell(&Core::take, job);
  }

  /// Ends computing if the device has failed. @param own  a failure that this worker met.
  void look_after_device(const std::optional<device_failure>& own = {}) {
    device_.look(own, [this](error why) { this->tell(&Core::device_lost, std::move(why)); });
  }

  worker_load status() {
    look_after_device();
    auto load = this->core_.load();
    load.id = links_.id;
    load.failure = device_.failure();
    return load;
  }

  void tick() {
    if (auto owners = this->tell(&Core::sweep); !owners.empty())
      this->send(links_.shard, renew_atom_v, std::move(owners));
    this->delayed_send(this, tick_interval, tick_atom_v);
  }

  void carry_out(const claim_action::reserve& order) {
    const auto owner = order.owner;
    this->request(links_.shard, request_limit, reserve_atom_v, owner, order.count)
        .then([this,
               owner](const std::vector<slot_index>& slots) { this->tell(&Core::reserved, owner, slots); },
              [this, owner](const caf::error& e) { this->tell(&Core::refused, owner, from_caf(e)); });
  }

  void carry_out(attempt_failed& message) {
    const auto& gateway = live_at(message.id.owner()).job.gateway;
    this->send(caf::actor_cast<gateway_actor>(gateway), failed_atom_v, std::move(message));
  }

  template <class Part>
  void compute(const std::vector<Part>& parts) {
    auto& self = static_cast<Actor&>(*this);
    std::vector<step_item> items;
    items.reserve(parts.size());
    for (const auto& part : parts) items.push_back(self.make_item(part));
    const auto step = std::make_shared<compute_step>(machine_, std::move(items));
    steps_.push_back({step});
    this->request(next_executor(), caf::infinite, run_atom_v, task_ptr{step})
        .then([this, &self, step](const task_ptr&) {
          std::ranges::find(steps_, step, &step_at_work::step)->ended = true;
          // Steps of a group end in their order, and are told in it, whoever of their executors is faster.
          while (!steps_.empty() && steps_.front().ended) {
            const auto oldest = std::move(steps_.front().step);
            steps_.pop_front();
            look_after_device(oldest->failure());
            self.step_done(*oldest);
          }
        });
  }

  void close() {
    this->core_.close_journal();
    steps_.clear();
    requests_.clear();
    links_ = {};
  }

  context_ptr context_;
  worker_links links_;
  std::shared_ptr<engine> machine_;
  device_watch device_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Live>> requests_;  ///< by owner, as the core has them

 private:
  struct step_at_work {
    std::shared_ptr<compute_step> step;
    bool ended = false;
  };

  /// The executors take turns: as many steps are under way at most as there are, and the oldest one ends first.
  const executor_actor& next_executor() {
    const auto turn = begun_++ % (links_.beside.size() + 1);
    return turn == 0 ? links_.executor : links_.beside[turn - 1];
  }

  std::deque<step_at_work> steps_;  ///< oldest first
  std::size_t begun_ = 0;
};

}  // namespace mooncaf
