#include "transport/peer_address.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "transport/net/bytes.hpp"

namespace mooncaf {
namespace {

constexpr std::uint32_t magic = 0x4E41434D;  // "MCAN"
constexpr std::uint32_t version = 2;
// A later version has the oldest one that it can be read as behind its number, and what it adds behind all else: so a
// release that writes it has neighbours that read it already.
constexpr std::uint32_t first_that_says = 3;
constexpr std::size_t region_bytes_min =
    41;  // a region without keys; bounds the memory that a length field may make us reserve

void put_region(byte_writer& out, const region_desc& r) {
  out.put(r.node.value);
  out.put(r.id.value);
  out.put(r.base);
  out.put(r.length);
  out.put(r.access_key);
  out.put(static_cast<std::uint8_t>(r.kind));
  out.put(static_cast<std::uint32_t>(r.keys.size()));
  for (const auto& k : r.keys) {
    out.put_text(k.transport);
    out.put(static_cast<std::uint32_t>(k.blob.size()));
    out.put_bytes(k.blob);
  }
}

void put_rail(byte_writer& out, const rdma_rail_address& r) {
  out.put_text(r.name);
  out.put_bytes(std::as_bytes(std::span{r.gid}));
  out.put(static_cast<std::uint8_t>(r.ethernet));
}

bool get_rail(byte_reader& in, rdma_rail_address& r) {
  r.name = in.get_text();
  const auto gid = in.take(r.gid.size());
  std::transform(gid.begin(), gid.end(), r.gid.begin(),
                 [](auto b) { return std::to_integer<std::uint8_t>(b); });
  const auto ethernet = in.get<std::uint8_t>();
  r.ethernet = ethernet == 1;
  return in.ok() && ethernet <= 1;
}

bool get_region(byte_reader& in, region_desc& r) {
  r.node.value = in.get<std::uint64_t>();
  r.id.value = in.get<std::uint64_t>();
  r.base = in.get<std::uint64_t>();
  r.length = in.get<std::uint64_t>();
  r.access_key = in.get<std::uint64_t>();
  const auto kind = in.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(memory_kind::device)) return false;
  r.kind = static_cast<memory_kind>(kind);
  const auto keys = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < keys && in.ok(); ++i) {
    transport_key k;
    k.transport = in.get_text();
    const auto blob = in.take(in.get<std::uint32_t>());
    k.blob.assign(blob.begin(), blob.end());
    r.keys.push_back(std::move(k));
  }
  return in.ok();
}

}  // namespace

std::string this_host() {
  std::ifstream in{"/proc/sys/kernel/random/boot_id"};
  std::string boot;
  std::getline(in, boot);
  struct ::stat net {};
  ::stat("/proc/self/ns/net", &net);
  return boot + ":" + std::to_string(net.st_ino);
}

std::vector<std::byte> encode(const announcement& a) {
  std::vector<std::byte> bytes;
  byte_writer out{bytes};
  out.put(magic);
  out.put(version);
  out.put(a.address.node.value);
  out.put(a.address.incarnation);
  out.put_text(a.address.host);
  out.put(a.address.tcp_port);
  out.put_text(a.address.host_id);
  out.put_text(a.address.unix_name);
  out.put(a.address.process_id);
  out.put(a.address.rdma_port);
  out.put(static_cast<std::uint8_t>(a.address.rdma_rails.size()));
  for (const auto& r : a.address.rdma_rails) put_rail(out, r);
  out.put(static_cast<std::uint32_t>(a.regions.size()));
  for (const auto& r : a.regions) put_region(out, r);
  return bytes;
}

// In the order of `encode`. What a later version puts behind it is not looked at.
result<announcement> decode_announcement(std::span<const std::byte> bytes) {
  byte_reader in{bytes};
  if (in.get<std::uint32_t>() != magic) return fail(ec::corrupt, "not a data plane announcement");
  const auto theirs = in.get<std::uint32_t>();
  const auto readable_as = theirs < first_that_says ? theirs : in.get<std::uint32_t>();
  if (in.ok() && (theirs < version || readable_as > version))
    return fail(ec::incompatible, "data plane announcement of version " + std::to_string(theirs) +
                                      ", this node speaks " + std::to_string(version));
  announcement a;
  a.address.node.value = in.get<std::uint64_t>();
  a.address.incarnation = in.get<std::uint64_t>();
  a.address.host = in.get_text();
  a.address.tcp_port = in.get<std::uint16_t>();
  a.address.host_id = in.get_text();
  a.address.unix_name = in.get_text();
  a.address.process_id = in.get<std::uint32_t>();
  a.address.rdma_port = in.get<std::uint16_t>();
  const auto rails = in.get<std::uint8_t>();
  if (rails > rails_max) return fail(ec::corrupt, "data plane announcement with too many rails");
  a.address.rdma_rails.resize(rails);
  for (auto& r : a.address.rdma_rails)
    if (!get_rail(in, r)) return fail(ec::corrupt, "data plane announcement has a malformed rail");
  const auto regions = in.get<std::uint32_t>();
  if (!in.ok() || regions > in.left() / region_bytes_min)
    return fail(ec::corrupt, "data plane announcement is cut short");
  a.regions.resize(regions);
  for (auto& r : a.regions)
    if (!get_region(in, r)) return fail(ec::corrupt, "data plane announcement has a malformed region");
  if (theirs == version && in.left() != 0)
    return fail(ec::corrupt, "data plane announcement has trailing bytes");
  return a;
}

}  // namespace mooncaf
