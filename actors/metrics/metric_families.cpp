#include "actors/metrics/metric_families.hpp"

#include <prometheus/text_serializer.h>

#include <limits>

namespace mooncaf {

using prometheus::MetricType;

void metric_families::family(std::string name, std::string help) {
  const auto type = name.ends_with("_total") ? MetricType::Counter : MetricType::Gauge;
  family(std::move(name), std::move(help), type);
}

void metric_families::family(std::string name, std::string help, MetricType type) {
  all_.push_back({std::move(name), std::move(help), type, {}});
}

prometheus::ClientMetric& metric_families::add(labels which) {
  auto& made = all_.back().metric.emplace_back();
  for (auto& [name, value] : which) made.label.push_back({std::move(name), std::move(value)});
  return made;
}

void metric_families::sample(std::uint64_t value, labels which) {
  const auto number = static_cast<double>(value);
  auto& made = add(std::move(which));
  if (all_.back().type == MetricType::Counter) made.counter.value = number;
  else made.gauge.value = number;
}

void metric_families::value(std::string name, std::string help, std::uint64_t is) {
  family(std::move(name), std::move(help));
  sample(is);
}

void metric_families::histogram(const std::vector<double>& bounds, const std::vector<std::uint64_t>& counts,
                                double sum, labels which) {
  auto& made = add(std::move(which)).histogram;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    made.sample_count += counts[i];
    made.bucket.push_back(
        {made.sample_count, i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity()});
  }
  made.sample_sum = sum;
}

std::string metric_families::text() const { return prometheus::TextSerializer{}.Serialize(all_); }

}  // namespace mooncaf
