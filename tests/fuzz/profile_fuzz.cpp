// Any bytes may be a profile, or a list of prices: reading ends in an error with the file's name, or in one that
// reads back alike.

#include <cstdlib>

#include "runtime/sim/price_list.hpp"
#include "runtime/sim/profile.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto p = parse_profile(text, "p");
  if (!p && !p.error().detail.starts_with("p:")) std::abort();
  if (p) {
    const auto again = parse_profile(to_toml(*p), "p");
    if (!again || again->name != p->name || again->model != p->model) std::abort();
    (void)prefill_samples(*p, 3);
    (void)decode_samples(*p);
  }
  const auto prices = parse_prices(text, "p");
  if (!prices && !prices.error().detail.starts_with("p:")) std::abort();
  if (prices) {
    for (const auto& [name, price] : prices->node_hour) {
      if (!(price > 0) || prices->price_of(name).value_or(0) != price) std::abort();
    }
  }
  return 0;
}
