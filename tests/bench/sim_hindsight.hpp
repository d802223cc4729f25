#pragma once
// The family of sim_family.hpp with more that changes: workloads that turn into others in mid-trace, loads that rise and
// fall like a day's, requests of several priorities.

#include <numbers>

#include "tests/bench/sim_family.hpp"

namespace mooncaf::sim {

namespace hindsight_detail {

/// Another kind of request comes after a part of the trace; ids of blocks are kept apart.
inline void change_regime(family_member& m, random_source& random) {
  auto later = m.workload;
  later.kind = static_cast<workload_kind>((static_cast<int>(later.kind) + 1 + random.below(2)) % 3);
  later.input_mean = later.output_mean = 0;
  later.seed = random.bits();
  const auto next = family_detail::records_of(later);
  const auto from =
      static_cast<std::size_t>((0.3 + 0.4 * random.uniform()) * static_cast<double>(m.records.size()));
  // Both regimes ask for about as much prefill in a second, or one of them would be an idle cluster.
  const auto tokens = [](const auto& records) {
    double sum = 0;
    for (const auto& r : records) sum += r.input_tokens;
    return sum / static_cast<double>(records.back().timestamp_ms + 1);
  };
  const double stretch = std::clamp(tokens(next) / tokens(m.records), 0.2, 5.0);
  std::uint64_t apart = 0;
  for (const auto& r : m.records) {
    for (const auto id : r.hash_ids) apart = std::max(apart, id + 1);
  }
  const auto begins = m.records[from].timestamp_ms;
  const auto wanted = m.records.size() - from;
  m.records.resize(from);
  for (const auto& r : next) {
    if (m.records.size() >= from + wanted) break;
    m.records.push_back(r);
    auto& made = m.records.back();
    made.timestamp_ms = begins + static_cast<std::int64_t>(static_cast<double>(r.timestamp_ms) * stretch);
    for (auto& id : made.hash_ids) id += apart;
  }
}

/// Two days in the length of the trace: time runs faster and slower, and in all as long as before.
inline void bend_to_days(std::vector<workload_record>& records, double depth) {
  const double all = static_cast<double>(records.back().timestamp_ms) + 1;
  for (auto& r : records) {
    const double x = static_cast<double>(r.timestamp_ms) / all;
    const double turns = 4 * std::numbers::pi;
    r.timestamp_ms = static_cast<std::int64_t>(all * (x + depth * std::sin(turns * x) / turns));
  }
}

}  // namespace hindsight_detail

/// @param requests  of its workload, about; likewise `member_of_family`.
inline family_member member_of_wide_family(std::uint64_t number, std::uint64_t requests,
                                           std::string& changes) {
  auto m = member_of_family(number, requests);
  random_source random{number * 0xD1B54A32D192ED03 + 7};
  changes.clear();
  if (random.below(3) == 0) hindsight_detail::change_regime(m, random), changes += "regime ";
  if (random.below(3) == 0) {
    hindsight_detail::bend_to_days(m.records, 0.3 + 0.6 * random.uniform());
    changes += "days ";
  }
  if (random.below(4) == 0) {
    m.options.high_share = 0.2 * random.uniform();
    m.options.low_share = 0.4 * random.uniform();
    changes += "priorities ";
  }
  if (changes.empty()) return m;
  // What has changed is a load of its own.
  if (const double carried = capacity(m.options, m.records, 0.9); carried > 0)
    m.options.speed = m.load * carried;
  return m;
}

}  // namespace mooncaf::sim
