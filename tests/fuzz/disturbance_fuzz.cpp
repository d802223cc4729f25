// Any bytes may say what goes wrong: reading ends in an error with file and line, or in lines that read back
// alike.

#include <cstdlib>

#include "runtime/sim/disturbance.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto all = parse_disturbances({reinterpret_cast<const char*>(data), size}, "d");
  if (!all) {
    if (!all.error().detail.starts_with("d:")) std::abort();
    return 0;
  }
  for (const auto& d : *all) {
    const auto again = parse_disturbances(to_string(d), "d");
    if (!again || again->size() != 1 || to_string(again->front()) != to_string(d)) std::abort();
  }
  double last = 0;
  for (const double at : {1.0, 10.0, 1e3, 1e6}) {
    const double comes = with_bursts(*all, at);
    if (!(comes >= 0) || comes < last) std::abort();
    last = comes;
  }
  return 0;
}
