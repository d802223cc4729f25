#include "transport/tcp/wire.hpp"

#include <algorithm>
#include <cstring>

#include "transport/net/bytes.hpp"

namespace mooncaf {
namespace {

constexpr std::uint32_t magic = 0x3144434D;  // "MCD1"

bool is_data(frame_type t) { return t == frame_type::write_data || t == frame_type::read_data; }

template <class T>
void put(std::byte*& at, T value) {
  std::memcpy(at, &value, sizeof(T));
  at += sizeof(T);
}

}  // namespace

frame_header_buffer encode_frame(const frame_header& h) {
  frame_header_buffer out{};
  auto* at = out.data();
  put(at, magic);
  put(at, static_cast<std::uint8_t>(h.type));
  put(at, static_cast<std::uint8_t>(h.status));
  put(at, static_cast<std::uint8_t>((h.has_checksum ? 1 : 0) | (h.more ? 2 : 0)));
  put(at, std::uint8_t{0});
  put(at, h.payload_bytes);
  put(at, h.index);
  put(at, h.count);
  put(at, h.id.value);
  put(at, h.total_bytes);
  put(at, h.target.region.value);
  put(at, h.target.offset);
  put(at, h.access_key);
  put(at, h.checksum);
  put(at, h.tag.request.value);
  put(at, h.tag.chunk);
  put(at, h.tag.layer);
  put(at, h.tag.kind);
  return out;
}

// Refuses here whatever a later reader of the header would have to doubt.
result<frame_header> parse_frame(std::span<const std::byte, frame_header_bytes> bytes) {
  byte_reader in{bytes};
  if (in.get<std::uint32_t>() != magic) return fail(ec::corrupt, "not a frame of the data plane");
  const auto type = in.get<std::uint8_t>();
  const auto status = in.get<std::uint8_t>();
  const auto flags = in.get<std::uint8_t>();
  const auto zero = in.get<std::uint8_t>();
  if (type < 1 || type > 8 || status > static_cast<std::uint8_t>(ec::internal) || flags > 3 || zero != 0)
    return fail(ec::corrupt, "frame with unknown type, status or flags");
  frame_header h;
  h.type = static_cast<frame_type>(type);
  h.status = static_cast<ec>(status);
  h.has_checksum = (flags & 1) != 0;
  h.more = (flags & 2) != 0;
  h.payload_bytes = in.get<std::uint32_t>();
  h.index = in.get<std::uint32_t>();
  h.count = in.get<std::uint32_t>();
  h.id.value = in.get<std::uint64_t>();
  h.total_bytes = in.get<std::uint64_t>();
  h.target.region.value = in.get<std::uint64_t>();
  h.target.offset = in.get<std::uint64_t>();
  h.access_key = in.get<std::uint64_t>();
  h.checksum = in.get<std::uint64_t>();
  h.tag.request.value = in.get<std::uint64_t>();
  h.tag.chunk = in.get<std::uint32_t>();
  h.tag.layer = in.get<std::uint32_t>();
  h.tag.kind = in.get<std::uint32_t>();
  h.target.length = h.payload_bytes;
  if (!h.id) return fail(ec::corrupt, "frame without a transfer id");
  if (h.payload_bytes > (is_data(h.type) ? data_payload_max : control_payload_max))
    return fail(ec::corrupt, "frame with a payload of " + std::to_string(h.payload_bytes) + " bytes");
  if (h.type == frame_type::write_data && (h.index >= h.count || h.count > transfer_pieces_max))
    return fail(ec::corrupt,
                "frame with piece " + std::to_string(h.index) + " of " + std::to_string(h.count));
  if (h.type == frame_type::write_data && h.total_bytes < h.payload_bytes)
    return fail(ec::corrupt, "frame longer than its transfer");
  if (h.type == frame_type::read_request &&
      (h.count == 0 || std::uint64_t{h.count} * read_entry_bytes != h.payload_bytes))
    return fail(ec::corrupt, "read request whose length does not fit its count");
  return h;
}

std::vector<std::byte> encode_read_entries(std::span<const read_entry> entries) {
  std::vector<std::byte> bytes;
  bytes.reserve(entries.size() * read_entry_bytes);
  byte_writer out{bytes};
  for (const auto& e : entries) {
    out.put(e.index);
    out.put(static_cast<std::uint32_t>(e.source.length));
    out.put(e.source.region.value);
    out.put(e.source.offset);
    out.put(e.access_key);
  }
  return bytes;
}

result<std::vector<read_entry>> parse_read_entries(std::span<const std::byte> payload, std::uint32_t count) {
  if (payload.size() != std::uint64_t{count} * read_entry_bytes)
    return fail(ec::corrupt, "read request whose length does not fit its count");
  byte_reader in{payload};
  std::vector<read_entry> entries(count);
  for (auto& e : entries) {
    e.index = in.get<std::uint32_t>();
    e.source.length = in.get<std::uint32_t>();
    e.source.region.value = in.get<std::uint64_t>();
    e.source.offset = in.get<std::uint64_t>();
    e.access_key = in.get<std::uint64_t>();
    if (e.source.length > data_payload_max) return fail(ec::corrupt, "read request for an oversized piece");
  }
  return entries;
}

}  // namespace mooncaf
