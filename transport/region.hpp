#pragma once
// A region is a span of memory that a node offers to its peers; a slice is a part of one. Neither owns
// memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.hpp"

namespace mooncaf {

/// Where the bytes of a region lie. A device region is reachable only by transports that can address it.
enum class memory_kind : std::uint8_t { host = 0, device = 1 };

/// Memory of an accelerator in this process, as its driver names it. The processor must not touch it.
struct device_memory {
  std::uint64_t address = 0;  ///< as the driver gave it, e.g. a `CUdeviceptr`
  std::uint64_t length = 0;   ///< bytes
  int dma_buf = -1;           ///< descriptor of a dma-buf that holds it; -1: peer memory (nvidia-peermem)
  std::uint64_t dma_buf_offset = 0;  ///< where in the dma-buf it begins
};

/// A transport's needs beyond `access_key` to reach a region, in that transport's own encoding: nothing for
/// TCP and shared memory, the rkeys and NIC addresses for RDMA. Others carry it and do not look inside.
struct transport_key {
  std::string transport;  ///< `transport::name()`
  std::vector<std::byte> blob;

  friend bool operator==(const transport_key&, const transport_key&) = default;
};

/// Description by which a peer can read or write a region of another node. Plain data; travels in control
/// messages.
struct region_desc {
  node_id node;              ///< owner
  region_id id;              ///< unique on that node, never reused while the node lives
  std::uint64_t base = 0;    ///< address in the owner's process; meaningful there (and to verbs) only
  std::uint64_t length = 0;  ///< bytes
  memory_kind kind = memory_kind::host;
  /// 64 random bits that every access has to present: a peer that was never told the region cannot touch it,
  /// and a peer with the description of a former life of the node cannot either.
  std::uint64_t access_key = 0;
  std::vector<transport_key> keys;

  friend bool operator==(const region_desc&, const region_desc&) = default;
};

/// A region of another process of this host as it lies here, mapped as long as a copy of this is there.
struct peer_view {
  std::shared_ptr<const void> mapping;
  std::span<std::byte> bytes;
};

/// `length` bytes of a region, `offset` bytes after its start. Its owner follows from the place: the local
/// side of a transfer names regions of this node, the remote side those of the peer.
struct slice {
  region_id region;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const slice&, const slice&) = default;
};

}  // namespace mooncaf
