#pragma once
// The kernels by name, for the driver that loads them, the harness that runs them and the tests of their
// resources.

#include "gpu/cuda/kernel_params.hpp"

// X(name, parameters, threads of a block); the function is mooncaf_NAME.
#define MOONCAF_CUDA_KERNELS(X)                                     \
  X(embed, embed_params, row_threads)                               \
  X(norm, norm_params, row_threads)                                 \
  X(halve, halve_params, row_threads)                               \
  X(rope, rope_launch, row_threads)                                 \
  X(kv_write, kv_write_params, row_threads)                         \
  X(swiglu, swiglu_params, row_threads)                             \
  X(add, add_params, row_threads)                                   \
  X(bend, bend_params, row_threads)                                 \
  X(move, move_params, row_threads)                                 \
  X(choose, choose_params, choice_threads)                          \
  X(carry, carry_params, carry_threads)                             \
  X(checksum, checksum_params, checksum_threads)                    \
  X(gather, gather_params, checksum_threads)                        \
  X(gather_pieces, gather_params, checksum_threads)                 \
  X(gather_tokens, gather_params, checksum_threads)                 \
  X(attention_64, attention_params, attention_threads)              \
  X(attention_128, attention_params, attention_threads)             \
  X(attention_256, attention_params, attention_threads)             \
  X(attention_640, attention_params, attention_threads)             \
  X(combine, combine_params, combine_threads)                       \
  X(product_wide, wide_product_params, product_threads)             \
  X(product_nibbles_few, product_params, product_threads)           \
  X(product_nibbles_many, product_params, product_threads)          \
  X(product_fives_few, product_params, product_threads)             \
  X(product_fives_many, product_params, product_threads)            \
  X(product_bytes_few, product_params, product_threads)             \
  X(product_bytes_many, product_params, product_threads)            \
  X(product_bytes_by_sixteen_few, product_params, product_threads)  \
  X(product_bytes_by_sixteen_many, product_params, product_threads) \
  X(product_fp4_few, product_params, product_threads)               \
  X(product_fp4_many, product_params, product_threads)              \
  X(product_f16_few, product_params, product_threads)               \
  X(product_f16_many, product_params, product_threads)              \
  X(product_bf16_few, product_params, product_threads)              \
  X(product_bf16_many, product_params, product_threads)             \
  X(product_f32_few, product_params, product_threads)               \
  X(product_f32_many, product_params, product_threads)

namespace mooncaf::cuda {

enum class kernel : unsigned {
#define MOONCAF_NAME(NAME, PARAMS, THREADS) NAME,
  MOONCAF_CUDA_KERNELS(MOONCAF_NAME)
#undef MOONCAF_NAME
};

struct kernel_entry {
  const char* symbol;
  unsigned threads;
};
inline constexpr kernel_entry kernel_table[] = {
#define MOONCAF_ENTRY(NAME, PARAMS, THREADS) {"mooncaf_" #NAME, THREADS},
    MOONCAF_CUDA_KERNELS(MOONCAF_ENTRY)
#undef MOONCAF_ENTRY
};
inline constexpr std::size_t kernel_count = sizeof kernel_table / sizeof *kernel_table;

}  // namespace mooncaf::cuda
