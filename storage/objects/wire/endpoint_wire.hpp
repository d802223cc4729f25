#pragma once
// Messages between a client and the endpoint of a segment. A tenant's client reads and writes through it; so
// do other clients that may not map the memory. Little-endian, over TCP.
//
//   greeting:  incarnation of the directory (64 bits) | tenant's name, or `everyone`, filled up with zeros
//              (64 bytes); then the handshake of `transport/`, whose secret the directory has told a tenant's
//              client (`endpoint_key`)
//   request:   1 read, 2 write or 3 look (8 bits) | offset in the segment (64) | bytes (64); behind a write,
//              the bytes
//   answer:    code (32 bits) | xxh3-64 of the bytes (64); of a read that is ok, zero: behind it come
//              the bytes, and another answer that says whether they are the object's

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/terms/key_scope.hpp"
#include "storage/objects/terms/store_code.hpp"

namespace mooncaf::endpoint_wire {

inline constexpr node_id endpoint_node{5}, client_node{6};
/// Longest read.
inline constexpr std::uint64_t read_bytes_max = 64 * MiB;

/// Stands in place of a tenant's name, which cannot be this, for a client that knows the store's key itself.
/// Such a client may look, and read published objects; it writes over the data plane.
inline constexpr std::string_view everyone = "*";

struct greeting {
  std::uint64_t incarnation = 0;
  std::string tenant;
};
inline constexpr std::size_t greeting_bytes = 8 + tenant_bytes_max;
std::array<std::byte, greeting_bytes> encode(const greeting& g);
std::optional<greeting> parse_greeting(std::span<const std::byte, greeting_bytes> in);

enum class op : std::uint8_t {
  read = 1,
  write,
  look,  ///< the checksum alone of all bytes of a published object, which lie in one piece
};
struct request {
  op what = op::read;
  std::uint64_t offset = 0, bytes = 0;
};
inline constexpr std::size_t request_bytes = 17;
std::array<std::byte, request_bytes> encode(const request& r);
/// @returns nothing for a request that no client of ours sends: another operation, no bytes, or more than a
/// segment can have.
std::optional<request> parse_request(std::span<const std::byte, request_bytes> in);

struct answer {
  store_code code = store_code::ok;
  std::uint64_t checksum = 0;
};
inline constexpr std::size_t answer_bytes = 12;
std::array<std::byte, answer_bytes> encode(const answer& a);
answer parse_answer(std::span<const std::byte, answer_bytes> in);

/// The key with which a tenant's client of this directory passes the endpoints of all segments. @param
/// store_key  known to the directory and to processes that mount memory, and to no tenant.
std::string endpoint_key(std::string_view store_key, const greeting& g);

}  // namespace mooncaf::endpoint_wire
