#pragma once
// The course of a run, in a bounded number of rows whatever its length.

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/sim/event_queue.hpp"

namespace mooncaf::sim {

/// The cluster at one moment, or averaged over neighbouring ones.
struct timeline_row {
  double at = 0;            ///< seconds
  double prefill_load = 0;  ///< mean predicted queue over the TTFT SLO
  double decode_load = 0;   ///< mean step over the TBT SLO
  double prefill_waiting = 0, decode_running = 0, decode_waiting = 0;  ///< requests, all instances
  double decode_batch = 0;   ///< sequences over the most that a batch may have, mean over instances
  double decode_memory = 0;  ///< KV tokens over the device's room, mean over instances
  double blocks_asked = 0, blocks_found = 0;                 ///< of prompts placed since the row before
  double rejected = 0;                                       ///< requests since the row before
  double prefill_serving = 0, decode_serving = 0, paid = 0;  ///< instances
  std::vector<float> busy;      ///< share of the time since the row before, per instance
  std::vector<float> replicas;  ///< holders of each watched block

  /// Share of the blocks that were found; no number where none was asked for.
  double hit_share() const noexcept {
    return blocks_asked > 0 ? blocks_found / blocks_asked : std::numeric_limits<double>::quiet_NaN();
  }
};

/// At most `most` rows: when it is full, every two neighbours become one, and rows come half as often.
class timeline {
 public:
  static constexpr std::size_t most = 512;

  const std::vector<timeline_row>& rows() const noexcept { return rows_; }
  ticks interval() const noexcept { return interval_; }

  void add(timeline_row row) {
    rows_.push_back(std::move(row));
    if (rows_.size() >= most) halve();
  }

 private:
  static void average(double& a, double b) noexcept { a = (a + b) / 2; }
  static void average(std::vector<float>& a, const std::vector<float>& b) noexcept {
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) a[i] = (a[i] + b[i]) / 2;
  }
  void halve() {
    for (std::size_t i = 0; i + 1 < rows_.size(); i += 2) {
      auto& a = rows_[i];
      const auto& b = rows_[i + 1];
      a.at = b.at;
      average(a.prefill_load, b.prefill_load);
      average(a.decode_load, b.decode_load);
      average(a.prefill_waiting, b.prefill_waiting);
      average(a.decode_running, b.decode_running);
      average(a.decode_waiting, b.decode_waiting);
      average(a.decode_batch, b.decode_batch);
      average(a.decode_memory, b.decode_memory);
      average(a.prefill_serving, b.prefill_serving);
      average(a.decode_serving, b.decode_serving);
      average(a.paid, b.paid);
      a.blocks_asked += b.blocks_asked;
      a.blocks_found += b.blocks_found;
      a.rejected += b.rejected;
      average(a.busy, b.busy);
      average(a.replicas, b.replicas);
      if (i > 0) rows_[i / 2] = std::move(a);
    }
    rows_.resize(rows_.size() / 2);
    interval_ *= 2;
  }

  std::vector<timeline_row> rows_;
  ticks interval_ = 1'000'000'000;
};

}  // namespace mooncaf::sim
