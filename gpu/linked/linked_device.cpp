#include "gpu/linked/linked_device.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/linked/linked_queue.hpp"
#include "gpu/linked/sealed_memory.hpp"

namespace mooncaf {

namespace {

class sealed_buffer final : public buffer {
 public:
  sealed_buffer(sealed_memory& memory, std::byte* at, std::size_t bytes)
      : memory_(memory), at_(at), bytes_(bytes) {}
  ~sealed_buffer() override { memory_.release(at_, bytes_); }
  float* data() noexcept override { return reinterpret_cast<float*>(at_); }
  std::size_t size_bytes() const noexcept override { return bytes_; }

 private:
  sealed_memory& memory_;
  std::byte* at_;
  std::size_t bytes_;
};

class linked_device final : public device {
 public:
  linked_device(std::unique_ptr<device> inner, std::unique_ptr<sealed_memory> memory,
                const linked_device_options& options)
      : inner_(std::move(inner)),
        memory_(std::move(memory)),
        link_(options.link),
        engines_(std::max(1u, options.copy_engines)) {}

  device_info info() const override {
    auto out = inner_->info();
    out.name.insert(0, "linked ");
    out.host_memory = out.host_buffers = false;
    return out;
  }

  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    return inner_->load_weight(type, rows, cols, data);
  }
  result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                             std::span<const std::byte> data) override {
    return inner_->load_table(type, rows, cols, data);
  }

  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override {
    const auto at = memory_->allocate(bytes);
    if (!at) return fail(at.error());
    return std::make_unique<sealed_buffer>(*memory_, *at, bytes);
  }

  result<void> pin(std::span<std::byte>, std::shared_ptr<const void>) override { return {}; }

  std::unique_ptr<compute_queue> make_queue(int priority) override {
    return std::make_unique<linked_queue>(inner_->make_queue(priority), *memory_, link_);
  }

  std::unique_ptr<copy_queue> make_copy_queue() override {
    return std::make_unique<linked_copies>(engines_, *memory_, link_);
  }

 private:
  std::unique_ptr<device> inner_;
  std::unique_ptr<sealed_memory> memory_;
  timed_link link_;
  copy_engines engines_;
};

}  // namespace

result<std::unique_ptr<device>> make_linked_device(const linked_device_options& options) {
  auto inner = try_make_host_device(options.host);
  if (!inner) return fail(inner.error());
  // A range of addresses; the machine's memory is taken for pages that are written.
  auto memory = sealed_memory::make((*inner)->info().memory_bytes);
  if (!memory) return fail(memory.error());
  return std::make_unique<linked_device>(std::move(*inner), std::move(*memory), options);
}

}  // namespace mooncaf
