#pragma once
// The reference: every operation as its definition, accumulated in double, one simple loop each.

#include "gpu/host/host_queue.hpp"

namespace mooncaf {

/// Slow and plain: tests hold the fast kernels and other devices against it. Weights are f32, [rows, cols].
class exact_queue final : public compute_queue {
 public:
  exact_queue(host_core& core, int priority) : core_(core), priority_(priority) {}

  void embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) override;
  void rms_norm(tensor x, const float* gain, float eps, tensor out) override;
  void rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                      float eps) override;
  void linear(tensor x, std::span<const linear_job> jobs) override;
  void linear_f32(tensor x, const linear_job& job) override { linear(x, {&job, 1}); }
  void rope(tensor x, std::uint32_t heads, std::uint32_t head_dim, std::span<const std::int32_t> positions,
            const rope_params& rope) override;
  void kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                std::span<const attention_seq> seqs) override;
  void paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form, tensor q,
                       std::span<const attention_seq> seqs, tensor out) override;
  void swiglu(tensor gate, tensor up, tensor out) override;
  void geglu(tensor gate, tensor up, tensor out) override;
  void clamped_swiglu(tensor gate, tensor up, float limit, tensor out) override;
  void add(tensor x, tensor y) override;
  void scale(tensor x, float factor) override;
  void soft_cap(tensor x, float cap) override;
  void gather(tensor x, std::span<const std::uint32_t> rows, tensor out) override;
  void scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                   tensor x) override;
  void choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) override;
  void checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                std::span<std::uint64_t> out) override;
  void upload(std::span<const float> from, float* to) override;
  void download(const float* from, std::span<float> to) override;
  void synchronize() override {}
  void wait(const event_ptr& e) override { wait_for(e); }
  event_ptr record() override { return nullptr; }  // every call returns when its work is done
  void begin_turn() override { core_.gate.enter(priority_); }
  void end_turn() override { core_.gate.leave(); }

 private:
  host_core& core_;
  const int priority_;
};

}  // namespace mooncaf
