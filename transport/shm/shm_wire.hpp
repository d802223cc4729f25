#pragma once
// Messages between the two ends of a shared-memory link: packets on the Unix socket while the link is being
// made and when a region is first used, records in the rings ever after.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

enum class shm_packet_type : std::uint32_t {
  welcome = 1,      ///< owner; carries the link memory and the owner's wake descriptor
  hello = 2,        ///< initiator; carries its wake descriptor
  map_request = 3,  ///< initiator: region and key
  map_reply = 4,    ///< owner; carries the memfd, or says why not
  offer = 5,        ///< initiator: a region of its own that it will write from; carries the memfd
  offer_reply = 6,  ///< owner: mapped it, or says why not
  withdraw = 7,     ///< initiator: that region is gone
};

struct shm_packet {
  shm_packet_type type = shm_packet_type::welcome;
  region_id region;
  std::uint64_t access_key = 0;  ///< map_request
  ec status = ec::none;          ///< map_reply, as all below
  std::uint64_t fd_offset = 0;
  std::uint64_t fd_size = 0;
  std::uint64_t fd_inode = 0;
  std::uint64_t length = 0;
  std::string detail;
};
std::vector<std::byte> encode_packet(const shm_packet& p);
result<shm_packet> parse_packet(std::span<const std::byte> bytes);

/// A part of a transfer that the owner verifies.
struct shm_piece {
  slice at;          ///< in the owner's region
  region_id source;  ///< pulled only: where the bytes are, in a region that the initiator offered
  std::uint64_t source_offset = 0;
};

/// "These pieces lie in your memory", or, of a pulled transfer: "take these pieces from mine"; and the
/// checksums of pieces, in order, in the same notice or a later one. A long transfer is told in several
/// notices.
struct shm_notice {
  static constexpr std::size_t pieces_max = 512;

  transfer_id id;
  transfer_tag tag;
  std::uint64_t total_bytes = 0;
  bool last = false;
  bool abandoned = false;  ///< no more comes of it; forget it, and answer only if it was pulled
  bool has_checksums = false;
  bool pulled = false;  ///< the owner copies
  std::vector<shm_piece> pieces;
  std::vector<std::uint64_t> sums;
};
void encode_notice(const shm_notice& n, std::vector<std::byte>& out);
result<shm_notice> parse_notice(std::span<const std::byte> record);

struct shm_ack {
  static constexpr std::size_t detail_max = 256;

  transfer_id id;
  error outcome;  ///< code none: landed
};
void encode_ack(const shm_ack& a, std::vector<std::byte>& out);
result<shm_ack> parse_ack(std::span<const std::byte> record);

}  // namespace mooncaf
