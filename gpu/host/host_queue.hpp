#pragma once
// The host device's operations.

#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/host/kernels.hpp"
#include "gpu/host/thread_pool.hpp"
#include "gpu/host/turn_gate.hpp"
#include "gpu/host/weight_arena.hpp"

namespace mooncaf {

/// The threads, kernels and turns that all queues of one host device share.
struct host_core {
  thread_pool pool;
  const kernel_set& kernels;
  bool exact = false;
  turn_gate gate;
  weight_arena weights;
};

/// A weight on the host: packed, or plain rows sixteen side by side, or (exact) f32 rows as they are; and
/// the file's own bytes, which embedding looks rows up in. A table has these alone.
class host_weight final : public weight {
 public:
  std::size_t rows() const noexcept override { return rows_; }
  std::size_t cols() const noexcept override { return cols_; }

  /// Of `plain_`, in which a last column without a partner has one of zeros.
  std::size_t plain_tile_bytes() const noexcept { return (cols_ + 1) / 2 * 32 * block_bytes(type_); }

  ggml_type type_ = ggml_type::f32;
  std::size_t rows_ = 0;
  std::size_t cols_ = 0;
  std::span<const std::byte> source_;
  packed_matrix packed_;
  std::shared_ptr<std::byte> plain_;  ///< types that are not packed, as they are, in tiles of 16 rows
  std::vector<float> exact_;          ///< exact device: f32, [rows, cols]
};

/// @error as `device::load_weight`.
result<std::unique_ptr<weight>> make_host_weight(host_core& core, ggml_type type, std::size_t rows,
                                                 std::size_t cols, std::span<const std::byte> data);
/// @error as `device::load_table`.
result<std::unique_ptr<weight>> make_host_table(ggml_type type, std::size_t rows, std::size_t cols,
                                                std::span<const std::byte> data);

class host_queue final : public compute_queue {
 public:
  host_queue(host_core& core, int priority) : core_(core), priority_(priority) {}

  void embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) override;
  void rms_norm(tensor x, const float* gain, float eps, tensor out) override;
  void rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                      float eps) override;
  void linear(tensor x, std::span<const linear_job> jobs) override;
  /// Plain weights are multiplied with activations in f32 anyway.
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
  /// Calls work(row) for all rows: on this thread if they are few, else on all.
  template <class Work>
  void each_row(std::size_t rows, const Work& work);
  void quantize(tensor x);
  /// A tile's product with rows [begin, end).
  void tile_product(const linear_job& job, std::size_t tile, tensor x, std::size_t begin,
                    std::size_t end) const;
  /// By position: [d] cosines, then [d] sines as `kernel_set::rope` says, for the d dimensions that turn.
  struct rotation_table {
    std::vector<float> turns;
    std::vector<float> freq;
    bool neox = false;
    float scale = 0;
  };
  /// The table of these parameters, reaching position `last`; made before threads read it.
  const rotation_table& rotations(std::int32_t last, const rope_params& rope);

  host_core& core_;
  const int priority_;

  // Scratch memory, grown once.
  std::vector<std::int8_t> q_;
  std::vector<float> q_scale_, q_sum32_, q_sum16_;
  quantized_rows quantized_;
  std::vector<attention_task> tasks_;

  std::vector<rotation_table> rotations_;  ///< one for each kind of layer that was seen: one or two
};

}  // namespace mooncaf
