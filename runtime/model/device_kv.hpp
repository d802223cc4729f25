#pragma once
// The KV blocks in a device's own memory (L1), which all workers of the device share.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/device_kv_stats.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"
#include "runtime/base/units.hpp"
#include "runtime/model/kv_residency.hpp"

namespace mooncaf {

/// One per device and process, given to each `model_runner`: decode finds the KV that prefill computed.
/// @thread safe: calls about blocks take the mutex of the node's tree, which the shard shares.
class device_kv {
 public:
  /// @param bytes  of device memory; whole blocks of it are used.
  /// @param tree  of all tiers of the node; null: one of its own.
  /// @error `ec::invalid_argument` if not even a context of `longest` tokens fits; `ec::out_of_space`.
  static result<std::shared_ptr<device_kv>> make(device& dev, const kv_layout& layout, std::size_t bytes,
                                                 std::uint32_t longest, device_write_rule rule = {},
                                                 std::shared_ptr<prefix_tree> tree = {});

  /// See `kv_residency::take`.
  std::optional<kv_residency::place> take(const kv_residency::wish& w);
  /// As `take`, but waits while other passes hold the missing blocks. @pre the caller holds no place.
  /// @returns nothing if it does not fit into all of the memory.
  std::optional<kv_residency::place> wait_for_place(const kv_residency::wish& w);
  /// See `kv_residency::expect`.
  std::optional<kv_residency::place> expect(const kv_residency::wish& w);
  void give_back(std::uint64_t ticket, std::uint32_t valid);

  /// Leading blocks of `keys` that the device holds, and that may be adopted.
  std::uint32_t match(std::span<const block_key> keys) const;
  /// See `kv_residency`. Where every block is written through there is nothing to adopt.
  std::uint32_t adopt(std::uint64_t sequence, std::span<const block_key> keys, std::uint32_t from);
  void let_go(std::uint64_t sequence);
  /// The next chain to write, if one is due; `all`: whether it is due or not.
  std::optional<kv_residency::write> next_write(bool all);
  void wrote(std::uint64_t id, std::uint32_t count);
  /// See `kv_residency::want`. Where every block is written through there is nothing to bring.
  std::uint32_t bring(std::span<const block_key> keys, std::uint32_t from);
  /// `tell` is called, on any thread, when `next_write` may have a chain.
  void on_unwritten(std::function<void()> tell);
  /// The tiers below may have dropped blocks that the device has: calls `tell` if any is unwritten.
  void tell();

  /// Measures the link with copies of the bytes in `host`, for some milliseconds at most. @pre no block is
  /// held yet. After a failure of the device the link's speed is unknown.
  void measure_link(device& dev, std::span<std::byte> host);
  /// Time until so many blocks, the leading ones of which have these keys, are on the device, if no other
  /// copy uses its link.
  duration loading(std::span<const block_key> keys, std::uint32_t blocks) const;

  /// Frees all blocks and sets all counts to zero, after passes that only warmed up. @pre no block is lent.
  void start_over();

  /// See `kv_residency::missing`. @thread safe.
  kv_residency::block_range missing(std::uint32_t valid, std::uint32_t start) const noexcept {
    return residency_.missing(valid, start);
  }
  const kv_layout& layout() const noexcept { return layout_; }
  device_bytes block(std::uint32_t index) const noexcept;
  void count_moved(std::size_t loaded, std::size_t stored) noexcept;
  device_kv_stats stats() const;

 private:
  device_kv(const kv_layout& layout, std::uint32_t blocks, std::unique_ptr<buffer> memory,
            std::uint32_t spare, device_write_rule rule, std::shared_ptr<prefix_tree> tree);
  std::unique_lock<std::mutex> locked() const { return std::unique_lock{residency_.tree().mutex()}; }
  std::optional<kv_residency::place> take_locked(const kv_residency::wish& w);

  const kv_layout layout_;
  const std::unique_ptr<buffer> memory_;
  const device_write_rule rule_;
  std::condition_variable given_back_;
  kv_residency residency_;
  std::function<void()> tell_;
  device_kv_stats taken_;     ///< tokens
  duration block_on_link_{};  ///< as measured
  std::atomic<std::uint64_t> loaded_bytes_{0}, stored_bytes_{0};
};

}  // namespace mooncaf
