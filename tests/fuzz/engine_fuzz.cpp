// Everything that may be asked of a transfer engine's door: what is understood is what `encode` makes of it.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "storage/engine/engine_wire.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto payload = std::as_bytes(std::span{data, size});
  const auto q = engine_wire::parse(payload);
  if (!q) return 0;
  const auto again = engine_wire::encode(*q);
  if (again.size() != size + 4 || !std::equal(payload.begin(), payload.end(), again.begin() + 4))
    std::abort();
  return 0;
}
