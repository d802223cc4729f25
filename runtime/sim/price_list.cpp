#include "runtime/sim/price_list.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/toml.hpp"
#include "config/value.hpp"
#include "runtime/sim/derived_profile.hpp"

namespace mooncaf::sim {

result<double> price_list::price_of(const std::string& kind) const {
  const auto known_as = [&](const std::string& name) {
    const auto at = node_hour.find(name);
    return at == node_hour.end() ? 0 : at->second;
  };
  if (const double price = known_as(kind); price > 0) return price;
  const auto machine = machine_of(kind);
  if (const double price = known_as(machine); price > 0) return price;
  // A price of one device serves for a machine of several.
  if (const auto computed = parse_deployment(kind)) {
    const double price = known_as(std::string{computed->device.name});
    if (price > 0) return price * computed->devices;
  }
  std::string known;
  for (const auto& [name, price] : node_hour) known += (known.empty() ? "" : ", ") + name;
  return fail(ec::not_found,
              "no price for '" + kind + "'; [node_hour] has " + (known.empty() ? "none" : known));
}

/// A part without a price is free, so a key that is not known is refused and not passed over.
result<price_list> parse_prices(std::string_view text, std::string_view file) {
  constexpr double most = 1e6;
  const auto entries = config::parse_toml(text, file);
  if (!entries) return fail(entries.error());
  price_list prices;
  for (const auto& e : *entries) {
    const auto bad = [&](const std::string& reason) {
      return fail(ec::invalid_argument,
                  std::string{file} + ":" + std::to_string(e.line) + ": " + e.key + ": " + reason);
    };
    if (e.section.empty() && e.key == "currency") {
      if (e.type != config::toml_type::string) return bad("a string expected");
      prices.currency = e.value;
      continue;
    }
    const bool node = e.section == "node_hour";
    double* part = e.key == "cache_gb_hour"   ? &prices.cache_gb_hour
                   : e.key == "ssd_gb_hour"   ? &prices.ssd_gb_hour
                   : e.key == "nic_gbit_hour" ? &prices.nic_gbit_hour
                                              : nullptr;
    if (!node && (part == nullptr || !e.section.empty())) {
      return bad(
          "no such key; there are currency, cache_gb_hour, ssd_gb_hour, nic_gbit_hour and the section "
          "node_hour");
    }
    const auto price = config::parse_real(e.value);
    if (e.type != config::toml_type::number || !price) return bad("a number expected");
    if (*price < 0 || *price > most || (node && *price == 0)) return bad(e.value + " is no price");
    (node ? prices.node_hour[e.key] : *part) = *price;
  }
  return prices;
}

result<price_list> load_prices(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + path + ": " + std::strerror(errno));
  return parse_prices(text.str(), path);
}

std::string kind_name(const std::string& profile) {
  constexpr std::string_view ending = ".toml";
  auto name = profile.substr(profile.find_last_of('/') + 1);
  if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  return name;
}

}  // namespace mooncaf::sim
