#pragma once
// Which nodes cannot talk to each other at present, so that nothing is placed across a broken link.

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/ids.hpp"

namespace mooncaf {

/// The nodes' reports on each other. A link is broken as soon as either end misses the other: one that works
/// in one direction is of no use to a request, which needs answers.
class broken_links {
 public:
  /// From now on `node` misses exactly these peers.
  void report(node_id node, std::span<const node_id> missed) {
    if (missed.empty()) {
      missed_.erase(node);
    } else {
      missed_[node].assign(missed.begin(), missed.end());
    }
  }
  /// The node has left: its word about others is void, and theirs about it.
  void forget(node_id node) {
    missed_.erase(node);
    for (auto& [other, peers] : missed_) std::erase(peers, node);
    std::erase_if(missed_, [](const auto& entry) { return entry.second.empty(); });
  }

  bool empty() const noexcept { return missed_.empty(); }
  /// Whether they cannot talk. A node always reaches itself.
  bool between(node_id a, node_id b) const { return a != b && (misses(a, b) || misses(b, a)); }
  /// Broken pairs, each once, the smaller id first, ascending: for people to look at.
  std::vector<std::pair<node_id, node_id>> all() const {
    std::vector<std::pair<node_id, node_id>> out;
    for (const auto& [node, peers] : missed_) {
      for (const auto peer : peers) out.emplace_back(std::min(node, peer), std::max(node, peer));
    }
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

 private:
  bool misses(node_id node, node_id peer) const {
    const auto i = missed_.find(node);
    return i != missed_.end() && std::ranges::find(i->second, peer) != i->second.end();
  }

  std::unordered_map<node_id, std::vector<node_id>> missed_;
};

}  // namespace mooncaf
