#pragma once
// Kernels with one mistake each, and two without.

#include <cstddef>
#include <cstdint>

namespace mooncaf::testing {

struct faulty_params {
  float* data = nullptr;  ///< `count` floats
  unsigned count = 0;
  unsigned which = 0;  ///< the thread, or the block, that makes the mistake
};

void reverse_kernel(const void* params);  ///< right: data of a block, back to front
void stream_kernel(const void* params);   ///< right: adds 1 by way of asynchronous copies, two under way
void past_global_kernel(const void* params);
void past_shared_kernel(const void* params);
void misaligned_kernel(const void* params);
void unwritten_shared_kernel(const void* params);
void missing_barrier_kernel(const void* params);
void late_barrier_kernel(const void* params);  ///< reads and then writes the same, with no barrier between
void racing_blocks_kernel(const void* params);
void counting_kernel(const void* params);        ///< right: threads count together
void careless_count_kernel(const void* params);  ///< … while one writes what they count in
void two_barriers_kernel(const void* params);
void early_end_kernel(const void* params);
void torn_warp_kernel(const void* params);
void two_warp_functions_kernel(const void* params);
void impatient_copy_kernel(const void* params);
void overwritten_copy_kernel(const void* params);
void much_shared_kernel(const void* params);
void host_memory_kernel(const void* params);

}  // namespace mooncaf::testing
