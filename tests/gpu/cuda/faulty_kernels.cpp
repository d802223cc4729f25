#include "tests/gpu/cuda/faulty_kernels.hpp"

#include "gpu/cuda/simt.hpp"

namespace mooncaf::testing {

using namespace mooncaf::simt;

namespace {

constexpr unsigned threads = 64;

const faulty_params& of(const void* params) { return *static_cast<const faulty_params*>(params); }

}  // namespace

// Parameters are copied to a thread's own memory, as a launch does.
#define KERNEL(NAME)                                         \
  static void NAME##_body(faulty_params p);                  \
  void NAME(const void* params) { NAME##_body(of(params)); } \
  void NAME##_body([[maybe_unused]] faulty_params p)

KERNEL(reverse_kernel) {
  MOONCAF_SHARED(float, all, threads);
  all[thread_index()] = p.data[block_x() * threads + thread_index()];
  sync_block();
  p.data[block_x() * threads + threads - 1 - thread_index()] = all[thread_index()];
}

KERNEL(stream_kernel) {
  MOONCAF_SHARED(float, tiles, 2 * 4 * threads);
  const unsigned steps = p.count / (4 * threads);
  const auto fetch = [&](unsigned step) {
    copy_async16(tiles + (step % 2 * threads + thread_index()) * 4,
                 p.data + (step * threads + thread_index()) * 4, step < steps);
    commit_async();
  };
  fetch(0);
  for (unsigned step = 0; step < steps; ++step) {
    fetch(step + 1);
    wait_async<1>();
    sync_block();
    // Another thread's piece: it is there because that thread has waited before the barrier.
    const unsigned other = threads - 1 - thread_index();
    for (unsigned i = 0; i < 4; ++i)
      p.data[(step * threads + other) * 4 + i] = tiles[(step % 2 * threads + other) * 4 + i] + 1;
    sync_block();
  }
  wait_async<0>();
}

KERNEL(counting_kernel) {
  MOONCAF_SHARED(std::uint32_t, count, 1);
  if (thread_index() == 0) count[0] = 0;
  sync_block();
  add_atomically(&count[0], 2u);
  sync_block();
  p.data[thread_index()] = static_cast<float>(count[0]);
}

KERNEL(careless_count_kernel) {
  MOONCAF_SHARED(std::uint32_t, count, 1);
  if (thread_index() == 0) count[0] = 0;
  sync_block();
  if (thread_index() == p.which) count[0] = 1;
  else add_atomically(&count[0], 1u);
}

KERNEL(past_global_kernel) { p.data[thread_index() + (thread_index() == p.which ? p.count : 0)] = 1; }

KERNEL(past_shared_kernel) {
  MOONCAF_SHARED(float, first, threads);
  MOONCAF_SHARED(float, second, threads);
  first[thread_index() + (thread_index() == p.which ? 1 : 0)] = 1;
  second[thread_index()] = 2;
}

KERNEL(misaligned_kernel) {
  auto* bytes = reinterpret_cast<char*>(p.data);
  *reinterpret_cast<float*>(bytes + 4 * thread_index() + (thread_index() == p.which ? 2 : 0)) = 1;
}

KERNEL(unwritten_shared_kernel) {
  MOONCAF_SHARED(float, all, threads);
  if (thread_index() != p.which) all[thread_index()] = 1;
  sync_block();
  p.data[thread_index()] = all[thread_index()];
}

KERNEL(missing_barrier_kernel) {
  MOONCAF_SHARED(float, all, threads);
  all[thread_index()] = 1;
  sync_block();
  all[thread_index()] = 2;
  p.data[thread_index()] = all[threads - 1 - thread_index()];
}

KERNEL(late_barrier_kernel) {
  MOONCAF_SHARED(float, all, threads);
  all[thread_index()] = 1;
  sync_block();
  p.data[thread_index()] = all[threads - 1 - thread_index()];
  all[thread_index()] = 2;
}

KERNEL(racing_blocks_kernel) {
  if (thread_index() == 0) p.data[block_x() == p.which ? 0 : block_x()] = 1;
}

KERNEL(two_barriers_kernel) {
  if (thread_index() == p.which) {
    sync_block();
  } else {
    sync_block();
  }
}

KERNEL(early_end_kernel) {
  if (thread_index() == p.which) return;
  sync_block();
}

KERNEL(torn_warp_kernel) {
  if (thread_index() == p.which) {
    sync_block();
    return;
  }
  p.data[thread_index()] = shuffle_xor(1.0f, 1);
}

KERNEL(two_warp_functions_kernel) {
  float x = 1;
  if (thread_index() == p.which) {
    x = shuffle_xor(x, 1);
  } else {
    x = shuffle_xor(x, 2);
  }
  p.data[thread_index()] = x;
}

KERNEL(impatient_copy_kernel) {
  MOONCAF_SHARED(float, tile, 4 * threads);
  copy_async16(tile + 4 * thread_index(), p.data + 4 * thread_index(), true);
  commit_async();
  sync_block();
  p.data[thread_index()] = tile[4 * thread_index()];
}

KERNEL(overwritten_copy_kernel) {
  MOONCAF_SHARED(float, tile, 4 * threads);
  copy_async16(tile + 4 * thread_index(), p.data + 4 * thread_index(), true);
  commit_async();
  tile[4 * thread_index()] = 3;
  wait_async<0>();
}

KERNEL(much_shared_kernel) {
  MOONCAF_SHARED(float, all, 13000);
  all[thread_index()] = 1;
}

KERNEL(host_memory_kernel) {
  static float in_the_host[threads];
  in_the_host[thread_index()] = p.data[thread_index()];
  p.data[thread_index()] = in_the_host[threads - 1];
}

}  // namespace mooncaf::testing
