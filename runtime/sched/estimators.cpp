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
    // Relative errors count, not absolute ones: a short pass is as important as a long one.
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

void online_correction::observe(double predicted_seconds, double measured_seconds) noexcept {
  if (!(predicted_seconds > 0) || !(measured_seconds > 0)) return;
  const double ratio = std::clamp(factor_ * measured_seconds / predicted_seconds, 0.25, 4.0);
  factor_ += 0.05 * (ratio - factor_);
}

prefill_model::prefill_model(std::span<const timing_point> samples) {
  std::vector<row> x;
  std::vector<double> t;
  for (const auto& s : samples) {
    x.push_back({1, s.a, s.a * s.b + s.a * s.a / 2});
    t.push_back(s.seconds);
  }
  if (x.size() >= 3) weights_ = fit_nonnegative(x, t);
}

duration prefill_model::estimate(std::uint64_t new_tokens, std::uint64_t cached_tokens) const noexcept {
  return from_seconds(correction_.factor() * raw(static_cast<double>(new_tokens), static_cast<double>(cached_tokens)));
}

void prefill_model::observe(std::uint64_t new_tokens, std::uint64_t cached_tokens, duration measured) noexcept {
  correction_.observe(to_seconds(estimate(new_tokens, cached_tokens)), to_seconds(measured));
}

decode_model::decode_model(std::span<const timing_point> samples) {
  std::vector<row> x;
  std::vector<double> t;
  for (const auto& s : samples) {
    x.push_back({1, s.a, s.b});
    t.push_back(s.seconds);
  }
  if (x.size() >= 3) weights_ = fit_nonnegative(x, t);
}

duration decode_model::estimate(std::uint64_t batch, std::uint64_t context_tokens) const noexcept {
  return from_seconds(correction_.factor() * raw(static_cast<double>(batch), static_cast<double>(context_tokens)));
}

void decode_model::observe(std::uint64_t batch, std::uint64_t context_tokens, duration measured) noexcept {
  correction_.observe(to_seconds(estimate(batch, context_tokens)), to_seconds(measured));
}

}  // namespace mooncaf
