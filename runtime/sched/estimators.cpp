#include "runtime/sched/estimators.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mooncaf {

namespace {

using row = std::array<double, 3>;

/// Solves the normal equations over the active features by Gaussian elimination; inactive weights are 0.
row solve(std::span<const row> x, std::span<const double> t, const std::array<bool, 3>& active) {
  std::array<std::array<double, 4>, 3> m{};
  for (std::size_t s = 0; s < x.size(); ++s) {
    const double weight = 1 / std::max(t[s] * t[s], 1e-12);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) m[i][j] += weight * x[s][i] * x[s][j];
      m[i][3] += weight * x[s][i] * t[s];
    }
  }
  for (int i = 0; i < 3; ++i) {
    if (active[i]) continue;
    for (int r = 0; r < 3; ++r) m[r][i] = 0;
    m[i] = {};
    m[i][i] = 1;
  }
  for (int i = 0; i < 3; ++i) {
    int pivot = i;
    for (int r = i + 1; r < 3; ++r) pivot = std::abs(m[r][i]) > std::abs(m[pivot][i]) ? r : pivot;
    std::swap(m[i], m[pivot]);
    if (std::abs(m[i][i]) < 1e-30) continue;
    for (int r = 0; r < 3; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (int c = i; c < 4; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  row w{};
  for (int i = 0; i < 3; ++i) w[i] = std::abs(m[i][i]) < 1e-30 ? 0 : m[i][3] / m[i][i];
  return w;
}

}  // namespace

std::array<double, 3> fit_nonnegative(std::span<const std::array<double, 3>> features,
                                      std::span<const double> seconds) {
  std::array<bool, 3> active{true, true, true};
  row w{};
  for (int round = 0; round < 3; ++round) {
    w = solve(features, seconds, active);
    int worst = -1;
    for (int i = 0; i < 3; ++i) {
      if (active[i] && w[i] < 0 && (worst < 0 || w[i] < w[worst])) worst = i;
    }
    if (worst < 0) break;
    active[worst] = false;
    w[worst] = 0;
  }
  for (auto& value : w) value = std::max(value, 0.0);
  return w;
}

duration bounded_duration(double seconds) noexcept {
  constexpr double most = 1e5;
  return from_seconds(seconds < most ? std::max(seconds, 0.0) : most);
}

void online_correction::observe(double predicted_seconds, double measured_seconds) noexcept {
  if (!(predicted_seconds > 0) || !(measured_seconds > 0) || !std::isfinite(measured_seconds)) return;
  constexpr double slow_fading = 0.98, fast_fading = 0.6, off = 1.5, most = 100;
  constexpr int in_a_row = 4;
  // A pass from before the correction moved counts at its calibrated time. The calibration itself weighs as
  // much as a few passes of this length, so that the first ones do not decide alone; and one pass counts as
  // no more than four times its expected time, whatever happened to the machine meanwhile.
  const double calibrated = predicted_seconds / factor_;
  if (slow_.calibrated == 0) slow_ = {16 * calibrated * factor_, 16 * calibrated};
  const double ratio = measured_seconds / predicted_seconds;
  slow_.add(std::clamp(ratio, 0.25, 4.0) * predicted_seconds, calibrated, slow_fading);
  high_ = ratio > off ? high_ + 1 : 0;
  low_ = ratio < 1 / off ? low_ + 1 : 0;
  if (high_ + low_ <= 1) fast_ = {};
  fast_.add(measured_seconds, calibrated, fast_fading);
  if (std::max(high_, low_) >= in_a_row) {
    slow_ = {16 * calibrated * fast_.ratio(), 16 * calibrated};
    high_ = low_ = 0;
  }
  factor_ = std::clamp(slow_.ratio(), 1 / most, most);
}

namespace {

/// Fits `weights` if there are enough usable samples; `features_of` turns one into its three features.
template <class Features>
void fit(std::span<const timing_point> samples, std::array<double, 3>& weights, Features&& features_of) {
  std::vector<row> x;
  std::vector<double> t;
  for (const auto& s : samples) {
    const auto usable = [](double v) { return std::isfinite(v) && v >= 0; };
    if (!usable(s.a) || !usable(s.b) || !usable(s.seconds) || s.seconds == 0) continue;
    x.push_back(features_of(s));
    t.push_back(s.seconds);
  }
  if (x.size() >= 3) weights = fit_nonnegative(x, t);
}

bool close(duration a, duration b) noexcept {
  return to_seconds(std::max(a, b)) <= 1.1 * to_seconds(std::min(a, b));
}

}  // namespace

prefill_model::prefill_model(std::span<const timing_point> samples) {
  fit(samples, weights_, [](const timing_point& s) { return row{1, s.a, s.a * s.b + s.a * s.a / 2}; });
}

void prefill_model::observe(std::uint64_t new_tokens, std::uint64_t cached_tokens,
                            duration measured) noexcept {
  correction_.observe(to_seconds(estimate(new_tokens, cached_tokens)), to_seconds(measured));
}

bool prefill_model::agrees_with(const prefill_model& other) const noexcept {
  for (const std::uint64_t n : {256, 2048, 16384}) {
    for (const std::uint64_t p : {0, 8192}) {
      if (!close(estimate(n, p), other.estimate(n, p))) return false;
    }
  }
  return true;
}

decode_model::decode_model(std::span<const timing_point> samples) {
  fit(samples, weights_, [](const timing_point& s) { return row{1, s.a, s.b}; });
}

void decode_model::observe(std::uint64_t batch, std::uint64_t context_tokens, duration measured) noexcept {
  correction_.observe(to_seconds(estimate(batch, context_tokens)), to_seconds(measured));
}

bool decode_model::agrees_with(const decode_model& other) const noexcept {
  for (const std::uint64_t batch : {1, 8, 64}) {
    for (const std::uint64_t context : {512, 8192}) {
      if (!close(estimate(batch, batch * context), other.estimate(batch, batch * context))) return false;
    }
  }
  return true;
}

}  // namespace mooncaf
