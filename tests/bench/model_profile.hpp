#pragma once
// A device that measures how long each operation of its queues takes, for benches that say where time goes.

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>

#include "gpu/device.hpp"

namespace mooncaf::bench {

/// Seconds per operation, summed over all calls. Meaningful where a call returns when its work is done
/// (host).
class operation_times {
 public:
  enum op : std::size_t { embed, norm, linear, rope, kv_write, attention, swiglu, add, copy, count };

  class scope {
   public:
    scope(operation_times& times, op which) : times_(times), which_(which) {}
    ~scope() {
      times_.seconds_[which_] +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
      ++times_.calls_[which_];
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;

   private:
    operation_times& times_;
    op which_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };

  void clear() {
    seconds_.fill(0);
    calls_.fill(0);
  }
  /// One line per operation: share of `wall_s`, time and calls; the rest is the runner's own.
  void print(double wall_s) const {
    static constexpr std::string_view names[] = {"embed",     "norm",   "linear", "rope",    "kv_write",
                                                 "attention", "swiglu", "add",    "download"};
    double rest = wall_s;
    for (std::size_t i = 0; i < count; ++i) {
      rest -= seconds_[i];
      if (calls_[i] != 0)
        std::printf("    %-10s %5.1f %%  %9.3f ms  %7zu calls\n", names[i].data(), 100 * seconds_[i] / wall_s,
                    1e3 * seconds_[i], calls_[i]);
    }
    std::printf("    %-10s %5.1f %%  %9.3f ms\n", "(runner)", 100 * rest / wall_s, 1e3 * rest);
  }

 private:
  std::array<double, count> seconds_{};
  std::array<std::size_t, count> calls_{};
};

class profiled_queue final : public compute_queue {
 public:
  profiled_queue(std::unique_ptr<compute_queue> inner, operation_times& times)
      : inner_(std::move(inner)), times_(times) {}

  void embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) override {
    const operation_times::scope s(times_, operation_times::embed);
    inner_->embed(table, tokens, out);
  }
  void rms_norm(tensor x, const float* gain, float eps, tensor out) override {
    const operation_times::scope s(times_, operation_times::norm);
    inner_->rms_norm(x, gain, eps, out);
  }
  void rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                      float eps) override {
    const operation_times::scope s(times_, operation_times::norm);
    inner_->rms_norm_heads(x, heads, head_dim, gain, eps);
  }
  void linear(tensor x, std::span<const linear_job> jobs) override {
    const operation_times::scope s(times_, operation_times::linear);
    inner_->linear(x, jobs);
  }
  void linear_f32(tensor x, const linear_job& job) override {
    const operation_times::scope s(times_, operation_times::linear);
    inner_->linear_f32(x, job);
  }
  void rope(tensor x, std::uint32_t heads, std::uint32_t head_dim, std::span<const std::int32_t> positions,
            const rope_params& rope) override {
    const operation_times::scope s(times_, operation_times::rope);
    inner_->rope(x, heads, head_dim, positions, rope);
  }
  void kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                std::span<const attention_seq> seqs) override {
    const operation_times::scope s(times_, operation_times::kv_write);
    inner_->kv_write(layout, layer, k, v, seqs);
  }
  void paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form, tensor q,
                       std::span<const attention_seq> seqs, tensor out) override {
    const operation_times::scope s(times_, operation_times::attention);
    inner_->paged_attention(layout, layer, form, q, seqs, out);
  }
  void swiglu(tensor gate, tensor up, tensor out) override {
    const operation_times::scope s(times_, operation_times::swiglu);
    inner_->swiglu(gate, up, out);
  }
  void add(tensor x, tensor y) override {
    const operation_times::scope s(times_, operation_times::add);
    inner_->add(x, y);
  }
  void geglu(tensor gate, tensor up, tensor out) override {
    const operation_times::scope s(times_, operation_times::swiglu);
    inner_->geglu(gate, up, out);
  }
  void clamped_swiglu(tensor gate, tensor up, float limit, tensor out) override {
    const operation_times::scope s(times_, operation_times::swiglu);
    inner_->clamped_swiglu(gate, up, limit, out);
  }
  void scale(tensor x, float factor) override {
    const operation_times::scope s(times_, operation_times::add);
    inner_->scale(x, factor);
  }
  void soft_cap(tensor x, float cap) override {
    const operation_times::scope s(times_, operation_times::add);
    inner_->soft_cap(x, cap);
  }
  void gather(tensor x, std::span<const std::uint32_t> rows, tensor out) override {
    const operation_times::scope s(times_, operation_times::copy);
    inner_->gather(x, rows, out);
  }
  void scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                   tensor x) override {
    const operation_times::scope s(times_, operation_times::add);
    inner_->scatter_add(y, rows, weights, x);
  }
  void choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) override {
    inner_->choose(logits, how, out);
  }
  void checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                std::span<std::uint64_t> out) override {
    inner_->checksum(blocks, bytes, out);
  }
  void upload(std::span<const float> from, float* to) override { inner_->upload(from, to); }
  void download(const float* from, std::span<float> to) override {
    const operation_times::scope s(times_, operation_times::copy);
    inner_->download(from, to);
  }
  void synchronize() override { inner_->synchronize(); }
  void wait(const event_ptr& e) override { inner_->wait(e); }
  event_ptr record() override { return inner_->record(); }
  void begin_turn() override { inner_->begin_turn(); }
  void end_turn() override { inner_->end_turn(); }

 private:
  std::unique_ptr<compute_queue> inner_;
  operation_times& times_;
};

/// Forwards to `inner`; only queues are wrapped.
class profiled_device final : public device {
 public:
  profiled_device(device& inner, operation_times& times) : inner_(inner), times_(times) {}
  device_info info() const override { return inner_.info(); }
  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    return inner_.load_weight(type, rows, cols, data);
  }
  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  result<void> pin(std::span<std::byte> memory, std::shared_ptr<const void> owner) override {
    return inner_.pin(memory, std::move(owner));
  }
  std::unique_ptr<compute_queue> make_queue(int priority) override {
    return std::make_unique<profiled_queue>(inner_.make_queue(priority), times_);
  }
  std::unique_ptr<copy_queue> make_copy_queue() override { return inner_.make_copy_queue(); }

 private:
  device& inner_;
  operation_times& times_;
};

}  // namespace mooncaf::bench
