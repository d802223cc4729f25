#include "runtime/sim/trace_stats.hpp"

#include <algorithm>
#include <cstdio>

namespace mooncaf::sim {

void trace_stats::add(const workload_record& r) {
  if (requests_++ == 0) first_ms_ = r.timestamp_ms;
  last_ms_ = std::max(last_ms_, r.timestamp_ms);
  input_.add(r.input_tokens);
  output_.add(r.output_tokens);
  blocks_ += r.hash_ids.size();
  for (const auto id : r.hash_ids) ++uses_[id];
}

std::vector<std::uint64_t> trace_stats::hottest(std::size_t count) const {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> all(uses_.begin(), uses_.end());
  count = std::min(count, all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count),
                            [](const auto& a, const auto& b) {
                              return a.second != b.second ? a.second > b.second : a.first < b.first;
                            });
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(all[i].first);
  return ids;
}

std::string trace_stats::to_text() const {
  std::uint64_t once = 0, most = 0;
  for (const auto& [id, n] : uses_) {
    once += n == 1;
    most = std::max<std::uint64_t>(most, n);
  }
  const auto different = static_cast<double>(std::max<std::uint64_t>(uses_.size(), 1));
  char out[1024];
  std::snprintf(out, sizeof out,
                "requests             %llu in %.0f s, %.3f a second\n"
                "input tokens         mean %.0f, p50 %.0f, p90 %.0f, p99 %.0f, longest %.0f\n"
                "output tokens        mean %.0f, p50 %.0f, p90 %.0f, p99 %.0f, longest %.0f\n"
                "blocks               %llu, %llu different, %.2f %% used once, the hottest %llu times\n"
                "reusable             %.6f of all blocks, by a cache without end\n",
                static_cast<unsigned long long>(requests_), span_s(),
                span_s() > 0 ? static_cast<double>(requests_) / span_s() : 0.0, input_.mean(),
                input_.quantile(0.5), input_.quantile(0.9), input_.quantile(0.99), input_.max(),
                output_.mean(), output_.quantile(0.5), output_.quantile(0.9), output_.quantile(0.99),
                output_.max(), static_cast<unsigned long long>(blocks_),
                static_cast<unsigned long long>(uses_.size()), 100 * static_cast<double>(once) / different,
                static_cast<unsigned long long>(most), reusable_share());
  return out;
}

std::vector<std::uint64_t> hottest_blocks(const std::vector<workload_record>& records, std::size_t count) {
  trace_stats stats;
  for (const auto& r : records) stats.add(r);
  return stats.hottest(count);
}

}  // namespace mooncaf::sim
