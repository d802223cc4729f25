#pragma once
// A distribution in constant memory: a bucket is one percent of its value wide.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace mooncaf::sim {

/// Non-negative numbers, weighted. Values below 2^-20 (a microsecond, in seconds) share the lowest bucket,
/// values above 2^20 the highest.
/// @cost  `add` is a shift and an increment. Quantiles are exact within 1.1 %.
class log_histogram {
 public:
  void add(double value, std::uint64_t weight = 1) {
    if (weight == 0) return;
    if (counts_.empty()) counts_.resize(buckets);
    counts_[bucket_of(value)] += weight;
    count_ += weight;
    sum_ += value * static_cast<double>(weight);
    max_ = std::max(max_, value);
  }

  std::uint64_t count() const noexcept { return count_; }
  double mean() const noexcept { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  double max() const noexcept { return max_; }
  double sum() const noexcept { return sum_; }

  /// The value below which a share `q` of the weight lies; 0 if there is none.
  double quantile(double q) const noexcept {
    if (count_ == 0) return 0;
    const auto wanted =
        std::max<std::uint64_t>(static_cast<std::uint64_t>(q * static_cast<double>(count_) + 0.999999), 1);
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < counts_.size(); ++b) {
      seen += counts_[b];
      if (seen >= wanted) return std::min(middle_of(b), max_);
    }
    return max_;
  }
  /// Share of the weight in values up to `limit`.
  double share_up_to(double limit) const noexcept {
    if (count_ == 0) return 0;
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b <= bucket_of(limit); ++b) seen += counts_[b];
    return static_cast<double>(seen) / static_cast<double>(count_);
  }
  /// Calls visit(value, cumulated share) for every bucket that holds something, ascending.
  template <class Visit>
  void for_each(Visit&& visit) const {
    std::uint64_t seen = 0;
    for (std::size_t b = 0; b < counts_.size(); ++b) {
      if (counts_[b] == 0) continue;
      seen += counts_[b];
      visit(std::min(middle_of(b), max_), static_cast<double>(seen) / static_cast<double>(count_));
    }
  }

 private:
  static constexpr int octaves = 40, parts = 64;
  static constexpr std::size_t buckets = octaves * parts + 1;

  static std::size_t bucket_of(double value) noexcept {
    // The leading bits of a double are its logarithm: exponent, then 64 parts of an octave.
    const auto scaled = std::bit_cast<std::uint64_t>(value) >> 46;
    constexpr std::uint64_t lowest = std::uint64_t{1023 - 20} << 6;
    if (!(value > 0) || scaled < lowest) return 0;
    return std::min<std::size_t>(scaled - lowest + 1, buckets - 1);
  }
  static double middle_of(std::size_t b) noexcept {
    if (b == 0) return 0;
    constexpr std::uint64_t lowest = std::uint64_t{1023 - 20} << 6;
    const auto low = std::bit_cast<double>((lowest + b - 1) << 46);
    const auto high = std::bit_cast<double>((lowest + b) << 46);
    return (low + high) / 2;
  }

  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0, max_ = 0;
};

}  // namespace mooncaf::sim
