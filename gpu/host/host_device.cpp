#include "gpu/host/host_device.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "gpu/host/exact_queue.hpp"
#include "gpu/host/host_copies.hpp"
#include "gpu/host/host_queue.hpp"

namespace mooncaf {

namespace {

std::size_t physical_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

result<const kernel_set*> choose_kernels(const std::string& isa) {
  const auto refuse = [&] { return fail(ec::unsupported, "this processor does not have " + isa); };
  if (isa.empty())
    return has_avx512() ? &avx512_kernels() : has_avx2() ? &avx2_kernels() : &portable_kernels();
  if (isa == "portable") return &portable_kernels();
  if (isa == "avx2") return has_avx2() ? result<const kernel_set*>{&avx2_kernels()} : refuse();
  if (isa == "avx512-vnni") return has_avx512() ? result<const kernel_set*>{&avx512_kernels()} : refuse();
  return fail(ec::unsupported, "instruction set '" + isa + "'; known: avx512-vnni, avx2, portable");
}

class host_buffer final : public buffer {
 public:
  explicit host_buffer(std::size_t bytes)
      : bytes_(bytes),
        data_(static_cast<float*>(std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64))) {
  }
  ~host_buffer() override { std::free(data_); }
  float* data() noexcept override { return data_; }
  std::size_t size_bytes() const noexcept override { return bytes_; }

 private:
  std::size_t bytes_;
  float* data_;
};

class host_device final : public device {
 public:
  host_device(unsigned threads, bool exact, const kernel_set& kernels)
      : core_{thread_pool{threads}, kernels, exact} {}

  device_info info() const override {
    device_info out;
    out.isa = core_.exact ? "exact" : core_.kernels.isa;
    out.threads = core_.pool.size();
    out.name =
        "host " + out.isa + ", " + std::to_string(out.threads) + (out.threads == 1 ? " thread" : " threads");
    out.memory_bytes = physical_memory();
    return out;
  }

  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    return make_host_weight(core_, type, rows, cols, data);
  }
  result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                             std::span<const std::byte> data) override {
    return make_host_table(type, rows, cols, data);
  }

  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override {
    // A kernel that overcommits would hand out more than the machine has, and kill us when we use it.
    if (bytes > physical_memory()) {
      return fail(ec::out_of_space, std::to_string(bytes) + " bytes for activations; this machine has " +
                                        std::to_string(physical_memory()));
    }
    auto made = std::make_unique<host_buffer>(bytes);
    if (made->data() == nullptr)
      return fail(ec::out_of_space, std::to_string(bytes) + " bytes for activations");
    return made;
  }

  std::unique_ptr<compute_queue> make_queue(int priority) override {
    if (core_.exact) return std::make_unique<exact_queue>(core_, priority);
    return std::make_unique<host_queue>(core_, priority);
  }

  result<void> pin(std::span<std::byte>, std::shared_ptr<const void>) override { return {}; }

  std::unique_ptr<copy_queue> make_copy_queue() override { return std::make_unique<host_copies>(); }

 private:
  host_core core_;
};

}  // namespace

unsigned usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

result<std::unique_ptr<device>> try_make_host_device(const host_device_options& options) {
  const auto kernels = choose_kernels(options.isa);
  if (!kernels) return fail(kernels.error());
  const auto threads = options.threads == 0 ? usable_cores() : options.threads;
  return std::make_unique<host_device>(threads, options.exact, **kernels);
}

std::unique_ptr<device> make_host_device(const host_device_options& options) {
  auto made = try_make_host_device(options);
  if (!made) std::abort();  // only a named instruction set can be refused
  return std::move(*made);
}

}  // namespace mooncaf
