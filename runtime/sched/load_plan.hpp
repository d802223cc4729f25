#pragma once
// Which part of a prompt a worker loads, from where, and which part it computes.

#include <algorithm>
#include <cstdint>

#include "runtime/base/units.hpp"
#include "runtime/sched/estimators.hpp"

namespace mooncaf {

/// A prompt's prefix as its worker finds it. Blocks are leading ones; the last token is always computed.
struct load_question {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t block_tokens = 1;
  std::uint32_t device_blocks = 0;  ///< in the device's own memory; nothing is loaded behind them
  std::uint32_t dram_blocks = 0;    ///< in the own memory
  std::uint32_t held_blocks = 0;    ///< … or on the own disk
  std::uint32_t remote_blocks = 0;  ///< at another node
  /// Fewer tokens than this are not worth a load of their own.
  std::uint32_t threshold_tokens = 0;
  std::uint32_t disk_parts =
      1;             ///< runs of layers in which the disk's come in, if nothing is fetched besides
  duration read{};   ///< until the own disk's blocks are in memory
  duration fetch{};  ///< until the other node's blocks behind those in memory are here
  duration fetch_behind_disk{};  ///< … behind the own disk's

  /// Blocks that the own disk adds to memory's.
  std::uint32_t on_disk() const noexcept { return held_blocks - std::min(held_blocks, dram_blocks); }
  /// Blocks that the other node adds to `here` of them.
  std::uint32_t remote_behind(std::uint32_t here) const noexcept {
    return remote_blocks - std::min(remote_blocks, here);
  }
  /// Fills in how long loads take. @param disk, link  the time for so many blocks of each.
  template <class Disk, class Link>
  void ask(Disk&& disk, Link&& link) {
    const auto time = [](auto& source, std::uint32_t blocks) {
      return blocks > 0 ? duration{source(blocks)} : duration{};
    };
    read = time(disk, on_disk());
    fetch = time(link, remote_behind(dram_blocks));
    fetch_behind_disk = time(link, remote_behind(dram_blocks + on_disk()));
  }
};

struct load_plan {
  std::uint32_t from_disk = 0;    ///< blocks behind `dram_blocks` to read
  std::uint32_t from_remote = 0;  ///< blocks behind the disk's to fetch
  duration worth{};               ///< computing all that is not here: a fetch must not take longer
  duration cost{};                ///< loading and computing
};

/// The cheapest of: compute everything that is neither on the device nor in memory, read the disk's blocks,
/// fetch the other node's, or both. Blocks that come in layer by layer while the rest is computed cost as
/// much as the longer of the two, and one run of layers of the other: fetched blocks, of so many layers that
/// one is nothing, and the disk's if nothing is fetched; else the disk's are complete before anything begins.
/// @source  Mooncake, FAST '25, section 4.1: a prefix is fetched where that beats computing it.
load_plan plan_load(const load_question& q, const prefill_model& computing);

}  // namespace mooncaf
