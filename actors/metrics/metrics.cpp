#include "actors/metrics/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace mooncaf {

namespace {

using prometheus::Labels;
using buckets = prometheus::Histogram::BucketBoundaries;

const std::map<series, buckets> buckets_of{
    {series::ttft, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}},
    {series::token_gap, {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}},
    {series::placement_time, {.0001, .0002, .0003, .0005, .00075, .001, .0015, .002, .003, .005, .01,
                              .02,   .05,   .1,    .25,   .5,     1,    2.5,   5,    10,   30,   60}},
    {series::request_time, {.05, .1, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240}}};

/// One line of `series_table` in the registry. The pointers that its kind needs are set; `one` is the series
/// without labels.
struct family {
  prometheus::Family<prometheus::Counter>* counters = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges = nullptr;
  prometheus::Counter* counter = nullptr;
  prometheus::Histogram* histogram = nullptr;
  std::map<Labels, double> totals;  ///< latest totals of the counters that are kept elsewhere
};

}  // namespace

struct metrics::registered {
  prometheus::Registry registry;
  Labels model;
  std::array<family, series_table.size()> families;
  std::mutex mutex;  ///< of all `totals`

  explicit registered(const std::string& name) : model{{"model_name", name}} {
    for (const auto& info : series_table) add(info);
    // A rate needs a zero to start from.
    for (const auto* outcome : {"finished", "failed", "cancelled", "rejected"})
      of(series::requests).counters->Add(labels(series::requests, {outcome}));
    for (const auto* role : {"prefill", "decode"})
      of(series::device_failures).counters->Add(labels(series::device_failures, {role}));
  }

  void add(const series_info& info) {
    auto& f = of(info.id);
    const bool one = info.labels[0] == nullptr && info.from_start;
    switch (info.kind) {
      case series_kind::counter:
        f.counters = &prometheus::BuildCounter().Name(info.name).Help(info.help).Register(registry);
        if (one) f.counter = &f.counters->Add(model);
        return;
      case series_kind::gauge:
        f.gauges = &prometheus::BuildGauge().Name(info.name).Help(info.help).Register(registry);
        if (one) f.gauges->Add(model);
        return;
      case series_kind::histogram:
        f.histogram = &prometheus::BuildHistogram().Name(info.name).Help(info.help).Register(registry).Add(
            model, buckets_of.at(info.id));
        return;
    }
  }

  family& of(series s) { return families[static_cast<std::size_t>(s)]; }

  void add_to(series s, const std::vector<std::string>& values, double more) {
    of(s).counters->Add(labels(s, values)).Increment(more);
  }
  Labels labels(series s, const std::vector<std::string>& values) const {
    auto out = model;
    for (std::size_t i = 0; i < values.size(); ++i) out.emplace(info_of(s).labels.at(i), values[i]);
    return out;
  }
};

metrics::metrics(const std::string& model) : r_(std::make_unique<registered>(model)) {}
metrics::~metrics() = default;

void metrics::first_token(duration ttft, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
  r_->of(series::ttft).histogram->Observe(to_seconds(ttft));
  r_->of(series::prompt_tokens).counter->Increment(prompt_tokens);
  r_->of(series::prefix_queries).counter->Increment(prompt_tokens);
  r_->of(series::prefix_hits).counter->Increment(cached_tokens);
}

void metrics::placed(duration elapsed) {
  r_->of(series::placement_time).histogram->Observe(to_seconds(elapsed));
}
void metrics::token_gap(duration gap) { r_->of(series::token_gap).histogram->Observe(to_seconds(gap)); }
void metrics::tokens_generated(std::uint32_t count) {
  r_->of(series::generation_tokens).counter->Increment(count);
}

void metrics::request_over(const std::string& outcome, const std::string& tenant, duration elapsed) {
  r_->add_to(series::requests, {outcome}, 1);
  if (!tenant.empty()) r_->add_to(series::tenant_requests, {tenant, outcome}, 1);
  if (outcome == "finished") r_->of(series::request_time).histogram->Observe(to_seconds(elapsed));
}

void metrics::tokens_of_tenant(const std::string& tenant, std::uint32_t prompt, std::uint32_t cached,
                               std::uint32_t output) {
  if (tenant.empty()) return;
  r_->add_to(series::tenant_tokens, {tenant, "prompt"}, prompt);
  r_->add_to(series::tenant_tokens, {tenant, "cached"}, cached);
  r_->add_to(series::tenant_tokens, {tenant, "output"}, output);
}

void metrics::prefill_wasted(std::uint32_t tokens) {
  r_->of(series::wasted_prefill_tokens).counter->Increment(tokens);
}

void metrics::device_failed(const std::string& role) { r_->add_to(series::device_failures, {role}, 1); }

void metrics::set(series of, double value, const std::vector<std::string>& labels) {
  auto& f = r_->of(of);
  const auto named = r_->labels(of, labels);
  if (f.gauges) return f.gauges->Add(named).Set(value);
  const std::lock_guard lock{r_->mutex};
  auto& last = f.totals[named];
  f.counters->Add(named).Increment(std::max(0.0, value - last));
  last = value;
}

std::string metrics::text() const { return prometheus::TextSerializer{}.Serialize(r_->registry.Collect()); }

}  // namespace mooncaf
