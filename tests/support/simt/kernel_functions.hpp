#pragma once
// gpu/cuda's kernels for the machine.

#include "gpu/cuda/kernel_list.hpp"
#include "tests/support/simt/machine.hpp"

namespace mooncaf::simt {

kernel_entry_fn kernel_function(cuda::kernel which);

}  // namespace mooncaf::simt
