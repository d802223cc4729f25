#pragma once
// What clients and the directory of the object store say to each other. Little-endian, on a connection whose
// two ends have proved that they know the cluster secret.
//
//   frame:   length of what follows (32 bits) | number of the question (64) | operation (8) | payload
//   answer:  the same number and operation; answers come in the order of the questions, which need not wait
//   for them
//
// A batch is one frame: every question about objects carries a count and that many items, its answer one
// result for each, in order.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/objects/object_table.hpp"
#include "transport/net/bytes.hpp"

namespace mooncaf::store_wire {

inline constexpr std::uint32_t version = 1;
inline constexpr std::size_t header_bytes = 13;
inline constexpr std::size_t frame_bytes_max = 64 * MiB;
inline constexpr std::uint32_t batch_max = 64 * 1024;

enum class op : std::uint8_t {
  hello = 1,   ///< version, host: what a client says first
  mount,       ///< a segment, by the process that lends it; it stays mounted as long as the connection
  segments,    ///< all segments, with how to reach them
  reserve,     ///< policy, then key and size of each object
  publish,     ///< ticket and checksum of each
  revoke,      ///< ticket of each
  find,        ///< key of each; grants leases
  look,        ///< key of each; grants none
  exists,      ///< key of each; grants leases
  remove,      ///< force, then key of each
  remove_all,  ///< force, pattern; an empty pattern stands for all
  list,        ///< pattern, limit
  counts,      ///< figures of the whole store
};
inline constexpr std::uint8_t op_last = static_cast<std::uint8_t>(op::counts);

struct header {
  std::uint32_t payload_bytes = 0;
  std::uint64_t number = 0;
  op what = op::hello;
};

/// @returns nothing for a length or an operation that nobody of ours sends.
std::optional<header> parse_header(std::span<const std::byte, header_bytes> in);

/// Begins a frame at the end of `out`, and writes its length when it ends.
class frame {
 public:
  frame(std::vector<std::byte>& out, std::uint64_t number, op what);
  ~frame();
  frame(const frame&) = delete;
  frame& operator=(const frame&) = delete;
  byte_writer* operator->() { return &writer_; }
  byte_writer& operator*() { return writer_; }

 private:
  std::vector<std::byte>& out_;
  std::size_t begin_;
  byte_writer writer_;
};

/// How a client reaches the memory of a segment.
struct segment_address {
  std::string unix_name;     ///< socket that hands out its descriptor to processes of the same host
  std::uint64_t region = 0;  ///< in the data plane of its process
  std::vector<std::byte> announcement;  ///< of that data plane
  friend bool operator==(const segment_address&, const segment_address&) = default;
};
struct mounted_segment {
  segment_view view;
  segment_address address;
};

std::string_view get_text_view(byte_reader& in);
std::optional<std::uint32_t> get_count(byte_reader& in);
void put_policy_to(byte_writer& out, const put_policy& policy);
put_policy get_policy(byte_reader& in);
void put_places(byte_writer& out, const std::vector<replica_place>& places);
std::vector<replica_place> get_places(byte_reader& in);
void put_address(byte_writer& out, const segment_address& address);
segment_address get_address(byte_reader& in);
void put_segment(byte_writer& out, const mounted_segment& segment);
mounted_segment get_segment(byte_reader& in);
void put_counts(byte_writer& out, const object_counts& counts);
object_counts get_counts(byte_reader& in);

}  // namespace mooncaf::store_wire
