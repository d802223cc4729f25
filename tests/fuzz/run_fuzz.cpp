// Any bytes may be given to `mooncaf simulate --compare` as a run: they end in an error with the run's name,
// or in one that can be laid beside others, on a page whose script they cannot leave.

#include <cstdlib>

#include "runtime/sim/compare_report.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto run = read_run(text, "r");
  if (!run) {
    if (!run.error().detail.starts_with("r: ")) std::abort();
    return 0;
  }
  if (run->plots.find('<') != std::string::npos) std::abort();
  const std::vector<compared_run> both{*run, *run};
  for (const auto& row : compare(both)) {
    if (row.option || row.best >= 0) std::abort();  // two alike differ in nothing
  }
  if (to_html(both).find("@DATA@") != std::string::npos && text.find("@DATA@") == std::string_view::npos)
    std::abort();
  return 0;
}
