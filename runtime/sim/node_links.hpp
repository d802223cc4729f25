#pragma once
// Networks and disks of the modelled nodes: each is a queue.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sim/world.hpp"

namespace mooncaf::sim {

/// Blocks on their way, one after the other.
struct block_run {
  ticks begins = 0, ends = 0;
  std::uint32_t blocks = 0;
  /// Blocks of it that have arrived.
  std::uint32_t there(ticks now) const noexcept {
    if (now >= ends) return blocks;
    if (now <= begins) return 0;
    return static_cast<std::uint32_t>(static_cast<double>(blocks) * static_cast<double>(now - begins) /
                                      static_cast<double>(ends - begins));
  }
};

/// Bytes that a node sends.
struct link_share {
  std::uint32_t from = 0;
  double bytes = 0;
};

/// Bytes on their way to a node: until when the last of their senders works on them, until when the receiver
/// does, and when the bytes move.
struct link_path {
  ticks begins = 0, sent = 0, received = 0, latency = 0;
  ticks ends() const noexcept { return std::max(sent, received) + latency; }
};

/// A transfer ends when both its sender and its receiver have worked off their earlier ones and it; a disk
/// reads one thing after the other. Nodes are numbered as machines are; a pipeline group has the links of all
/// of its nodes together.
class node_links {
 public:
  /// @param w  outlives the links.
  explicit node_links(world& w) : w_(w), nodes_(w.layout.machines()) {}

  /// Bytes a second, each way.
  double speed(std::uint32_t node) const noexcept;
  /// From now on the network of `node` has so many times its speed.
  void change_speed(std::uint32_t node, double factor) noexcept { nodes_[node].speed *= factor; }

  /// The path of a transfer to a node, each sender its share; changes nothing.
  link_path path(std::span<const link_share> shares, std::uint32_t to, ticks begin) const noexcept;
  /// @returns when the last byte is there.
  ticks transfer(std::span<const link_share> shares, std::uint32_t to, ticks begin);
  ticks transfer(std::uint32_t from, std::uint32_t to, double bytes, ticks begin) {
    const link_share all{from, bytes};
    return transfer({&all, 1}, to, begin);
  }
  /// The last bytes of a transfer that has begun are not sent after all: both ends are free sooner.
  void take_back(const link_share& unsent, std::uint32_t to);
  /// From when on a node can send further bytes.
  ticks sends_from(std::uint32_t node, ticks begin) const noexcept {
    return std::max(nodes_[node].sends, begin);
  }
  /// It sends or receives.
  bool moves(std::uint32_t node) const noexcept;

  /// When a node's disk would give blocks, behind its earlier reads; changes nothing.
  block_run disk(std::uint32_t node, std::uint32_t blocks) const noexcept;
  void read_disk(std::uint32_t node, std::uint32_t blocks);
  /// Until when its disk is busy.
  ticks disk_busy_until(std::uint32_t node) const noexcept { return nodes_[node].reads; }

  /// The node dies: nothing of it moves any more.
  void crash(std::uint32_t node);
  /// Time spent sending, as far as transfers have been entered.
  ticks worked(std::uint32_t node) const noexcept { return nodes_[node].worked; }

 private:
  struct queues {
    double speed = 1;                          ///< times its own
    ticks sends = 0, receives = 0, reads = 0;  ///< until when it is busy
    ticks worked = 0;                          ///< time spent sending
  };

  world& w_;
  std::vector<queues> nodes_;
};

}  // namespace mooncaf::sim
