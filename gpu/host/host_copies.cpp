#include "gpu/host/host_copies.hpp"

#include <cstring>

namespace mooncaf {

void host_copies::load(std::span<const kv_copy> copies) {
  for (const auto& c : copies)
    for (std::size_t i = 0; i < c.count; ++i)
      std::memcpy(c.device.at + i * c.pitch_bytes, c.host + i * c.host_pitch(), c.piece_bytes);
}

void host_copies::store(std::span<const kv_copy> copies) {
  for (const auto& c : copies)
    for (std::size_t i = 0; i < c.count; ++i)
      std::memcpy(c.host + i * c.host_pitch(), c.device.at + i * c.pitch_bytes, c.piece_bytes);
}

}  // namespace mooncaf
