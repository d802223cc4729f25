#include "actors/introductions.hpp"

#include <utility>

namespace mooncaf {

node_info address_of(const node_info& node) {
  node_info out;
  out.id = node.id;
  out.name = node.name;
  out.host = node.host;
  out.control_port = node.control_port;
  out.seat = node.seat;
  return out;
}

member_card card_of(const node_info& node) {
  member_card out;
  out.id = node.id;
  out.has_shard = node.shard != nullptr;
  out.keeps_copies = node.keeper != nullptr;
  out.name = node.name;
  out.roles = node.roles;
  out.host = node.host;
  out.seat = node.seat;
  for (const auto& w : node.workers) {
    instance_desc desc;
    desc.id = w.id;
    desc.node = node.id;
    desc.role = w.role;
    desc.capacity = w.capacity;
    desc.capacity_tokens = w.memory_tokens;
    desc.samples = as_timing_points(w.samples);
    out.workers.push_back(std::move(desc));
  }
  return out;
}

const node_info& with_handles(const introduction_ptr& known) { return static_cast<const node_info&>(*known); }

std::vector<introduction> without_handles(const std::vector<node_info>& nodes) {
  return {nodes.begin(), nodes.end()};
}

conductor_actor conductor_of(const introduction_ptr& node) {
  return node ? caf::actor_cast<conductor_actor>(with_handles(node).conductor) : conductor_actor{};
}

}  // namespace mooncaf
