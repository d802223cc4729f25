#pragma once
// What a worker may be given.

#include <cstdint>

#include "runtime/base/words.hpp"

namespace mooncaf {

///   joining ──► live ◄──► draining         any ──► lost: its node left, or it was removed
///   (nothing)   (new requests)  (finishes what it has)
///
/// A worker whose node plays its other role is `joining`, too, hence its word. The values travel between nodes.
enum class instance_state : std::uint8_t { joining, live, draining, lost };

constexpr auto words_of(instance_state) noexcept {
  using enum instance_state;
  return words<instance_state, 4>{
      {{joining, "resting"}, {live, "live"}, {draining, "draining"}, {lost, "lost"}}};
}

}  // namespace mooncaf
