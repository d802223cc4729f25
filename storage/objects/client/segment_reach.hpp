#pragma once
// A client's ways to the memory of segments: mapped where they share a host, through the data plane
// elsewhere.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/objects/client/endpoint_client.hpp"
#include "storage/objects/client/remote_mover.hpp"
#include "storage/objects/segment/descriptor_endpoint.hpp"
#include "storage/objects/wire/store_wire.hpp"
#include "transport/net/secret_file.hpp"

namespace mooncaf {

using source_pieces = std::span<const std::span<const std::byte>>;
using target_pieces = std::span<const std::span<std::byte>>;

/// @thread  All functions may be called from any thread.
class segment_reach {
 public:
  /// @param registered  as of `remote_mover::start`
  segment_reach(key_ring secret, std::string own_host, std::uint64_t staging_bytes,
                std::shared_ptr<const registered_memory> registered)
      : secret_(std::move(secret)),
        own_host_(std::move(own_host)),
        staging_bytes_(staging_bytes),
        registered_(std::move(registered)) {}

  /// From now on segments are reached through their endpoints, as a tenant's client has to.
  void authorize(endpoint_pass pass);
  /// Takes the list of segments as the directory has it now. Segments that are not in it are let go after a
  /// while, because a directory that has just begun does not know all yet.
  void learn(std::vector<store_wire::mounted_segment> segments);
  bool knows(std::uint32_t segment) const;
  /// Whether all of a replica lies in memory of this host that may be mapped: a tenant's client maps none.
  bool is_local(std::span<const replica_place> replica) const;
  /// Closeness of the part that is farthest from this host.
  std::size_t closeness_of(std::span<const replica_place> replica) const;

  /// One pass over the bytes of one part; stripes in several segments are moved at once, and checked
  /// afterwards. @returns xxh3-64 of all.
  /// @param to  a replica, or a part of one, as long as the pieces together.
  /// @param settled  becomes false if bytes of a failed write may still land.
  /// @error `ec::not_found` for a segment that is not known, others of the way to it.
  result<std::uint64_t> write(std::span<const replica_place> to, source_pieces pieces, bool& settled);
  /// Bytes for a replica, and their outcome as of `write`.
  struct order {
    std::span<const replica_place> to;
    source_pieces pieces;
    result<std::uint64_t> sum{0};
    bool settled = true;
  };
  /// Several at once: small ones travel to another host together.
  void write(std::span<order> orders);
  /// @param arrived  the checksum is to be that of the bytes that arrived; else it may be, where that is
  /// faster, that of the bytes that were read.
  result<std::uint64_t> read(std::span<const replica_place> from, target_pieces pieces, bool arrived = true);
  /// Copies nothing where the segments are mapped. @returns xxh3-64 of the bytes there.
  result<std::uint64_t> checksum(std::span<const replica_place> at);
  /// Whether a replica of a published object agrees with its checksum. A mapped replica is hashed here; one
  /// that lies on another host in one piece is hashed by its holder, so that it does not travel for that;
  /// stripes, and replicas where no endpoint answers, are read.
  /// @error as of `read`
  result<bool> agrees(std::span<const replica_place> replica, std::uint64_t checksum);

 private:
  result<std::uint64_t> write_one(const replica_place& to, source_pieces pieces, bool& settled);
  result<std::uint64_t> read_one(const replica_place& from, target_pieces pieces, bool arrived);
  template <class Byte, class Move>
  result<std::uint64_t> in_stripes(std::span<const replica_place> places,
                                   std::span<const std::span<Byte>> pieces, const Move& move);
  struct way {
    store_wire::mounted_segment segment;
    std::once_flag opened;
    time_point missing_since = time_point::max();  ///< in the directory's list; under the mutex
    std::unique_ptr<mapped_segment> mapped;        ///< or
    std::unique_ptr<endpoint_client> endpoint;     ///< or, if there is neither:
    node_id node;
    std::unique_ptr<endpoint_client> looker;  ///< beside the mover: the endpoint that checks objects for this
                                              ///< client; null: none
    std::atomic<time_point> no_looks_before{time_point::min()};  ///< its endpoint could not be reached
    error problem;                                               ///< neither
  };
  std::shared_ptr<way> find(std::uint32_t segment) const;
  result<std::shared_ptr<way>> open(std::uint32_t segment);
  void open_way(way& w);
  result<remote_mover*> mover();
  std::optional<endpoint_pass> pass() const;
  static remote_mover::place place_of(const way& w, std::uint64_t offset);
  template <class Visit>
  result<std::uint64_t> ask_looker(way& w, const Visit& visit);
  result<std::span<std::byte>> mapped_part(const way& w, std::uint64_t offset, std::uint64_t bytes) const;

  const key_ring secret_;
  std::string own_host_;
  std::uint64_t staging_bytes_;
  std::shared_ptr<const registered_memory> registered_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<way>> ways_;
  std::unique_ptr<remote_mover> mover_;  // when first needed
  std::optional<endpoint_pass> pass_;
};

}  // namespace mooncaf
