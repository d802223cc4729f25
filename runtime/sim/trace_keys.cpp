#include "runtime/sim/trace_keys.hpp"

#include <span>

namespace mooncaf::sim {

block_key key_of(std::uint64_t hash_id) noexcept {
  return hash_bytes128(std::as_bytes(std::span{&hash_id, 1}));
}

}  // namespace mooncaf::sim
