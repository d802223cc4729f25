#include "tests/support/simt/simt_accelerator.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "tests/support/simt/kernel_functions.hpp"
#include "tests/support/simt/machine.hpp"

namespace mooncaf::simt {

namespace {

constexpr std::size_t params_bytes[] = {
#define MOONCAF_SIZE(NAME, PARAMS, THREADS) sizeof(cuda::PARAMS),
    MOONCAF_CUDA_KERNELS(MOONCAF_SIZE)
#undef MOONCAF_SIZE
};

/// Launches with parameters of its own.
class simt_graph final : public cuda::launch_graph {
 public:
  explicit simt_graph(std::span<const cuda::launch_view> launches) {
    for (const auto& l : launches) {
      launches_.push_back({l.which, l.blocks, nullptr});
      params_.emplace_back();
      change(params_.size() - 1, l);
    }
  }
  void change(std::size_t i, const cuda::launch_view& to) override {
    const auto* const from = static_cast<const std::byte*>(to.params);
    params_[i].assign(from, from + params_bytes[static_cast<unsigned>(to.which)]);
    launches_[i].params = params_[i].data();
  }
  const std::vector<cuda::launch_view>& launches() const noexcept { return launches_; }

 private:
  std::vector<cuda::launch_view> launches_;
  std::vector<std::vector<std::byte>> params_;
};

/// Does what it is given at once.
class simt_stream final : public cuda::stream {
 public:
  explicit simt_stream(machine& on) : machine_(on) {}

  void launch(cuda::kernel which, cuda::grid blocks, const void* params) override {
    const auto& k = cuda::kernel_table[static_cast<unsigned>(which)];
    const std::span all{static_cast<const std::byte*>(params), params_bytes[static_cast<unsigned>(which)]};
    guarded([&] {
      machine_.launch(k.symbol, kernel_function(which), all, k.threads, {blocks.x, blocks.y, blocks.z});
    });
  }
  std::unique_ptr<cuda::launch_graph> keep(std::span<const cuda::launch_view> launches) override {
    return std::make_unique<simt_graph>(launches);
  }
  void launch(cuda::launch_graph& graph) override {
    for (const auto& l : static_cast<simt_graph&>(graph).launches()) launch(l.which, l.blocks, l.params);
  }
  void write(std::byte* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void upload(std::byte* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const std::byte* from, std::size_t bytes) override { copy(to, from, bytes); }
  void load(const kv_copy& c) override {
    for (std::size_t i = 0; i < c.count; ++i)
      copy(c.device.at + i * c.pitch_bytes, c.host + i * c.host_pitch(), c.piece_bytes);
  }
  void store(const kv_copy& c) override {
    for (std::size_t i = 0; i < c.count; ++i)
      copy(c.host + i * c.host_pitch(), c.device.at + i * c.pitch_bytes, c.piece_bytes);
  }
  void wait(const event_ptr& e) override { wait_for(e); }
  event_ptr record() override { return nullptr; }
  void synchronize() override {}

 private:
  template <class Work>
  static void guarded(const Work& work) {
    try {
      work();
    } catch (const kernel_fault& f) {
      throw device_failure(f.what());
    }
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    guarded([&] { machine_.copy(to, from, bytes); });
  }

  machine& machine_;
};

class simt_accelerator final : public cuda::accelerator {
 public:
  simt_accelerator(unsigned processors, std::size_t memory_bytes)
      : machine_(memory_bytes), processors_(processors), memory_bytes_(memory_bytes) {}

  cuda::accelerator_info info() const override {
    return {"kernels on the processor", "simt", memory_bytes_, processors_};
  }
  result<std::byte*> allocate(std::size_t bytes) override {
    auto* at = machine_.allocate(bytes);
    if (at == nullptr) return fail(ec::out_of_space, std::to_string(bytes) + " bytes of the device's memory");
    return at;
  }
  void release(std::byte* memory) noexcept override { machine_.release(memory); }
  result<std::byte*> pin(std::span<std::byte> memory) override {
    if (!machine_.pin(memory)) return fail(ec::unavailable, "this memory is pinned already");
    return memory.data();
  }
  void unpin(std::byte* memory) noexcept override { machine_.unpin(memory); }
  std::unique_ptr<cuda::stream> make_stream(int) override { return std::make_unique<simt_stream>(machine_); }

 private:
  machine machine_;
  unsigned processors_;
  std::size_t memory_bytes_;
};

}  // namespace

std::unique_ptr<cuda::accelerator> make_simt_accelerator(unsigned processors, std::size_t memory_bytes) {
  return std::make_unique<simt_accelerator>(processors, memory_bytes);
}

}  // namespace mooncaf::simt
