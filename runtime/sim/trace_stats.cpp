#include "runtime/sim/trace_stats.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runtime/sim/json_object.hpp"

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

double length_counts::mean() const {
  double sum = 0;
  for (const auto& [length, n] : counts_) sum += static_cast<double>(length) * static_cast<double>(n);
  return count_ == 0 ? 0 : sum / static_cast<double>(count_);
}

std::uint32_t length_counts::quantile(double q) const {
  const auto wanted =
      std::max(static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_))), std::uint64_t{1});
  std::uint64_t seen = 0;
  for (const auto& [length, n] : counts_) {
    if ((seen += n) >= wanted) return length;
  }
  return longest();
}

trace_stats::uses trace_stats::count_uses() const noexcept {
  uses u;
  for (const auto& [id, n] : uses_) {
    u.once += n == 1;
    u.most = std::max<std::uint64_t>(u.most, n);
  }
  return u;
}

std::string trace_stats::to_text(std::uint32_t block_tokens) const {
  const auto u = count_uses();
  const auto different = static_cast<double>(std::max<std::uint64_t>(uses_.size(), 1));
  char out[1024];
  std::snprintf(out, sizeof out,
                "requests             %llu in %.0f s, %.3f a second\n"
                "input tokens         mean %.0f, p50 %u, p90 %u, p99 %u, longest %u\n"
                "output tokens        mean %.0f, p50 %u, p90 %u, p99 %u, longest %u\n"
                "blocks               %llu of %u tokens, %llu different, %.2f %% used once, the hottest %llu "
                "times\n"
                "reusable             %.6f of all blocks, by a cache without end\n",
                static_cast<unsigned long long>(requests_), span_s(),
                span_s() > 0 ? static_cast<double>(requests_) / span_s() : 0.0, input_.mean(),
                input_.quantile(0.5), input_.quantile(0.9), input_.quantile(0.99), input_.longest(),
                output_.mean(), output_.quantile(0.5), output_.quantile(0.9), output_.quantile(0.99),
                output_.longest(), static_cast<unsigned long long>(blocks_), block_tokens,
                static_cast<unsigned long long>(uses_.size()), 100 * static_cast<double>(u.once) / different,
                static_cast<unsigned long long>(u.most), reusable_share());
  return out;
}

std::string trace_stats::to_json(std::uint32_t block_tokens) const {
  const auto lengths = [](const length_counts& c) {
    return json_object{}
        .number("mean", c.mean())
        .count("p50", c.quantile(0.5))
        .count("p90", c.quantile(0.9))
        .count("p99", c.quantile(0.99))
        .count("max", c.longest())
        .done();
  };
  const auto u = count_uses();
  return json_object{}
             .count("requests", requests_)
             .number("span_s", span_s())
             .raw("input_tokens", lengths(input_))
             .raw("output_tokens", lengths(output_))
             .count("blocks", blocks_)
             .count("block_tokens", block_tokens)
             .count("different_blocks", uses_.size())
             .count("used_once", u.once)
             .count("hottest_uses", u.most)
             .number("reusable_share", reusable_share())
             .done() +
         "\n";
}

std::vector<std::uint64_t> hottest_blocks(const std::vector<workload_record>& records, std::size_t count) {
  trace_stats stats;
  for (const auto& r : records) stats.add(r);
  return stats.hottest(count);
}

}  // namespace mooncaf::sim
