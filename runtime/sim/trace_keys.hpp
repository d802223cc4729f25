#pragma once
// How the blocks of a trace are known to the cluster.

#include <cstdint>

#include "runtime/base/hash.hpp"

namespace mooncaf::sim {

/// The key under which a trace's block is known. Equal ids mean equal prefixes, so the chain is in the id.
/// @cost  compiled by itself, the hash of eight bytes is unrolled; among other hashes it is called.
block_key key_of(std::uint64_t hash_id) noexcept;

}  // namespace mooncaf::sim
