#include "gpu/host/host_copies.hpp"

#include <cstring>

namespace mooncaf {

namespace {

void copy_pieces(std::byte* to, const std::byte* from, const kv_copy& c) {
  for (std::size_t i = 0; i < c.count; ++i)
    std::memcpy(to + i * c.pitch_bytes, from + i * c.pitch_bytes, c.piece_bytes);
}

}  // namespace

void host_copies::load(std::span<const kv_copy> copies) {
  for (const auto& c : copies) copy_pieces(c.device.at, c.host, c);
}

void host_copies::store(std::span<const kv_copy> copies) {
  for (const auto& c : copies) copy_pieces(c.host, c.device.at, c);
}

}  // namespace mooncaf
