#include "actors/store/directory_options.hpp"

#include <string>
#include <utility>

#include "actors/store/tenants_file.hpp"
#include "config/declaration.hpp"

namespace mooncaf::store {

namespace {

constexpr std::string_view prefix = "store-";

cli::argument argument_of(const config::declaration& d, options& into) {
  cli::argument a;
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

}  // namespace

cli::argument argument_of(std::string_view declared, options& into) {
  return argument_of(*config::find_option(declared), into);
}

std::vector<cli::argument> directory_arguments(options& into) {
  std::vector<cli::argument> all;
  for (const auto& d : config::declarations())
    if (d.section == "store" && d.roles == "conductor" && d.name != "store-listen")
      all.push_back(argument_of(d, into));
  all.push_back(argument_of("store-protocol", into));
  return all;
}

result<directory_server_options> directory_settings(const store_options& chosen) {
  directory_server_options o;
  o.table.lease = chosen.lease;
  o.table.eviction = chosen.eviction;
  o.table.high_watermark = chosen.high_watermark;
  o.table.low_watermark = chosen.low_watermark;
  o.table.hot_reads_per_s = chosen.hot_reads_per_s;
  o.table.hot_replicas = chosen.hot_replicas;
  o.recovery = chosen.recovery;
  o.newest = chosen.protocol;
  auto tenants = load_tenants(chosen.tenants_file);
  if (!tenants) return fail(tenants.error());
  o.tenants = std::move(*tenants);
  return o;
}

}  // namespace mooncaf::store
