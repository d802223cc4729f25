#pragma once
// Reads and writes at the endpoint of a segment, over TCP: all of a tenant's, and reads and checks of other
// clients on other hosts. The calling thread does the talking, so no other thread has to be woken for it.

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/wire/endpoint_wire.hpp"

namespace mooncaf {

/// The directory's words to a tenant's client that it lets in.
struct endpoint_pass {
  endpoint_wire::greeting who;
  std::string key;
};

/// Connections are kept for the next call. @thread  All functions may be called from any thread.
class endpoint_client {
 public:
  endpoint_client(std::string host, std::uint16_t port, duration dial_limit = std::chrono::seconds(5))
      : host_(std::move(host)), port_(port), dial_limit_(dial_limit) {}

  /// @returns xxh3-64 of all bytes, which agrees with the endpoint's own.
  /// @error `ec::not_found` for memory that is not the tenant's, `ec::corrupt` for other bytes than the
  /// endpoint's, or where the object that lies there was altered; others of the connection.
  result<std::uint64_t> write(const endpoint_pass& pass, std::uint64_t offset,
                              std::span<const std::span<const std::byte>> pieces);
  result<std::uint64_t> read(const endpoint_pass& pass, std::uint64_t offset,
                             std::span<const std::span<std::byte>> pieces);

  /// Has the endpoint look at all of an object that lies there in one piece. @returns xxh3-64 of its bytes.
  /// @error `ec::not_found` for no such object of the tenant's; others of the connection.
  result<std::uint64_t> look(const endpoint_pass& pass, std::uint64_t offset, std::uint64_t bytes);

 private:
  struct kept {
    unique_fd fd;
    std::uint64_t incarnation;
  };
  result<unique_fd> dial(const endpoint_pass& pass) const;
  template <class Talk>
  result<std::uint64_t> call(const endpoint_pass& pass, const Talk& talk);

  const std::string host_;
  const std::uint16_t port_;
  const duration dial_limit_;
  std::mutex mutex_;
  std::vector<kept> idle_;
};

}  // namespace mooncaf
