#include "transport/rdma/rdma_wire.hpp"

#include <algorithm>

#include "transport/net/bytes.hpp"

namespace mooncaf {
namespace {

constexpr std::uint32_t notice_magic = 0x4E44524D;  // "MRDN"
constexpr std::uint32_t ack_magic = 0x4144524D;     // "MRDA"
constexpr std::size_t detail_max = 1024;
constexpr std::uint32_t keys_max = 256;

void put_endpoint(byte_writer& out, const queue_pair_endpoint& e) {
  out.put_bytes(std::as_bytes(std::span{e.gid}));
  out.put(e.number);
  out.put(e.first_packet);
  out.put(e.lid);
  out.put(e.mtu);
  out.put(e.reads);
}

bool get_endpoint(byte_reader& in, queue_pair_endpoint& e) {
  const auto gid = in.take(e.gid.size());
  std::transform(gid.begin(), gid.end(), e.gid.begin(),
                 [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
  e.number = in.get<std::uint32_t>();
  e.first_packet = in.get<std::uint32_t>();
  e.lid = in.get<std::uint16_t>();
  e.mtu = in.get<std::uint8_t>();
  e.reads = in.get<std::uint8_t>();
  return in.ok() && e.number < (1u << 24) && e.first_packet < (1u << 24) && e.mtu >= 1 && e.mtu <= 5 &&
         e.reads >= 1;
}

std::string_view shortened(const std::string& text, std::size_t max) {
  return std::string_view{text}.substr(0, max);
}

bool get_status(byte_reader& in, ec& status) {
  const auto code = in.get<std::uint8_t>();
  status = static_cast<ec>(code);
  return code <= static_cast<std::uint8_t>(ec::internal);
}

result<rdma_message> parse_notice(byte_reader& in) {
  rdma_message m;
  m.is_notice = true;
  auto& n = m.notice;
  n.id.value = in.get<std::uint64_t>();
  n.tag.request.value = in.get<std::uint64_t>();
  n.tag.chunk = in.get<std::uint32_t>();
  n.tag.layer = in.get<std::uint32_t>();
  n.tag.kind = in.get<std::uint32_t>();
  n.total_bytes = in.get<std::uint64_t>();
  n.total_pieces = in.get<std::uint32_t>();
  n.has_checksums = in.get<std::uint8_t>() != 0;
  const auto count = in.get<std::uint8_t>();
  if (!in.ok() || !n.id || n.total_pieces > transfer_pieces_max || count > rdma_notice::pieces_max ||
      n.total_pieces == 0 || count > n.total_pieces)
    return fail(ec::corrupt, "malformed notice");
  n.pieces.resize(count);
  for (auto& p : n.pieces) {
    p.index = in.get<std::uint32_t>();
    p.at.region.value = in.get<std::uint64_t>();
    p.at.offset = in.get<std::uint64_t>();
    p.at.length = in.get<std::uint64_t>();
    p.checksum = in.get<std::uint64_t>();
    if (p.index >= n.total_pieces || p.at.length > n.total_bytes)
      return fail(ec::corrupt, "malformed notice");
  }
  if (!in.ok() || in.left() != 0) return fail(ec::corrupt, "malformed notice");
  return m;
}

}  // namespace

std::vector<std::byte> encode_control(const rdma_control& c) {
  std::vector<std::byte> bytes;
  byte_writer out{bytes};
  out.put(static_cast<std::uint8_t>(c.type));
  out.put(static_cast<std::uint8_t>(c.status));
  out.put(c.rail);
  out.put(c.remote_rail);
  put_endpoint(out, c.endpoint);
  out.put(c.region.value);
  out.put(c.access_key);
  out.put(c.base);
  out.put(c.length);
  out.put(c.id.value);
  out.put_text(shortened(c.detail, detail_max));
  out.put(static_cast<std::uint32_t>(c.keys.size()));
  for (const auto k : c.keys) out.put(k);
  return bytes;
}

result<rdma_control> parse_control(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  rdma_control c;
  const auto type = in.get<std::uint8_t>();
  if (type < 1 || type > static_cast<std::uint8_t>(rdma_control_type::goodbye))
    return fail(ec::corrupt, "unknown control message of an RDMA link");
  c.type = static_cast<rdma_control_type>(type);
  bool sound = get_status(in, c.status);
  c.rail = in.get<std::uint32_t>();
  c.remote_rail = in.get<std::uint32_t>();
  sound = get_endpoint(in, c.endpoint) && sound;
  c.region.value = in.get<std::uint64_t>();
  c.access_key = in.get<std::uint64_t>();
  c.base = in.get<std::uint64_t>();
  c.length = in.get<std::uint64_t>();
  c.id.value = in.get<std::uint64_t>();
  c.detail = in.get_text();
  const auto keys = in.get<std::uint32_t>();
  if (!sound || !in.ok() || c.detail.size() > detail_max || keys > keys_max ||
      in.left() != std::size_t{keys} * 4)
    return fail(ec::corrupt, "malformed control message of an RDMA link");
  c.keys.resize(keys);
  for (auto& k : c.keys) k = in.get<std::uint32_t>();
  return c;
}

void encode_notice(const rdma_notice& n, std::vector<std::byte>& bytes) {
  bytes.clear();
  byte_writer out{bytes};
  out.put(notice_magic);
  out.put(n.id.value);
  out.put(n.tag.request.value);
  out.put(n.tag.chunk);
  out.put(n.tag.layer);
  out.put(n.tag.kind);
  out.put(n.total_bytes);
  out.put(n.total_pieces);
  out.put(static_cast<std::uint8_t>(n.has_checksums));
  out.put(static_cast<std::uint8_t>(n.pieces.size()));
  for (const auto& p : n.pieces) {
    out.put(p.index);
    out.put(p.at.region.value);
    out.put(p.at.offset);
    out.put(p.at.length);
    out.put(p.checksum);
  }
}

void encode_ack(const rdma_ack& a, std::vector<std::byte>& bytes) {
  bytes.clear();
  byte_writer out{bytes};
  out.put(ack_magic);
  out.put(a.id.value);
  out.put(static_cast<std::uint8_t>(a.outcome.code));
  out.put_text(shortened(a.outcome.detail, rdma_ack::detail_max));
}

result<rdma_message> parse_message(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  const auto magic = in.get<std::uint32_t>();
  if (magic == notice_magic) return parse_notice(in);
  rdma_message m;
  m.ack.id.value = in.get<std::uint64_t>();
  const bool sound = get_status(in, m.ack.outcome.code);
  m.ack.outcome.detail = in.get_text();
  if (magic != ack_magic || !sound || !in.ok() || in.left() != 0 ||
      m.ack.outcome.detail.size() > rdma_ack::detail_max)
    return fail(ec::corrupt, "malformed message on a queue pair");
  return m;
}

}  // namespace mooncaf
