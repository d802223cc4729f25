// The machine runs right kernels, and stops wrong ones where they go wrong.

#include "tests/support/simt/machine.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/gpu/cuda/faulty_kernels.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

constexpr unsigned threads = 64;

struct device_floats {
  explicit device_floats(std::size_t n) : values(n) {
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i);
    at = reinterpret_cast<float*>(gpu.allocate(4 * n));
    gpu.copy(at, values.data(), 4 * n);
  }
  void run(simt::kernel_entry_fn kernel, unsigned which = 0, unsigned blocks = 1) {
    const faulty_params p{at, static_cast<unsigned>(values.size()), which};
    gpu.launch("kernel", kernel, std::as_bytes(std::span{&p, 1}), threads, {blocks});
  }
  /// What the machine has to say, or nothing.
  std::string complaint(simt::kernel_entry_fn kernel, unsigned which = 0, unsigned blocks = 1) {
    try {
      run(kernel, which, blocks);
    } catch (const simt::kernel_fault& f) {
      return f.what();
    }
    return {};
  }
  std::vector<float> get() {
    std::vector<float> got(values.size());
    gpu.copy(got.data(), at, 4 * got.size());
    return got;
  }

  simt::machine gpu{std::size_t{1} << 20};
  std::vector<float> values;
  float* at;
};

bool says(const std::string& what, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (what.find(word) == std::string::npos) {
      MESSAGE("said: " << what);
      return false;
    }
  return true;
}

}  // namespace

TEST_CASE("kernels that keep the rules do their work") {
  device_floats d(threads * 8);
  d.run(reverse_kernel, 0, 8);
  auto want = d.values;
  for (auto at = want.begin(); at != want.end(); at += threads) std::reverse(at, at + threads);
  CHECK(d.get() == want);
  d.run(stream_kernel);
  for (auto& f : want) f += 1;
  CHECK(d.get() == want);
}

TEST_CASE("an access outside of memory, or across it, is stopped before it is made") {
  device_floats d(threads);
  CHECK(says(d.complaint(past_global_kernel, 7),
             {"kernel: thread 7 of block (0, 0, 0)", "outside the device's memory"}));
  CHECK(says(d.complaint(past_shared_kernel, 63), {"thread 63", "byte 256 of first, which has 256"}));
  CHECK(says(d.complaint(misaligned_kernel, 9), {"thread 9", "no multiple of its 4 bytes"}));
  CHECK(says(d.complaint(host_memory_kernel), {"outside the device's memory"}));
  CHECK(says(d.complaint(much_shared_kernel), {"52000 bytes of shared memory"}));
  auto* const there = d.at;
  d.gpu.release(reinterpret_cast<std::byte*>(there));
  CHECK(says(d.complaint(reverse_kernel), {"outside the device's memory"}));
  d.at = there;
}

TEST_CASE("shared memory begins as nobody's") {
  device_floats d(threads);
  d.run(reverse_kernel);  // has written all of it, for itself
  CHECK(says(d.complaint(unwritten_shared_kernel, 5), {"thread 5", "shared memory that nobody has written"}));
}

TEST_CASE("threads that meet in memory without a barrier between them are told") {
  device_floats d(threads);
  CHECK(says(d.complaint(missing_barrier_kernel), {"shared memory in a race with a"}));
  CHECK(says(d.complaint(late_barrier_kernel), {"shared memory in a race with a"}));
  CHECK(says(d.complaint(racing_blocks_kernel, 3, 5), {"writes global memory in a race with a write"}));
  CHECK(d.complaint(racing_blocks_kernel, 0, 5).empty());
}

TEST_CASE("atomic sums meet no one but each other") {
  device_floats d(threads);
  d.run(counting_kernel);
  CHECK(d.get() == std::vector<float>(threads, 2 * threads));
  CHECK(says(d.complaint(careless_count_kernel, 20), {"in a race with a write"}));
}

TEST_CASE("threads of a block that wait for different things are told") {
  device_floats d(threads);
  CHECK(says(
      d.complaint(two_barriers_kernel, 40),
      {"wait for each other", "thread 0 is at the barrier of line", "thread 40 is at the barrier of line"}));
  CHECK(says(d.complaint(early_end_kernel, 33), {"thread 33 is at its end", "thread 0 is at the barrier"}));
  CHECK(says(d.complaint(torn_warp_kernel, 1), {"thread 0 is at a shuffle", "thread 1 is at the barrier"}));
  CHECK(says(d.complaint(two_warp_functions_kernel, 4), {"a shuffle of line", "other lanes of its warp"}));
}

TEST_CASE("an asynchronous copy is not there before it was waited for") {
  device_floats d(4 * threads);
  CHECK(says(d.complaint(impatient_copy_kernel), {"was not waited for"}));
  CHECK(says(d.complaint(overwritten_copy_kernel), {"was not waited for"}));
}

TEST_CASE("a launch that no device would take is refused, and the machine goes on after any fault") {
  device_floats d(threads);
  const faulty_params params{d.at, threads, 0};
  const auto p = std::as_bytes(std::span{&params, 1});
  CHECK_THROWS_AS(d.gpu.launch("odd", reverse_kernel, p, 33, {1}), simt::kernel_fault);
  CHECK_THROWS_AS(d.gpu.launch("large", reverse_kernel, p, 2048, {1}), simt::kernel_fault);
  CHECK_THROWS_AS(d.gpu.launch("none", reverse_kernel, p, threads, {0}), simt::kernel_fault);
  CHECK_THROWS_AS(d.gpu.copy(d.at, d.values.data(), 4 * threads + 4), simt::kernel_fault);
  d.run(reverse_kernel);
  CHECK(d.get().front() == threads - 1);
}
