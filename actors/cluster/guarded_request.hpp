#pragma once
// Requests that fail when their receiver dies. CAF 0.17 fails neither a request that is under way to a remote
// actor when that dies, nor one to an actor that is dead already; both run into their time-out.

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/detail/type_traits.hpp>
#include <caf/system_messages.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "actors/cluster/wire.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Watches the receivers of an actor's requests. A member of a class-based actor, or of the state of a
/// stateful one; owned by that actor, not synchronised.
///
///   request_guard<node> guard_{this};
///   set_down_handler([this](const caf::down_msg& down) { guard_.on_down(down); lost(down); });
///   guard_.request(peer, 5s, hello_atom_v, info_).then([this](const node_info& i) {…}, [](const error& e)
///   {…});
template <class Self>
class request_guard {
 public:
  explicit request_guard(Self* self) : self_(self) {}

  /// Fails the requests to an actor that died. To be called from the actor's down handler, of which it has
  /// one only.
  void on_down(const caf::down_msg& down) {
    const auto found = pending_.find(down.source);
    if (found == pending_.end()) return;
    const auto orphans = std::move(found->second);
    pending_.erase(found);
    const error lost{ec::peer_lost, "the receiver ended: " + caf::to_string(down.reason)};
    for (const auto& [id, failed] : orphans) failed(lost);
  }

  /// Calls `on_down` from the actor's down handler; for actors that watch nobody else.
  void install() {
    self_->set_down_handler([this](const caf::down_msg& down) { on_down(down); });
  }

  /// Drops all requests without calling anything. To be called from the actor's on_exit: what `failed`
  /// captures, a promise above all, may keep the actor alive for ever.
  void forget_all() { pending_.clear(); }

  /// Requests that still wait for an answer.
  std::size_t waiting() const {
    std::size_t sum = 0;
    for (const auto& [peer, requests] : pending_) sum += requests.size();
    return sum;
  }

  /// A request that was put together; `then` sends it.
  template <class Receiver, class... Args>
  class order {
   public:
    order(request_guard& guard, Receiver receiver, duration limit, Args... args)
        : guard_(guard), receiver_(std::move(receiver)), limit_(limit), args_(std::move(args)...) {}

    /// Exactly one of the functions is called, once, in the actor; `failed` with one of our errors.
    template <class Answered, class Failed>
    void then(Answered answered, Failed failed) && {
      guard_.send(std::move(receiver_), limit_, std::move(args_), std::move(answered),
                  std::function<void(const error&)>{std::move(failed)},
                  typename caf::detail::get_callable_trait<Answered>::arg_types{});
    }

   private:
    request_guard& guard_;
    Receiver receiver_;
    duration limit_;
    std::tuple<Args...> args_;
  };

  /// @param limit  the answer must be here by then; finite.
  template <class Receiver, class... Args>
  order<Receiver, std::decay_t<Args>...> request(const Receiver& receiver, duration limit, Args&&... args) {
    return {*this, receiver, limit, std::forward<Args>(args)...};
  }

 private:
  using failures = std::map<std::uint64_t, std::function<void(const error&)>>;

  template <class Receiver, class... Args, class Answered, class... Results>
  void send(Receiver receiver, duration limit, std::tuple<Args...> args, Answered answered,
            std::function<void(const error&)> failed, caf::detail::type_list<Results...>) {
    const auto peer = caf::actor_cast<caf::actor_addr>(receiver);
    const auto id = next_++;
    const auto [entry, first] = pending_.try_emplace(peer);
    if (first) self_->monitor(receiver);
    entry->second.emplace(id, failed);
    std::apply(
        [&](auto&... values) {
          self_->request(receiver, caf::timespan{limit}, std::move(values)...)
              .then(
                  [this, peer, id, answered](Results... results) mutable {
                    if (take(peer, id)) answered(results...);
                  },
                  [this, peer, id, failed](const caf::error& e) {
                    if (take(peer, id)) failed(from_caf(e));
                  });
        },
        args);
  }

  bool take(const caf::actor_addr& peer, std::uint64_t id) {
    const auto found = pending_.find(peer);
    return found != pending_.end() && found->second.erase(id) > 0;
  }

  Self* self_;
  std::unordered_map<caf::actor_addr, failures>
      pending_;  ///< a peer stays until it dies, as it is monitored until then
  std::uint64_t next_ = 1;
};

}  // namespace mooncaf
