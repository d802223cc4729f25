#pragma once
// How many requests any scheduler could have kept inside both SLOs, had it known all that comes: how much there is to gain.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <unordered_set>
#include <vector>

#include "runtime/sim/options.hpp"
#include "runtime/sim/trace_source.hpp"

namespace mooncaf::sim {

/// Part of a request: seconds of a machine that it needs between its arrival and a deadline.
struct timed_work {
  double arrival_s = 0;
  double deadline_s = 0;
  double machine_s = 0;
};

/// The most requests that can be in time, whoever chooses and orders them. Time is divided into windows:
///
///   ├── window ──┼────── window ──────┼── …      requests belong to the window in which they arrive
///      ├──a──┤      ├──b──┤   ├──c────┼──┤       a, b: inside of one; c reaches beyond it
///
/// Of requests inside of a window there can be as many in time as the machines have time for, the cheapest first, as if
/// machines were one that works as fast as all and could change between requests at will. Requests that reach beyond
/// it all count. Every resource gives such a limit, and the least one counts; the bound is the least sum over all
/// divisions at the points of an even grid.
class window_bound {
 public:
  /// @param arrivals_s  of all requests, from 0 on. @param windows  finest division. @param span_s  length of the grid.
  window_bound(std::span<const double> arrivals_s, double span_s, std::size_t windows)
      : cells_(windows), cell_s_(span_s / static_cast<double>(windows)) {
    for (const double at : arrivals_s) begins_.push_back(cell_of(at));
    limits_.assign(cells_ * (cells_ + 1), 0);
    for (std::size_t from = 0; from < cells_; ++from) {
      std::uint64_t came = 0;
      std::vector<std::uint64_t> in(cells_);
      for (const auto b : begins_) ++in[b];
      for (std::size_t to = from + 1; to <= cells_; ++to) limit(from, to) = came += in[to - 1];
    }
  }

  /// Another resource. @param work  of every request, in the order of `arrivals_s`. @param machines  that share it.
  void limit_by(std::span<const timed_work> work, double machines) {
    std::vector<std::size_t> cheapest(work.size());
    std::iota(cheapest.begin(), cheapest.end(), std::size_t{0});
    std::ranges::sort(cheapest, {}, [&](std::size_t i) { return work[i].machine_s; });
    struct item {
      std::size_t begins, ends;  // cells; beyond the grid it ends in no window
      double machine_s;
    };
    std::vector<item> items;
    for (const auto i : cheapest) {
      const double cells = std::ceil(work[i].deadline_s / cell_s_);
      const auto ends = cells <= static_cast<double>(cells_) ? static_cast<std::size_t>(cells) : cells_ + 1;
      items.push_back({begins_[i], ends, work[i].machine_s});
    }
    for (std::size_t from = 0; from < cells_; ++from) {
      for (std::size_t to = from + 1; to <= cells_; ++to) {
        double left = machines * cell_s_ * static_cast<double>(to - from) * (1 + rounding);
        std::uint64_t most = 0;
        for (const auto& x : items) {
          if (x.begins < from || x.begins >= to) continue;
          if (x.ends > to) ++most;
          else if ((left -= x.machine_s) >= 0) ++most;
        }
        limit(from, to) = std::min(limit(from, to), most);
      }
    }
  }

  std::uint64_t most() const {
    std::vector<std::uint64_t> until(cells_ + 1, std::numeric_limits<std::uint64_t>::max());
    until[0] = 0;
    for (std::size_t to = 1; to <= cells_; ++to) {
      for (std::size_t from = 0; from < to; ++from)
        until[to] = std::min(until[to], until[from] + limits_[from * (cells_ + 1) + to]);
    }
    return until[cells_];
  }

 private:
  static constexpr double rounding = 1e-9;

  std::size_t cell_of(double at_s) const {
    return std::min(static_cast<std::size_t>(std::max(at_s / cell_s_, 0.0)), cells_ - 1);
  }
  std::uint64_t& limit(std::size_t from, std::size_t to) { return limits_[from * (cells_ + 1) + to]; }

  std::size_t cells_;
  double cell_s_;
  std::vector<std::size_t> begins_;    // cells
  std::vector<std::uint64_t> limits_;  // [from, to)
};

namespace clairvoyant_detail {

/// Seconds of a prefill machine that a prompt needs at the least: steps are full, and blocks that an earlier prompt began
/// with are computed, and lie at hand. Reading them may cost more than computing them again.
inline double prefill_work(const profile& p, std::uint32_t prompt, std::uint32_t known) {
  const auto& c = p.costs;
  const double n = prompt - known,
               token = c.prefill_token_s + c.prefill_constant_s / std::max(p.chunk_tokens, 1u);
  return token * n + c.prefill_pair_s * (n * known + n * n / 2) +
         std::min(c.prefill_cached_token_s, token) * known;
}

/// Tokens of each prompt that an earlier one began with.
inline std::vector<std::uint32_t> known_tokens(const simulation_options& o,
                                               std::span<const workload_record> records) {
  std::vector<std::uint32_t> out;
  std::unordered_set<std::uint64_t> seen;
  for (const auto& r : records) {
    const auto first_new = std::ranges::find_if(r.hash_ids, [&](auto id) { return !seen.contains(id); });
    const auto blocks = static_cast<std::uint64_t>(first_new - r.hash_ids.begin());
    out.push_back(static_cast<std::uint32_t>(
        std::min<std::uint64_t>(blocks * o.hardware.block_tokens, r.input_tokens - 1)));
    seen.insert(r.hash_ids.begin(), r.hash_ids.end());
  }
  return out;
}

}  // namespace clairvoyant_detail

/// The most requests of a workload that a cluster of separate prefill and decode machines can keep inside both SLOs, whatever
/// is admitted, placed and ordered how. What is relaxed: one cache without end, transfers that take no time, machines of a
/// role as one, and
///
/// - prefill: `prefill_work` between arrival and TTFT SLO;
/// - decode: a step takes c + Σ a over its members, with c the constant and a the cost of a sequence with its prompt alone.
///   The mean gap of an answer keeps the TBT SLO. Weighted by a, that is Σ x (c + x) ≤ SLO Σ x over all steps, where x is
///   their sum of a; so there are at least Σ x / (SLO - c) steps, and d tokens cost a d SLO / (SLO - c) of a machine;
/// - steps hold `max_batch` members at most, and each of them keeps room in memory for its longest answer. Either gives a
///   least number of steps, too: a resource of its own.
///
/// Noise: what is decided before a step's time is known gets the mean. Prefill steps have mean 1; decode runs are cut by what
/// happens meanwhile, so that slow ones have fewer steps, and their harmonic mean counts. So without noise the bound
/// holds always, and with it but for luck, which is little over hundreds of steps.
/// @pre not coupled, nothing breaks or scales, TBT by the slowest tenth. @param records  sorted by time.
inline std::uint64_t clairvoyant_bound(const simulation_options& o,
                                       std::span<const workload_record> records) {
  constexpr std::size_t windows = 96;
  if (records.empty()) return 0;
  const auto& d = o.decode_profile();
  const double faster = std::exp(-o.jitter * o.jitter);  // harmonic mean of log-normal noise with mean 1
  const double constant = faster * d.costs.decode_constant_s, room = o.tbt_slo_s - constant;
  const auto known = clairvoyant_detail::known_tokens(o, records);
  std::vector<double> arrivals;
  std::vector<timed_work> prefill, steps, batch, memory;
  double span = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto& r = records[i];
    const double tokens = std::max(r.output_tokens, 1u) - 1.0;  // the first one comes from prefill
    const double kept =
        r.input_tokens + std::max<double>(r.max_tokens > 0 ? r.max_tokens : o.max_tokens, tokens);
    if (tokens > 0 && (room <= 0 || kept > static_cast<double>(d.device_kv_tokens)))
      continue;  // never inside
    const double at = static_cast<double>(r.timestamp_ms - records.front().timestamp_ms) * 1e-3 / o.speed;
    const double first = at + o.ttft_slo_s, last = first + tokens * o.tbt_slo_s;
    const double alone =
        faster * (d.costs.decode_sequence_s + d.costs.decode_context_token_s * r.input_tokens) * tokens;
    arrivals.push_back(at);
    prefill.push_back({at, first, clairvoyant_detail::prefill_work(o.hardware, r.input_tokens, known[i])});
    steps.push_back({at, last, tokens > 0 ? alone * o.tbt_slo_s / room : 0});
    batch.push_back({at, last, alone + constant * tokens / d.max_batch});
    memory.push_back({at, last, alone + constant * tokens * kept / static_cast<double>(d.device_kv_tokens)});
    span = std::max(span, last);
  }
  window_bound bound{arrivals, span, windows};
  bound.limit_by(prefill, o.prefill * o.pipeline);
  for (const auto* work : {&steps, &batch, &memory}) bound.limit_by(*work, o.decode);
  return bound.most();
}

}  // namespace mooncaf::sim
