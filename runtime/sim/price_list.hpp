#pragma once
// Prices of machines, from a file.

#include <map>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace mooncaf::sim {

/// TOML:
///
///   currency = "EUR"        # as it is printed; "$" if it is not given
///   cache_gb_hour = 0.003   # of a GB of memory for KV, where machines are bought without it; 0 if not given
///   ssd_gb_hour = 0.0001    # of a GB of SSD for KV, likewise
///   nic_gbit_hour = 0.004   # of a Gbit/s of a machine's network, likewise
///   [node_hour]             # an hour of a machine
///   a800x8-llama70b = 14.4  # by its profile's name (of a file without folder and .toml)
///   h100x8 = 20.0           # of computed profiles: by the machine, whatever it serves,
///   l40s = 1.1              # or by one device, times their number
struct price_list {
  std::string currency = "$";
  double cache_gb_hour = 0, ssd_gb_hour = 0, nic_gbit_hour = 0;
  std::map<std::string, double> node_hour;

  /// @error `ec::not_found` with the names that there are.
  result<double> price_of(const std::string& kind) const;
};

/// @error `ec::invalid_argument`, "FILE:LINE: …".
result<price_list> parse_prices(std::string_view text, std::string_view file);
/// @error As above; `ec::io_error` if the file cannot be read.
result<price_list> load_prices(const std::string& path);

/// Under which a profile stands in a price list: a file's name without folder and ending.
std::string kind_name(const std::string& profile);

}  // namespace mooncaf::sim
