// A packing that a disk gives back may be anything. Whatever it is, both lanes say the same of it; and any bytes that are
// packed come back.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "storage/float_packing.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = (data[0] | data[1] << 8) * 3u;
  const auto input = std::as_bytes(std::span{data, size}).subspan(2);
  std::vector<std::byte> out(length), plainly(length);
  const bool good = float_packing::unpack(input, out);
  if (good != float_packing::unpack(input, plainly, false) || (good && out != plainly)) std::abort();
  std::vector<std::byte> many, to(float_packing::bound(16 * input.size()));
  for (int i = 0; i < 16; ++i) many.insert(many.end(), input.begin(), input.end());
  const auto packed = float_packing::pack(many, to);
  if (packed > to.size()) std::abort();
  if (packed == 0) return 0;
  std::vector<std::byte> back(many.size());
  if (!float_packing::unpack(std::span{to}.first(packed), back) || back != many) std::abort();
  return 0;
}
