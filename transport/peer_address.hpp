#pragma once
// How to reach the data plane of a node, as it travels in control messages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "transport/rdma/rail.hpp"
#include "transport/region.hpp"

namespace mooncaf {

/// NIC ports of one node.
inline constexpr std::uint8_t rails_max = 64;

struct peer_address {
  node_id node;
  /// Random per start of the data plane: tells a restarted node from its former life.
  std::uint64_t incarnation = 0;
  std::string host;            ///< name or numeric address that peers connect to
  std::uint16_t tcp_port = 0;  ///< 0: offers no TCP
  /// Equal on two nodes if they may share memory: boot id and network namespace, unless overridden by an
  /// option.
  std::string host_id;
  /// Unix socket of the shared-memory path; a leading '@' means the abstract namespace. Empty: offers none.
  std::string unix_name;
  std::uint32_t process_id = 0;
  std::uint16_t rdma_port = 0;                ///< of control links, at `host`; 0: offers no RDMA
  std::vector<rdma_rail_address> rdma_rails;  ///< its NIC ports, [0, rails_max]

  friend bool operator==(const peer_address&, const peer_address&) = default;
};

/// All that a peer has to be told: `data_plane::add_peer` takes it.
struct announcement {
  peer_address address;
  std::vector<region_desc> regions;

  friend bool operator==(const announcement&, const announcement&) = default;
};

/// Equal for processes that may share memory and reach each other's abstract sockets: boot id and network
/// namespace.
std::string this_host();

/// Flat encoding of an announcement, for control messages that carry bytes.
std::vector<std::byte> encode(const announcement& a);
/// What a later version adds is passed over.
/// @error `ec::corrupt` for anything that `encode` cannot have made, `ec::incompatible` for a version that cannot be read
/// as this one.
result<announcement> decode_announcement(std::span<const std::byte> bytes);

}  // namespace mooncaf
