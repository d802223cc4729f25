#pragma once
// Places of a grammar that no token can tell apart. "[a-z]{1,12}" sixty times over has sixty times the
// places, but within the bytes of the longest token nearly all repetitions look the same: a finding for one
// place holds for all of its class.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/grammar/automaton.hpp"

namespace mooncaf {

/// @returns for each place the first one that does the same on every text of up to `bytes` bytes, until its
/// rule ends. Itself for all where there is little to share: few places, or most of them differ.
/// @cost O(places · bytes) hashes at most.
std::vector<std::uint32_t> place_classes(const automaton& rules, std::size_t bytes);

}  // namespace mooncaf
