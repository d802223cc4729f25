#pragma once
// State that the actors of one process share: immutable after start, or thread-safe by itself.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/api/front_context.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/model/device_kv.hpp"
#include "runtime/model/model.hpp"
#include "storage/arena.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

struct device_reach;
class link_book;
class metrics;
class shared_exchange;
class trace_exporter;

/// A device and its layers of the model.
struct compute_stage {
  std::shared_ptr<device> hardware;
  std::shared_ptr<const model> net;
  std::shared_ptr<device_kv>
      device_blocks;  ///< KV of its layers in its own memory; null where that is the host's
  /// Of the ranks that share its layers, with the first of them, where devices have memory of their own: all roles' passes
  /// take turns, as each needs room on every device.
  std::shared_ptr<shared_exchange> exchange;
};

struct node_context : front_context {
  node_id id;
  std::string name;
  std::atomic<bool> ends = false;  ///< the process is to end: work that may be left undone is

  std::shared_ptr<device> hardware;  ///< of the first stage; null where nothing is computed
  /// What computes here: one device with the model, or those of a pipeline group. Empty where nothing does.
  std::vector<compute_stage> stages;
  /// Which blocks lie where, in all tiers of this process.
  std::shared_ptr<prefix_tree> blocks = std::make_shared<prefix_tree>();
  /// KV of whole blocks in the device's own memory; null where that is the host's, and in a group.
  std::shared_ptr<device_kv> device_blocks;
  std::shared_ptr<device_reach> reach;  ///< of `device_blocks`; null where no KV leaves from there
  kv_layout layout;
  std::uint32_t disk_part_layers = 0;  ///< layers that come from the SSD at once; 0: blocks come whole
  block_key root;                      ///< parent of every first block without a tenant salt

  std::shared_ptr<arena> memory;  ///< null without a shard
  region_desc region;             ///< the arena, as peers address it
  std::shared_ptr<data_plane> plane;
  std::shared_ptr<std::atomic<std::uint64_t>> transfer_ids;  ///< next id of a transfer of this node
  std::shared_ptr<link_book> links;  ///< learned costs of transfers with peers; null without a data plane
  std::shared_ptr<metrics> meters;   ///< null where nothing is measured
  std::shared_ptr<trace_exporter> traces;  ///< null where nobody collects them

  std::byte* slot(std::uint32_t index) const noexcept { return memory->base() + slot_offset(index); }
  std::uint64_t slot_offset(std::uint32_t index) const noexcept { return layout.pieces().offset(index); }
};

using context_ptr = std::shared_ptr<const node_context>;

}  // namespace mooncaf
