#include "actors/store/directory_options.hpp"

#include <string>
#include <utility>

#include "actors/store/tenants_file.hpp"
#include "config/declaration.hpp"

namespace mooncaf::store {

namespace {

constexpr std::string_view prefix = "store-";

sim::argument argument_of(const config::declaration& d, options& into) {
  sim::argument a;
  a.name = d.name.substr(prefix.size());
  a.placeholder = d.placeholder;
  const auto usual = d.show(default_options());
  a.meaning = d.meaning + (d.allowed.empty() ? "" : " (" + d.allowed + ")") +
              (usual.empty() ? "" : "; " + usual + " by default");
  a.set = [&d, &into](std::string_view text) -> std::optional<std::string> {
    const auto wrong = d.set(into, text);
    if (wrong && !d.allowed.empty()) return *wrong + "; allowed: " + d.allowed;
    return wrong;
  };
  return a;
}

eviction_rule rule_of(store_eviction_choice chosen) {
  switch (chosen) {
    case store_eviction_choice::lru:
      return eviction_rule::lru;
    case store_eviction_choice::lfu:
      return eviction_rule::lfu;
    case store_eviction_choice::length_aware:
      return eviction_rule::length_aware;
    case store_eviction_choice::cost_aware:
      break;
  }
  return eviction_rule::cost_aware;
}

}  // namespace

sim::argument argument_of(std::string_view declared, options& into) {
  return argument_of(*config::find_option(declared), into);
}

std::vector<sim::argument> directory_arguments(options& into) {
  std::vector<sim::argument> all;
  for (const auto& d : config::declarations())
    if (d.section == "store" && d.roles == "conductor" && d.name != "store-listen")
      all.push_back(argument_of(d, into));
  return all;
}

result<directory_server_options> directory_settings(const store_options& chosen) {
  directory_server_options o;
  o.table.lease = chosen.lease;
  o.table.eviction = rule_of(chosen.eviction);
  o.table.high_watermark = chosen.high_watermark;
  o.table.low_watermark = chosen.low_watermark;
  o.table.hot_reads_per_s = chosen.hot_reads_per_s;
  o.table.hot_replicas = chosen.hot_replicas;
  o.recovery = chosen.recovery;
  auto tenants = load_tenants(chosen.tenants_file);
  if (!tenants) return fail(tenants.error());
  o.tenants = std::move(*tenants);
  return o;
}

}  // namespace mooncaf::store
