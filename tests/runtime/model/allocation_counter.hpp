#pragma once
// Counts the allocations of a thread, in a binary that links allocation_counter.cpp.

#include <cstddef>

namespace mooncaf::testing {

/// Calls of `operator new` by this thread so far.
std::size_t allocations_of_this_thread() noexcept;

}  // namespace mooncaf::testing
