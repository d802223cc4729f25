#pragma once
// A transfer moves a list of slices between this node and one peer, one-sidedly: the other side's processor
// is told when bytes have landed, it is not asked to move them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "transport/region.hpp"

namespace mooncaf {

/// The purpose of a transfer. Transports carry it and do not look inside; the receiver acts on it as it
/// lands.
struct transfer_tag {
  request_id request;
  std::uint32_t chunk = 0;
  std::uint32_t layer = 0;
  std::uint32_t kind = 0;  ///< whatever sender and receiver agreed on

  friend bool operator==(const transfer_tag&, const transfer_tag&) = default;
};

/// Transfers of one peer that a node assembles at once, more than any initiator of ours keeps at work
/// (data_plane_options::max_transfers_per_peer). A peer that opens more must not make a node remember without
/// bound.
inline constexpr std::size_t assemblies_max = 4096;
/// Pieces of one transfer at most: the bound of what its receiver keeps of it.
inline constexpr std::size_t transfer_pieces_max = 1u << 20;

/// Bytes to move between two slices of equal length.
struct slice_pair {
  slice local;
  slice remote;
  /// Read only: xxh3-64 (`checksum64`) of the whole slice as its owner states it. The bytes that arrived are
  /// checked against it; a difference completes the transfer as `ec::corrupt`.
  std::optional<std::uint64_t> expected_checksum;
};

enum class transfer_op : std::uint8_t {
  write = 1,  ///< local to remote; the peer gets a `landing`
  read = 2,   ///< remote to local; the peer notices nothing
};

/// One order to move bytes.
///
/// The local slices must stay as they are (write) or belong to the transfer (read) until its completion.
/// Idempotent: a write that is submitted again under the same id, by the same node, lands and is announced
/// once. A transfer that fails may have written any part of its remote (write) or local (read) slices.
struct transfer {
  transfer_id id;  ///< chosen by the submitting node, unique there while it lives; not zero
  node_id peer;
  transfer_op op = transfer_op::write;
  std::vector<slice_pair> slices;  ///< order matters for nothing but the stated checksum; may be empty
  transfer_tag tag;
  time_point deadline = time_point::max();  ///< then it completes as `ec::timed_out`
  /// An earlier attempt failed and may have landed: a path asks first where the receiver cannot refuse its
  /// writes. Set by the data plane.
  bool repeated = false;

  std::uint64_t size_bytes() const noexcept {
    std::uint64_t n = 0;
    for (const auto& s : slices) n += s.local.length;
    return n;
  }
};

/// How bytes travelled.
enum class transfer_path : std::uint8_t { none = 0, local = 1, shm = 2, tcp = 3, rdma = 4 };

constexpr std::string_view to_string(transfer_path p) noexcept {
  switch (p) {
    case transfer_path::none:
      return "none";
    case transfer_path::local:
      return "local";
    case transfer_path::shm:
      return "shm";
    case transfer_path::tcp:
      return "tcp";
    case transfer_path::rdma:
      return "rdma";
  }
  return "unknown";
}

/// How a transfer ended, told to the submitter exactly once.
struct completion {
  transfer_id id;
  /// Success of a write means: all bytes are in the peer's memory, were verified there, and were announced
  /// there. Errors: `invalid_argument` (bad slice, bad access key), `not_found` (unknown peer or region),
  /// `corrupt`, `cancelled`, `timed_out`, `peer_lost`, `unauthenticated`, `incompatible`, `overloaded`,
  /// `unavailable`.
  result<void> outcome;
  std::uint64_t bytes = 0;  ///< moved by the path that ended it
  transfer_path path = transfer_path::none;
  double seconds = 0;  ///< submit to completion
  /// No byte of this transfer can be written any more, on either side. False only if the peer of a write
  /// stopped answering: the receiver must then `close` this node before it reuses the memory.
  bool fenced = true;
};
using completion_handler = std::function<void(const completion&)>;

/// A write of a peer has arrived here. Told exactly once per (node, transfer).
struct landing {
  node_id from;
  transfer_id id;
  transfer_tag tag;
  std::uint64_t bytes = 0;
  /// True: all bytes are in memory and passed every check this node makes (none with checksums off, or with
  /// device memory on either side). False: a checksum failed; the bytes must not be used, and the sender is
  /// told `ec::corrupt`.
  bool verified = false;
};
using landing_handler = std::function<void(const landing&)>;

}  // namespace mooncaf
