#include "transport/shm/shm_wire.hpp"

#include "transport/net/bytes.hpp"

namespace mooncaf {
namespace {

constexpr std::size_t piece_bytes = 40;
constexpr std::size_t sum_bytes = 8;

bool get_code(byte_reader& in, ec& code) {
  const auto value = in.get<std::uint32_t>();
  code = static_cast<ec>(value);
  return value <= static_cast<std::uint32_t>(ec::internal);
}

}  // namespace

std::vector<std::byte> encode_packet(const shm_packet& p) {
  std::vector<std::byte> bytes;
  byte_writer out{bytes};
  out.put(static_cast<std::uint32_t>(p.type));
  out.put(static_cast<std::uint32_t>(p.status));
  out.put(p.region.value);
  out.put(p.access_key);
  out.put(p.fd_offset);
  out.put(p.fd_size);
  out.put(p.fd_inode);
  out.put(p.length);
  out.put_text(p.detail);
  return bytes;
}

result<shm_packet> parse_packet(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  shm_packet p;
  const auto type = in.get<std::uint32_t>();
  p.type = static_cast<shm_packet_type>(type);
  const bool known = get_code(in, p.status);
  p.region.value = in.get<std::uint64_t>();
  p.access_key = in.get<std::uint64_t>();
  p.fd_offset = in.get<std::uint64_t>();
  p.fd_size = in.get<std::uint64_t>();
  p.fd_inode = in.get<std::uint64_t>();
  p.length = in.get<std::uint64_t>();
  p.detail = in.get_text();
  if (!in.ok() || in.left() != 0 || !known || type < 1 || type > 7)
    return fail(ec::corrupt, "malformed packet on a shared-memory link");
  return p;
}

void encode_notice(const shm_notice& n, std::vector<std::byte>& bytes) {
  bytes.clear();
  bytes.reserve(64 + n.pieces.size() * piece_bytes + n.sums.size() * sum_bytes);
  byte_writer out{bytes};
  out.put(n.id.value);
  out.put(n.tag.request.value);
  out.put(n.tag.chunk);
  out.put(n.tag.layer);
  out.put(n.tag.kind);
  out.put(n.total_bytes);
  out.put(static_cast<std::uint32_t>((n.last ? 1 : 0) | (n.has_checksums ? 2 : 0) | (n.abandoned ? 4 : 0) |
                                     (n.pulled ? 8 : 0)));
  out.put(static_cast<std::uint32_t>(n.pieces.size()));
  out.put(static_cast<std::uint32_t>(n.sums.size()));
  for (const auto& p : n.pieces) {
    out.put(p.at.region.value);
    out.put(p.at.offset);
    out.put(p.at.length);
    out.put(p.source.value);
    out.put(p.source_offset);
  }
  for (const auto sum : n.sums) out.put(sum);
}

// Sizes are checked against the counts before anything is reserved for them.
result<shm_notice> parse_notice(std::span<const std::byte> record) {
  byte_reader in{record};
  shm_notice n;
  n.id.value = in.get<std::uint64_t>();
  n.tag.request.value = in.get<std::uint64_t>();
  n.tag.chunk = in.get<std::uint32_t>();
  n.tag.layer = in.get<std::uint32_t>();
  n.tag.kind = in.get<std::uint32_t>();
  n.total_bytes = in.get<std::uint64_t>();
  const auto flags = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  const auto sums = in.get<std::uint32_t>();
  if (!in.ok() || !n.id || flags > 15 || count > shm_notice::pieces_max || sums > shm_notice::pieces_max ||
      in.left() != count * piece_bytes + sums * sum_bytes)
    return fail(ec::corrupt, "malformed notice on a shared-memory link");
  n.last = (flags & 1) != 0;
  n.has_checksums = (flags & 2) != 0;
  n.abandoned = (flags & 4) != 0;
  n.pulled = (flags & 8) != 0;
  n.pieces.resize(count);
  for (auto& p : n.pieces) {
    p.at.region.value = in.get<std::uint64_t>();
    p.at.offset = in.get<std::uint64_t>();
    p.at.length = in.get<std::uint64_t>();
    p.source.value = in.get<std::uint64_t>();
    p.source_offset = in.get<std::uint64_t>();
  }
  n.sums.resize(sums);
  for (auto& sum : n.sums) sum = in.get<std::uint64_t>();
  return n;
}

void encode_ack(const shm_ack& a, std::vector<std::byte>& bytes) {
  bytes.clear();
  byte_writer out{bytes};
  out.put(a.id.value);
  out.put(static_cast<std::uint32_t>(a.outcome.code));
  out.put_text(std::string_view{a.outcome.detail}.substr(0, shm_ack::detail_max));
}

result<shm_ack> parse_ack(std::span<const std::byte> record) {
  byte_reader in{record};
  shm_ack a;
  a.id.value = in.get<std::uint64_t>();
  const bool known = get_code(in, a.outcome.code);
  a.outcome.detail = in.get_text();
  if (!in.ok() || in.left() != 0 || !known)
    return fail(ec::corrupt, "malformed answer on a shared-memory link");
  return a;
}

}  // namespace mooncaf
