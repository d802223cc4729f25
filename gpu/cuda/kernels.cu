// Every kernel, in one translation unit: nvcc makes one fat binary of it, the harness of the tests plain
// functions.

#include "gpu/cuda/attention.cuh"
#include "gpu/cuda/choice.cuh"
#include "gpu/cuda/kv_bytes.cuh"
#include "gpu/cuda/products.cuh"
#include "gpu/cuda/rows.cuh"
