#pragma once
// The prefill instances: how much each has to do, and which queue is the shortest.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/sched/instance.hpp"
#include "runtime/sched/speed_class.hpp"

namespace mooncaf {

/// A prefill instance's queue is known by the time at which it drains: charging a request moves that time by
/// the request's predicted cost, and events put it right.
///
///   now        free_at                      queue(now) = max(free_at - now, 0)
///    ├───r1───┬──r2──┤  + charge(r3) ─► ├───r1───┬──r2──┬────r3────┤
///
/// @thread  Owned by the conductor; not synchronised.
class prefill_pool {
 public:
  using class_type = speed_class<prefill_model>;

  instance_slot add(const instance_desc& desc, node_index node);
  void remove(instance_slot slot);
  void set_state(instance_slot slot, instance_state state);
  void move_node(instance_slot slot, node_index node);

  /// A request of predicted `cost` was placed here. @param urgent  of high priority: it goes before the
  /// others.
  void charge(instance_slot slot, duration cost, time_point now, bool urgent = false);
  /// One of the charged requests is computed: work on the others starts now.
  void completed(instance_slot slot, duration cost, time_point now, bool urgent = false);
  /// One of the charged requests will not be computed.
  void withdrawn(instance_slot slot, duration cost, time_point now, bool urgent = false);
  /// Word from the instance: with k requests unfinished and one under way it cannot be freer than (k-1)/k of
  /// its charges, however late it is.
  void heard_of(instance_slot slot, time_point now);
  void observe(instance_slot slot, std::uint64_t new_tokens, std::uint64_t cached_tokens, duration measured);

  duration queue(instance_slot slot, time_point now) const noexcept;
  /// Other work of an instance that counts as queue from now on, e.g. decoding on a coupled one; zero: none.
  /// While any has some, the shortest queue is found by looking at all.
  void set_standing(instance_slot slot, duration work) noexcept;
  /// The wait of an urgent request: for the other urgent ones, and a mean request that is under way.
  duration urgent_queue(instance_slot slot, time_point now) const noexcept;
  const prefill_model& model(instance_slot slot) const noexcept { return classes_[all_[slot].speed].model; }
  const instance_desc& desc(instance_slot slot) const noexcept { return all_[slot].desc; }
  node_index node(instance_slot slot) const noexcept { return all_[slot].node; }
  std::size_t speed_of(instance_slot slot) const noexcept { return all_[slot].speed; }
  std::uint32_t pending(instance_slot slot) const noexcept { return all_[slot].pending; }

  /// Live instances, in no order.
  std::span<const instance_slot> live() const noexcept { return live_; }
  std::span<const instance_slot> live_on(node_index node) const noexcept;
  std::size_t class_count() const noexcept { return classes_.size(); }
  const prefill_model& class_model(std::size_t c) const noexcept { return classes_[c].model; }

  /// The live instance of class `c` with the shortest queue; of equals the lowest slot; `no_slot` if there is
  /// none.
  instance_slot shortest(std::size_t c, time_point now) const;
  /// … on one of `nodes`, with a queue of at most `most`.
  instance_slot shortest_on(std::size_t c, const node_set& nodes, time_point now, duration most) const;
  /// … on another node, with a queue of at most `most`.
  instance_slot shortest_off(std::size_t c, const node_set& nodes, time_point now, duration most) const;

 private:
  struct member {
    instance_desc desc;
    node_index node = 0;
    std::size_t speed = 0;
    std::int64_t free_at = 0;  // nanoseconds on the caller's clock
    duration owed{};           // cost of charged requests
    duration urgent{};         // … of it, with high priority
    duration standing{};       // other work
    std::uint32_t pending = 0;
    bool used = false;
  };

  void publish(instance_slot slot);
  void index_nodes(std::size_t c);
  void set_free_at(instance_slot slot, std::int64_t when);
  template <class Wanted>
  instance_slot best_where(std::size_t c, time_point now, duration most, Wanted&& wanted) const;
  template <class Visit>
  instance_slot best_of(std::size_t c, time_point now, duration most, Visit&& for_each_node) const;

  std::vector<member> all_;  // by slot
  std::size_t with_standing_ = 0;
  std::vector<instance_slot> live_;
  std::vector<std::vector<instance_slot>> by_node_;  // live ones, ascending
  speed_classes<prefill_model> classes_;
};

}  // namespace mooncaf
