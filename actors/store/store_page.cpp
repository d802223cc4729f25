#include "actors/store/store_page.hpp"

#include <nlohmann/json.hpp>

#include "storage/objects/terms/count_fields.hpp"

namespace mooncaf::store {

result<store_picture> look_at(store_client& store) {
  constexpr std::size_t hottest_shown = 20;
  auto figures = store.figures();
  if (!figures) return fail(figures.error());
  auto segments = store.mounted();
  if (!segments) return fail(segments.error());
  auto hottest = store.hottest();
  if (!hottest) return fail(hottest.error());
  if (hottest->size() > hottest_shown) hottest->resize(hottest_shown);
  return store_picture{*figures, std::move(*segments), std::move(*hottest)};
}

nlohmann::json as_json(const object_counts& counts) {
  auto out = nlohmann::json::object();
  for (const auto& f : count_fields) out[f.key] = counts.*f.at;
  return out;
}

nlohmann::json as_json(const store_wire::mounted_segment& s) {
  return {{"name", s.view.name},
          {"host", s.view.host},
          {"bytes", s.view.bytes},
          {"used_bytes", s.view.bytes - s.view.free_bytes},
          {"medium", to_string(s.view.kind)},
          {"withheld_bytes", s.view.withheld_bytes},
          {"draining", s.view.draining},
          {"release", s.holder.release},
          {"protocol", s.holder.speaks}};
}

// One JSON serves the page and `store top`, so both show the same figures.
nlohmann::json as_json(const store_picture& picture) {
  using nlohmann::json;
  const auto& figures = picture.figures;
  json times = json::array(), mounted = json::array(), hottest = json::array();
  for (std::size_t i = 1; i < figures.times.size(); ++i) {
    const auto& t = figures.times[i];
    std::uint64_t count = 0, seen = 0;
    for (const auto n : t.counts) count += n;
    if (count == 0) continue;
    json p99;
    for (std::size_t b = 0; b < t.bounds.size() && p99.is_null(); ++b)
      if ((seen += t.counts[b]) * 100 >= count * 99) p99 = t.bounds[b];
    times.push_back({{"question", store_wire::name_of(static_cast<store_wire::op>(i))},
                     {"count", count},
                     {"mean_ns", static_cast<double>(t.total_ns) / static_cast<double>(count)},
                     {"p99_ns", p99}});
  }
  for (const auto& h : picture.hottest)
    hottest.push_back({{"key", h.object.key},
                       {"tenant", h.tenant},
                       {"bytes", h.object.size},
                       {"replicas", h.object.replicas},
                       {"reads_per_s", h.object.reads_per_s}});
  for (const auto& s : picture.segments) mounted.push_back(as_json(s));
  return {{"counts", as_json(figures.counts)}, {"times", times}, {"segments", mounted}, {"hottest", hottest}};
}

}  // namespace mooncaf::store
