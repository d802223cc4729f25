#pragma once
// What a node holds: every known block with its place in DRAM, on SSD or both, and the news of every change,
// to which belongs what the node's device has in a memory of its own.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/base/hash.hpp"
#include "storage/flat_index.hpp"

namespace mooncaf {

enum class storage_tier : std::uint8_t { dram = 1, ssd = 2, device = 3 };

/// What a block is called and where it stands in its prompt.
struct block_name {
  block_key key;
  block_key parent;  ///< key of the block before it; for depth 0 the root of its tenant, which is no block
  std::uint32_t depth = 0;  ///< index of the block in its prompt

  friend bool operator==(const block_name&, const block_name&) noexcept = default;
};

/// One change of what this node can serve. `tier` is the first of DRAM, SSD and the device that holds the
/// block after the change, for `removed` the one that held it last. Changes that leave it as it was are no
/// news.
struct block_event {
  enum class kind : std::uint8_t {
    stored,   ///< new in `tier`, and in neither DRAM nor on SSD before
    moved,    ///< was in another tier, is now in `tier`
    removed,  ///< in no tier any more
  };
  std::uint64_t sequence =
      0;  ///< without gaps, from 1; a gap means that events were dropped: ask for a snapshot
  kind what = kind::stored;
  storage_tier tier = storage_tier::dram;
  block_name name;
};

/// Everything held at one moment, parents before their children.
struct block_snapshot {
  std::uint64_t sequence = 0;  ///< the last event that the snapshot includes
  std::vector<block_event> blocks;
};

/// Directory of blocks by key. @thread not synchronised.  @cost O(1) expected per call, except `snapshot`.
class block_directory {
 public:
  static constexpr std::uint32_t no_slot = 0xFFFFFFFFu;

  struct entry {
    block_name name;
    std::uint64_t checksum = 0;    ///< checksum64 of the block's bytes
    std::uint32_t slot = no_slot;  ///< DRAM slot
    bool on_ssd = false;           ///< a verified write has been acknowledged

    bool in_dram() const noexcept { return slot != no_slot; }
  };

  /// @param max_pending_events  events kept for `drain_events`; when nobody drains, all are dropped and the
  /// gap in
  ///                            the sequence tells the reader.
  explicit block_directory(std::size_t max_pending_events = 1 << 16) : max_pending_(max_pending_events) {}

  /// The entry, or null. The pointer is good until the next change.
  const entry* find(const block_key& key) const noexcept;

  void add_dram(const block_name& name, std::uint64_t checksum, std::uint32_t slot);
  void drop_dram(const block_key& key);
  void add_ssd(const block_name& name, std::uint64_t checksum);
  void drop_ssd(const block_key& key);
  /// The device has the block from now on, or no longer. Only news come of it: what a device alone has is no
  /// entry.
  void on_device(const block_name& name, bool held);
  bool is_on_device(const block_key& key) const noexcept { return on_device_.contains(key); }

  std::vector<block_event> drain_events();
  std::uint64_t last_sequence() const noexcept { return sequence_; }
  block_snapshot snapshot() const;

  std::size_t size() const noexcept { return index_.size(); }
  std::size_t ssd_count() const noexcept { return ssd_count_; }
  /// Calls `visit(const entry&)` for every entry, in no order.
  template <class F>
  void for_each(F&& visit) const {
    for (const auto& e : entries_)
      if (e.in_dram() || e.on_ssd) visit(e);
  }

 private:
  entry& obtain(const block_name& name);
  void release_if_gone(std::uint32_t at);
  void announce(block_event::kind what, storage_tier tier, const block_name& name);
  void announce_loss(storage_tier last, const block_name& name);

  std::vector<entry> entries_;
  std::vector<std::uint32_t> unused_;
  flat_index index_;
  std::unordered_map<block_key, block_name> on_device_;
  std::vector<block_event> pending_;
  std::size_t max_pending_;
  std::size_t ssd_count_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace mooncaf
