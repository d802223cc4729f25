#pragma once
// Messages between the two ends of an RDMA link: control messages over the authenticated TCP link, notices
// and acknowledgements as messages on the queue pairs.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/rdma/rail.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

/// All that one end of a queue pair must know of the other.
struct queue_pair_endpoint {
  rdma_gid gid{};
  std::uint32_t number = 0;        ///< queue pair number
  std::uint32_t first_packet = 0;  ///< packet sequence number, 24 bits
  std::uint16_t lid = 0;           ///< InfiniBand
  std::uint8_t mtu = 1;            ///< `ibv_mtu`: 256 << (n - 1) bytes, [1, 5]
  std::uint8_t reads = 1;          ///< RDMA READs it can serve and have under way

  friend bool operator==(const queue_pair_endpoint&, const queue_pair_endpoint&) = default;
};

enum class rdma_control_type : std::uint8_t {
  connect_rail = 1,    ///< initiator: `rail`, `remote_rail`, `endpoint`
  rail_connected = 2,  ///< owner: `rail`, `endpoint`, or why not
  retire_rail = 3,     ///< initiator: `rail` is broken
  rail_retired = 4,    ///< owner: no byte of it lands any more
  map_request = 5,     ///< initiator: `region`, `access_key`
  map_reply = 6,       ///< owner: `base`, `length`, `keys` by rail, or why not
  query = 7,           ///< initiator: has `id` landed?
  query_reply =
      8,  ///< owner: none = landed, not_found = not all of it came, overloaded = still verifying, else why
  abandon = 9,   ///< initiator: nothing more comes of `id`; forget it
  ack = 10,      ///< owner: outcome of `id`, where no queue pair is left to tell it
  goodbye = 11,  ///< initiator: end the link
};

/// Which fields mean something depends on the type; the others are zero.
struct rdma_control {
  rdma_control_type type = rdma_control_type::goodbye;
  std::uint32_t rail = 0;         ///< number that the initiator gave this queue pair, never reused on a link
  std::uint32_t remote_rail = 0;  ///< place in the owner's announced list
  queue_pair_endpoint endpoint;
  region_id region;
  std::uint64_t access_key = 0;
  std::uint64_t base = 0;
  std::uint64_t length = 0;
  transfer_id id;
  ec status = ec::none;
  std::string detail;
  std::vector<std::uint32_t> keys;  ///< rkey by place of the rail; 0 = that rail cannot reach it

  friend bool operator==(const rdma_control&, const rdma_control&) = default;
};
std::vector<std::byte> encode_control(const rdma_control& c);
/// @error `ec::corrupt`.
result<rdma_control> parse_control(std::span<const std::byte> bytes);

/// A piece that lies in the owner's memory, for the owner to verify.
struct rdma_notice_piece {
  std::uint32_t index = 0;
  slice at;  ///< in the owner's region
  std::uint64_t checksum = 0;

  friend bool operator==(const rdma_notice_piece&, const rdma_notice_piece&) = default;
};

/// "These pieces lie in your memory." A long transfer is told in several, over the rails its pieces went.
struct rdma_notice {
  static constexpr std::size_t pieces_max = 16;

  transfer_id id;
  transfer_tag tag;
  std::uint64_t total_bytes = 0;
  std::uint32_t total_pieces = 1;  ///< a write without bytes has one of length 0
  bool has_checksums = false;
  std::vector<rdma_notice_piece> pieces;

  friend bool operator==(const rdma_notice&, const rdma_notice&) = default;
};

struct rdma_ack {
  static constexpr std::size_t detail_max = 256;
  transfer_id id;
  error outcome;  ///< code none: landed
};

void encode_notice(const rdma_notice& n, std::vector<std::byte>& out);
void encode_ack(const rdma_ack& a, std::vector<std::byte>& out);
/// Exactly one of the two is set.
struct rdma_message {
  bool is_notice = false;
  rdma_notice notice;
  rdma_ack ack;
};
/// @error `ec::corrupt`.
result<rdma_message> parse_message(std::span<const std::byte> bytes);

}  // namespace mooncaf
