#pragma once
// KV blocks in the memory of a device that is not the host's, and their copies to and from the host's blocks.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/model/device_kv.hpp"
#include "runtime/model/forward_pass.hpp"

namespace mooncaf {

/// Adds the copies of rows [first, last) of a layer between a device's block and its page.
/// @param layout  of the page; the device's block is its compact one.
void append_rows(const kv_layout& layout, device_bytes block, std::byte* page, std::uint32_t layer,
                 std::uint32_t first, std::uint32_t last, std::vector<kv_copy>& out);

/// One runner's passes over the first tier of KV (L1), above the host's blocks (L2). KV that a pass reads and
/// the device lacks is loaded layer by layer; KV that a pass makes is written back layer by layer unless it
/// stays (see `kv_residency`); a block is given to another sequence without a copy. Queues wait for copies by
/// events.
///
/// One pass: `begin`; for each layer `load`, computing, `store`; `end`. @thread One at a time.
class kv_mirror {
 public:
  /// @param kv  shared with the other runners of the device. @param pages  layout of the host's blocks, of the same heads.
  /// @param writes  false: another rank of the group writes these heads into the host's blocks.
  kv_mirror(device& dev, std::shared_ptr<device_kv> kv, const kv_layout& pages, bool writes = true);
  ~kv_mirror();

  /// Places as many leading items as fit together, the first even if it must wait for other runners' passes.
  /// @param items  valid until `end`, as are their blocks. @returns how many are
  /// placed; 0 if the first is larger than the device.
  std::size_t begin(std::span<const batch_item> items);
  /// Device blocks of a placed item, covering its positions.
  std::span<const device_bytes> blocks(std::size_t item) const noexcept { return items_[item].blocks; }

  /// Hands over the loads of `layer` if they were not before. Its part of the prefix must be in the host's
  /// blocks.
  void load(std::uint32_t layer);
  /// … of all layers, where the whole prefix is there.
  void load_all();
  /// Reached once the prefix of all items is on the device in `layer`.
  const event_ptr& loaded(std::uint32_t layer) const noexcept { return loaded_[layer]; }
  /// Hands over the write-back of the pass's rows in `layer`.
  /// @param written  reached once it is written on the device.
  void store(std::uint32_t layer, const event_ptr& written);
  /// … of all layers at once.
  void store_all(const event_ptr& written);
  /// Reached once it is in the host's blocks.
  const event_ptr& stored(std::uint32_t layer) const noexcept { return stored_[layer]; }
  /// Waits for every copy; after it nothing of this pass touches the host's blocks.
  /// @param computed  false: the pass failed, and the KV of the items' new tokens is dropped.
  void end(bool computed);
  /// As `end` on a device that has failed: waits until it copies nothing more.
  void abandon();

 private:
  struct placed_item {
    batch_item item;
    std::uint64_t ticket = 0;
    std::uint32_t valid = 0;
    std::uint32_t write_from = 0;
    std::vector<device_bytes> blocks;
  };
  void give_back(bool computed);
  void add_layer(std::uint32_t layer);
  /// @returns reached once the added copies are in the host's blocks.
  event_ptr hand_over_stores(const event_ptr& written);

  const std::shared_ptr<device_kv> kv_;
  const kv_layout layout_;  ///< of the host's blocks
  const bool writes_;
  std::unique_ptr<copy_queue> loads_;
  std::unique_ptr<copy_queue> stores_;
  std::vector<placed_item> items_;
  std::vector<kv_copy> copies_;
  std::uint32_t next_load_ = 0;  ///< layer
  std::vector<event_ptr> loaded_;
  std::vector<event_ptr> stored_;
};

}  // namespace mooncaf
