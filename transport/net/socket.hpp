#pragma once
// The few socket calls that the transports share. All descriptors are non-blocking and close-on-exec.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

struct socket_address {
  ::sockaddr_storage storage{};
  ::socklen_t size = 0;
  const ::sockaddr* get() const noexcept { return reinterpret_cast<const ::sockaddr*>(&storage); }
};

/// Resolves a numeric address or a name (which may block for as long as the resolver takes). @returns the
/// first address that it has.
result<socket_address> resolve_tcp(const std::string& host, std::uint16_t port);
/// All addresses that it has, one at least.
result<std::vector<socket_address>> resolve_all_tcp(const std::string& host, std::uint16_t port);
/// @param name  a path, or '@' and a name in the abstract namespace. @error `ec::invalid_argument` if too
/// long.
result<socket_address> unix_address(const std::string& name);

result<unique_fd> listen_tcp(const socket_address& at);
/// @param type  packets, or SOCK_STREAM
result<unique_fd> listen_unix(const socket_address& at, int type = SOCK_SEQPACKET);
std::uint16_t bound_port(int fd);
/// Starts connecting; writable means connected or failed (`connect_error`).
result<unique_fd> connect_tcp(const socket_address& to);
result<unique_fd> connect_unix(const socket_address& to, int type = SOCK_SEQPACKET);
int connect_error(int fd);
/// Connects, and waits until the connection stands. @error `ec::peer_lost`: no process listens there;
/// `ec::timed_out`
result<unique_fd> dial_tcp(const socket_address& to, time_point until);
/// The same to the first address of `host` that answers. @error `ec::peer_lost` also for a host without
/// address
result<unique_fd> dial_tcp(const std::string& host, std::uint16_t port, time_point until);
/// Waits until a socket is ready for `events` of poll(2), or has failed. @returns false at the limit.
bool wait_for_socket(int fd, short events, time_point until);
/// No delay; the kernel gives up a peer that does not answer for `lost_after`.
void tune_tcp(int fd, duration lost_after);
/// Bounds the written bytes that the kernel holds, instead of letting them grow (SO_SNDBUF).
void bound_send_buffer(int fd, std::uint64_t bytes);

/// Packets with descriptors over a Unix socket of type SOCK_SEQPACKET.
enum class packet_status { ok, again, closed };
packet_status send_packet(int fd, std::span<const std::byte> bytes, std::span<const int> fds = {});
/// @param bytes  resized to the packet; packets over 4 KiB count as `closed`, since no node sends such.
packet_status receive_packet(int fd, std::vector<std::byte>& bytes, std::vector<unique_fd>& fds);
/// True if the other end of a Unix socket runs as our user or as root.
bool same_user(int fd);

}  // namespace mooncaf
