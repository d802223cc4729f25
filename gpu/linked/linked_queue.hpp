#pragma once
// Queues of a device behind a link: another device's, done later on a thread of their own and in sealed
// memory.

#include <functional>
#include <memory>

#include "gpu/device.hpp"
#include "gpu/linked/sealed_memory.hpp"
#include "gpu/linked/timed_link.hpp"
#include "gpu/linked/work_line.hpp"

namespace mooncaf {

/// Hands every call over to its line, with a copy of the contents of spans, and returns.
class linked_queue final : public compute_queue {
 public:
  linked_queue(std::unique_ptr<compute_queue> inner, const sealed_memory& memory, timed_link& link)
      : inner_(std::move(inner)), memory_(memory), link_(link) {}

  void embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) override;
  void rms_norm(tensor x, const float* gain, float eps, tensor out) override;
  void rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                      float eps) override;
  void linear(tensor x, std::span<const linear_job> jobs) override;
  void linear_f32(tensor x, const linear_job& job) override;
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
  void synchronize() override { wait_for(line_.mark()); }
  void wait(const event_ptr& e) override;
  event_ptr record() override { return line_.mark(); }
  void begin_turn() override;
  void end_turn() override;

 private:
  tensor open(tensor t) const noexcept;

  std::unique_ptr<compute_queue> inner_;  ///< used by the line's thread alone
  const sealed_memory& memory_;
  timed_link& link_;
  work_line line_;  // last: its work uses what stands above
};

/// Copies one after the other, each on an engine that other queues may want, too, as slowly as the link is.
class linked_copies final : public copy_queue {
 public:
  linked_copies(copy_engines& engines, const sealed_memory& memory, timed_link& link)
      : engines_(engines), memory_(memory), link_(link) {}

  void load(std::span<const kv_copy> copies) override { add(copies, timed_link::direction::to_device); }
  void store(std::span<const kv_copy> copies) override { add(copies, timed_link::direction::to_host); }
  void wait(const event_ptr& e) override;
  event_ptr record() override { return line_.mark(); }

 private:
  void add(std::span<const kv_copy> copies, timed_link::direction to);

  copy_engines& engines_;
  const sealed_memory& memory_;
  timed_link& link_;
  work_line line_;  // last: its work uses what stands above
};

}  // namespace mooncaf
