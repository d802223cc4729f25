// Any bytes may be a workload's description: reading ends in an error with the file's name, or in one that
// reads back alike and whose requests fit blocks.

#include <cstdlib>

#include "runtime/sim/session_workload.hpp"

using namespace mooncaf;
using namespace mooncaf::sim;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto d = parse_workload({reinterpret_cast<const char*>(data), size}, "w");
  if (!d) {
    if (!d.error().detail.starts_with("w:")) std::abort();
    return 0;
  }
  if (!parse_workload(to_toml(*d), "w")) std::abort();
  if (d->users > 1000) return 0;
  const auto source = play_sessions(*d, {512, 1, 1, 0.05});
  workload_record r;
  for (int i = 0; i < 20; ++i) {
    const auto more = source->next(r);
    if (!more) std::abort();
    if (!*more) break;
    if (r.hash_ids.size() != (std::uint64_t{r.input_tokens} + 511) / 512 || r.output_tokens == 0)
      std::abort();
  }
  return 0;
}
