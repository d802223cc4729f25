#include "storage/objects/terms/object_terms.hpp"

#include <algorithm>

namespace mooncaf {

std::vector<std::span<const replica_place>> replicas_of(std::span<const replica_place> places,
                                                        std::uint64_t size) {
  std::vector<std::span<const replica_place>> all;
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].bytes > size - bytes) break;
    bytes += places[i].bytes;
    if (bytes < size) continue;
    all.push_back(places.subspan(begin, i + 1 - begin));
    begin = i + 1;
    bytes = 0;
  }
  return all;
}

std::vector<replica_place> part_of(std::span<const replica_place> replica, std::uint64_t at,
                                   std::uint64_t bytes) {
  std::vector<replica_place> all;
  for (const auto& stripe : replica) {
    if (bytes == 0) break;
    if (at >= stripe.bytes) {
      at -= stripe.bytes;
      continue;
    }
    const auto n = std::min(bytes, stripe.bytes - at);
    all.push_back({stripe.segment, stripe.offset + at, n});
    bytes -= n;
    at = 0;
  }
  return all;
}

}  // namespace mooncaf
