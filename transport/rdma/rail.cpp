#include "transport/rdma/rail.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/posix.hpp"

namespace mooncaf {
namespace {

constexpr std::array<std::uint8_t, 12> ipv4_mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_zero(const rdma_gid& g) {
  return std::all_of(g.begin(), g.end(), [](auto b) { return b == 0; });
}
bool is_link_local(const rdma_gid& g) { return g[0] == 0xfe && (g[1] & 0xc0) == 0x80; }

rdma_gid mapped(const ::in_addr& a) {
  rdma_gid g{};
  std::copy(ipv4_mapped.begin(), ipv4_mapped.end(), g.begin());
  std::memcpy(g.data() + ipv4_mapped.size(), &a, sizeof(a));
  return g;
}

// Lower is better; none: not usable.
std::optional<int> rank(const gid_entry& e, bool ethernet) {
  if (is_zero(e.gid)) return {};
  if (!ethernet) return e.type == gid_entry::kind::infiniband ? std::optional{0} : std::nullopt;
  if (e.type != gid_entry::kind::roce_v2) return {};
  if (ipv4_of(e.gid)) return 0;
  return is_link_local(e.gid) ? 2 : 1;
}

bool same_network(const rail_location& a, const rdma_rail_address& b) {
  if (!a.address.ethernet) return std::equal(a.address.gid.begin(), a.address.gid.begin() + 8, b.gid.begin());
  const auto x = ipv4_of(a.address.gid);
  const auto y = ipv4_of(b.gid);
  if (x && y) return a.ipv4_prefix_bits > 0 && ((*x ^ *y) >> (32 - std::min(a.ipv4_prefix_bits, 32u))) == 0;
  return !x && !y && std::equal(a.address.gid.begin(), a.address.gid.begin() + 8, b.gid.begin());
}

}  // namespace

std::optional<std::uint32_t> ipv4_of(const rdma_gid& gid) {
  if (!std::equal(ipv4_mapped.begin(), ipv4_mapped.end(), gid.begin())) return {};
  std::uint32_t address = 0;
  std::memcpy(&address, gid.data() + ipv4_mapped.size(), sizeof(address));
  return ntohl(address);
}

std::string to_string(const rdma_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v4 = ipv4_of(gid).has_value();
  ::inet_ntop(v4 ? AF_INET : AF_INET6, gid.data() + (v4 ? ipv4_mapped.size() : 0), text, sizeof(text));
  return text;
}

std::optional<gid_entry> choose_gid(std::span<const gid_entry> table, bool ethernet, int wanted) {
  std::optional<gid_entry> best;
  for (const auto& e : table) {
    const auto r = rank(e, ethernet);
    if (wanted >= 0) {
      if (e.index == static_cast<std::uint32_t>(wanted) && !is_zero(e.gid)) return e;
      continue;
    }
    if (r && (!best || *r < *rank(*best, ethernet))) best = e;
  }
  return best;
}

std::optional<std::size_t> counterpart(
    const rail_location& local, std::size_t local_index, std::span<const rdma_rail_address> remote,
    const std::function<std::optional<rdma_gid>(const rdma_gid&)>& route_source) {
  std::vector<std::size_t> near;
  std::vector<std::size_t> routed;
  std::vector<std::size_t> any;
  for (std::size_t i = 0; i < remote.size(); ++i) {
    if (remote[i].ethernet != local.address.ethernet) continue;
    any.push_back(i);
    if (same_network(local, remote[i])) near.push_back(i);
    else if (local.address.ethernet && route_source(remote[i].gid) == local.address.gid) routed.push_back(i);
  }
  for (const auto* list : {&near, &routed, &any})
    if (!list->empty()) return (*list)[local_index % list->size()];
  return {};
}

std::optional<rdma_gid> kernel_route_source(const rdma_gid& to) {
  const auto v4 = ipv4_of(to);
  if (!v4) return {};
  ::sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(4791);  // RoCE v2; nothing is sent
  at.sin_addr.s_addr = htonl(*v4);
  const unique_fd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!fd || ::connect(fd.get(), reinterpret_cast<const ::sockaddr*>(&at), sizeof(at)) != 0) return {};
  ::sockaddr_in from{};
  ::socklen_t size = sizeof(from);
  if (::getsockname(fd.get(), reinterpret_cast<::sockaddr*>(&from), &size) != 0) return {};
  return mapped(from.sin_addr);
}

unsigned local_prefix_bits(const rdma_gid& gid) {
  ::ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return 0;
  unsigned bits = 0;
  for (auto* a = all; a; a = a->ifa_next) {
    if (!a->ifa_addr || !a->ifa_netmask || a->ifa_addr->sa_family != AF_INET) continue;
    if (mapped(reinterpret_cast<const ::sockaddr_in*>(a->ifa_addr)->sin_addr) != gid) continue;
    bits = static_cast<unsigned>(
        std::popcount(reinterpret_cast<const ::sockaddr_in*>(a->ifa_netmask)->sin_addr.s_addr));
  }
  ::freeifaddrs(all);
  return bits;
}

}  // namespace mooncaf
