#pragma once
// A rail is one port of one NIC. Here are its address as peers know it, the choice of its GID, and which
// rails of two nodes belong together. No verbs in here.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mooncaf {

using rdma_gid = std::array<std::uint8_t, 16>;

/// As it travels in the announcement of a node; its place in the list is its number.
struct rdma_rail_address {
  std::string name;  ///< "mlx5_0:1"
  rdma_gid gid{};
  bool ethernet = true;  ///< RoCE; otherwise InfiniBand

  friend bool operator==(const rdma_rail_address&, const rdma_rail_address&) = default;
};

/// One entry of a port's GID table.
struct gid_entry {
  enum class kind : std::uint8_t { infiniband, roce_v1, roce_v2 };
  rdma_gid gid{};
  std::uint32_t index = 0;
  kind type = kind::roce_v2;
};

/// An IPv4 address that a GID stands for, in host byte order.
std::optional<std::uint32_t> ipv4_of(const rdma_gid& gid);
/// "10.0.0.1" or "fe80::1".
std::string to_string(const rdma_gid& gid);

/// Best entry of a port. Ethernet: RoCE v2 with an IPv4 address, then with a global IPv6 one, then
/// link-local; RoCE v1 is not routed and never chosen. InfiniBand: the first. @param wanted  an index, or -1.
std::optional<gid_entry> choose_gid(std::span<const gid_entry> table, bool ethernet, int wanted);

/// A local rail, as the search for its counterpart sees it.
struct rail_location {
  rdma_rail_address address;
  unsigned ipv4_prefix_bits = 0;  ///< of its network; 0: unknown
};

/// Which rail of a peer a local one should be connected to: one in the same network; else one that the route
/// to leads over this rail; else any of the same kind. Where several fit, local rails spread over them.
/// @param local_index   place of the rail among the local ones
/// @param route_source  the local address from which the kernel would reach a GID, if it has a route
std::optional<std::size_t> counterpart(
    const rail_location& local, std::size_t local_index, std::span<const rdma_rail_address> remote,
    const std::function<std::optional<rdma_gid>(const rdma_gid&)>& route_source);

/// The kernel's answer for `route_source`.
std::optional<rdma_gid> kernel_route_source(const rdma_gid& to);
/// Prefix length of the network of a local IPv4 address; 0 if no interface has it.
unsigned local_prefix_bits(const rdma_gid& gid);

}  // namespace mooncaf
