#pragma once
// Frames of the TCP path: a header of 88 bytes, then `payload_bytes` of payload. Little-endian, no padding.
//
//   initiator                                       responder (owner of the remote regions)
//     write_data  × pieces            ──►             into its region
//                                     ◄──             write_result, once per transfer
//     read_request × streams at most  ──►
//                                     ◄──             read_data × pieces, or read_result with the reason
//     cancel                          ──►
//                                     ◄──             cancel_result: no byte of it lands any more

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"
#include "transport/transfer.hpp"

namespace mooncaf {

enum class frame_type : std::uint8_t {
  write_data = 1,
  write_result = 2,
  read_request = 3,
  read_data = 4,
  read_result = 5,
  cancel = 6,
  cancel_result = 7,
  rdma_control = 8,  ///< on RDMA's control links only
};

inline constexpr std::size_t frame_header_bytes = 88;
inline constexpr std::uint32_t data_payload_max = 16 * MiB;
inline constexpr std::uint32_t control_payload_max = 64 * KiB;

/// Which fields mean something depends on the type; the others are zero.
struct frame_header {
  frame_type type = frame_type::write_data;
  ec status = ec::none;       ///< results; the payload is then the detail
  bool has_checksum = false;  ///< data: `checksum` is xxh3-64 of the payload
  bool more = false;          ///< data: the sender has further pieces to send, whatever it is answered
  std::uint32_t payload_bytes = 0;
  std::uint32_t index = 0;  ///< data: which piece of the transfer, in [0, count)
  std::uint32_t count = 0;  ///< write_data: pieces of the transfer; read_request: entries
  transfer_id id;
  std::uint64_t total_bytes = 0;  ///< write_data: of the whole transfer
  slice target;                   ///< write_data: where the payload goes (length = payload_bytes)
  std::uint64_t access_key = 0;   ///< write_data
  std::uint64_t checksum = 0;
  transfer_tag tag;  ///< write_data
};

using frame_header_buffer = std::array<std::byte, frame_header_bytes>;
frame_header_buffer encode_frame(const frame_header& h);
/// @error `ec::corrupt` for anything that `encode_frame` cannot have made or that breaks a limit.
result<frame_header> parse_frame(std::span<const std::byte, frame_header_bytes> bytes);

/// One piece that an initiator wants to read.
struct read_entry {
  std::uint32_t index = 0;
  slice source;
  std::uint64_t access_key = 0;
};
inline constexpr std::size_t read_entry_bytes = 32;
inline constexpr std::uint32_t read_entries_max = control_payload_max / read_entry_bytes;

std::vector<std::byte> encode_read_entries(std::span<const read_entry> entries);
/// @param count  as the header says. @error `ec::corrupt`.
result<std::vector<read_entry>> parse_read_entries(std::span<const std::byte> payload, std::uint32_t count);

}  // namespace mooncaf
