#pragma once
// Metrics that are read at the moment of a scrape from figures that somebody else keeps; those that processes count
// themselves are in metrics.hpp.

#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mooncaf {

/// @thread  Not synchronised.
class metric_families {
 public:
  using labels = std::vector<std::pair<std::string, std::string>>;

  /// A name that ends in _total is a counter's. The samples that follow are of this family.
  void family(std::string name, std::string help);
  void family(std::string name, std::string help, prometheus::MetricType type);
  void sample(std::uint64_t value, labels which = {});
  /// A family of one sample without labels.
  void value(std::string name, std::string help, std::uint64_t is);
  /// A sample of a histogram: bounds, inclusive, how often each was met, one more for what is beyond, and their sum.
  void histogram(const std::vector<double>& bounds, const std::vector<std::uint64_t>& counts, double sum,
                 labels which = {});

  /// Prometheus's text of all.
  std::string text() const;

 private:
  prometheus::ClientMetric& add(labels which);

  std::vector<prometheus::MetricFamily> all_;
};

}  // namespace mooncaf
