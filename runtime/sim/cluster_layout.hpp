#pragma once
// How instances, machines and workers of a simulated cluster are numbered.

#include <algorithm>
#include <cstdint>

#include "runtime/base/ids.hpp"
#include "runtime/sim/options.hpp"

namespace mooncaf::sim {

/// Apart, machines are the prefill instances (a pipeline group counts as one) and then the decode instances;
/// coupled, they are the nodes. There is a number for every machine that may ever serve: a cluster that grows,
/// or whose machines change roles, begins with some of them switched off.
///
///   apart     machine  0 … prefill - 1 | prefill … prefill + decode - 1       worker, node = machine + 1
///   coupled   machine  0 … prefill - 1      workers machine + 1 (its prefill) and prefill + machine + 1
/// @thread  Immutable.
class cluster_layout {
 public:
  explicit cluster_layout(const simulation_options& o)
      : coupled_(o.coupled != coupled_mode::off),
        pipeline_(coupled_ ? 1 : o.pipeline),
        first_prefill_(coupled_ ? o.prefill + o.decode : o.prefill),
        first_decode_(coupled_ ? 0 : o.decode),
        prefill_(first_prefill_),
        decode_(first_decode_) {
    const auto& e = o.elastic;
    if (!coupled_ && e.switch_roles && !e.scales()) prefill_ = decode_ = first_prefill_ + first_decode_ - 1;
    prefill_ = std::max(prefill_, coupled_ ? e.nodes.most : e.prefill.most);
    if (!coupled_) decode_ = std::max(decode_, e.decode.most);
  }

  bool coupled() const noexcept { return coupled_; }
  /// Nodes of a prefill instance.
  std::uint32_t pipeline() const noexcept { return pipeline_; }
  /// Prefill instances that there may ever be, or coupled nodes.
  std::uint32_t prefill() const noexcept { return prefill_; }
  /// Decode instances that there may ever be, on machines of their own.
  std::uint32_t decode() const noexcept { return decode_; }
  std::uint32_t machines() const noexcept { return prefill_ + decode_; }
  /// Machines that compute prompts, and machines that only decode, when the run begins.
  std::uint32_t first_prefill() const noexcept { return first_prefill_; }
  std::uint32_t first_decode() const noexcept { return first_decode_; }
  bool is_there_at_first(std::uint32_t machine) const noexcept {
    return machine < prefill_ ? machine < first_prefill_ : machine - prefill_ < first_decode_;
  }

  std::uint32_t count_of(worker_role role) const noexcept {
    if (role == worker_role::decode) return decode_;
    return coupled_ == (role == worker_role::node) ? prefill_ : 0;
  }
  worker_role role_of(std::uint32_t machine) const noexcept {
    if (coupled_) return worker_role::node;
    return machine < prefill_ ? worker_role::prefill : worker_role::decode;
  }
  std::uint32_t machine_of(worker_role role, std::uint32_t instance) const noexcept {
    return role == worker_role::decode ? decode_machine(instance) : instance;
  }
  std::uint32_t instance_of(std::uint32_t machine) const noexcept {
    return role_of(machine) == worker_role::decode ? machine - prefill_ : machine;
  }
  std::uint32_t decode_machine(std::uint32_t instance) const noexcept { return prefill_ + instance; }

  static worker_id prefill_id(std::uint32_t instance) noexcept { return worker_id{instance + 1}; }
  worker_id decode_id(std::uint32_t instance) const noexcept { return worker_id{prefill_ + instance + 1}; }
  static std::uint32_t prefill_of(worker_id w) noexcept { return static_cast<std::uint32_t>(w.value - 1); }
  std::uint32_t decode_of(worker_id w) const noexcept {
    return static_cast<std::uint32_t>(w.value - 1 - prefill_);
  }
  static node_id node_of(std::uint32_t machine) noexcept { return node_id{machine + 1}; }
  static std::uint32_t machine_of(node_id node) noexcept {
    return static_cast<std::uint32_t>(node.value - 1);
  }

 private:
  bool coupled_;
  std::uint32_t pipeline_, first_prefill_, first_decode_, prefill_, decode_;
};

}  // namespace mooncaf::sim
