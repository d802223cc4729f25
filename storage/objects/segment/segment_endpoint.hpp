#pragma once
// Where a tenant's clients read and write their objects in a segment. They never get the memory itself, in
// which other tenants' objects lie, nor the secret that opens it. Clients of other hosts read here, too, and
// have the endpoint check a whole object of which they read a part.

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/posix.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/segment/shared_ledger.hpp"
#include "storage/objects/wire/endpoint_wire.hpp"
#include "transport/net/event_loop.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

/// One thread for each connection. One tenant may have all of them as long as no other comes; the next one
/// then takes the place of a connection of the tenant that has most, until both have as many. Among
/// connections that have not said yet which tenant's they are the oldest makes way.
/// @thread  construction and destruction only
class segment_endpoint {
 public:
  /// @param store_key  the tenants' keys are derived from it. @param port  0: any free one.
  /// @param ledger  must outlive the endpoint. @error as `listen_tcp`
  static result<std::unique_ptr<segment_endpoint>> open(key_ring store_key, const std::string& host,
                                                        std::uint16_t port, shared_ledger& ledger);
  static constexpr std::size_t connections_max = 128;
  ~segment_endpoint();
  std::uint16_t port() const noexcept { return port_; }

 private:
  struct connection {
    unique_fd fd;
    std::atomic<bool> over{false};
    std::thread thread;
    std::vector<std::byte> chunk;                   ///< the thread's own
    std::span<std::byte> step(std::uint64_t left);  ///< @returns memory for the next of so many bytes
    // guarded by `connections_mutex_`
    std::string tenant;    ///< empty: has not said yet
    bool asks = false;     ///< between a question and the end of its answer
    bool leaving = false;  ///< its place is another's
  };
  segment_endpoint(key_ring store_key, shared_ledger& ledger)
      : store_key_(std::move(store_key)), ledger_(ledger) {}
  void accept_all();
  void serve(connection& v);
  bool admit(connection& v, const std::string& tenant);
  bool set_asking(connection& v, bool asks);
  void turn_out_slowest();
  result<endpoint_wire::greeting> greet(int fd);
  bool answer(connection& v, const std::string& tenant, const endpoint_wire::request& r);
  /// @param known  their checksum, if it is
  bool send_as_it_lies(int fd, std::span<const std::byte> bytes, std::optional<std::uint64_t> known);
  bool read(connection& v, const std::string& tenant, const endpoint_wire::request& r);
  bool write(connection& v, const std::string& tenant, const endpoint_wire::request& r);

  const key_ring store_key_;
  shared_ledger& ledger_;
  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::mutex connections_mutex_;
  std::list<connection> connections_;  // the list itself: loop's thread changes it, under the mutex
  std::unique_ptr<event_loop> loop_;
};

}  // namespace mooncaf
