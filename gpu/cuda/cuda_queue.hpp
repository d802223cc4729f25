#pragma once
// The operations of gpu/device.hpp as launches of kernels.

#include <memory>

#include "gpu/cuda/device_array.hpp"
#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/launch_graphs.hpp"
#include "gpu/cuda/queue_tables.hpp"
#include "gpu/device.hpp"
#include "gpu/work_collector.hpp"

namespace mooncaf::cuda {

/// Dimensions of an attention head that there are kernels for.
inline constexpr std::uint32_t longest_head = 640;

/// One stream. Its scratch memory is its own, so that queues run side by side.
///
/// Turns are nothing here: work is handed over long before it is done, and the device takes the blocks of
/// threads of the stream with the better priority first, which is sooner than at the next layer.
/// @throws device_failure from any call.
class cuda_queue final : public compute_queue, public work_collector {
 public:
  cuda_queue(accelerator& gpu, int priority);

  /// Launches are kept from here on, and become a graph where they were of the same kernels and grids before.
  void collect() override;
  void hand_over() override;

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
  void synchronize() override {
    send();
    stream_->synchronize();
  }
  void wait(const event_ptr& e) override {
    send();
    stream_->wait(e);
  }
  event_ptr record() override {
    send();
    return stream_->record();
  }
  void begin_turn() override {}
  void end_turn() override {}

 private:
  void gated(tensor gate, tensor up, tensor out, bool gelu, float limit);

  template <class Params>
  void launch(kernel which, grid blocks, Params params);
  /// Hands over the launches that were kept so far. Not with the next one under way: its tables would be
  /// free.
  void send();
  void run_kept();

  const unsigned processors_;
  std::unique_ptr<stream> stream_;
  room_source rooms_;
  launch_list kept_;
  launch_graphs graphs_;

  device_table<std::int32_t> tokens_;
  halved_rows inputs_;
  rotation_tables rotations_;
  kv_write_tables writes_;
  attention_plan attention_;
  move_tables moves_;
  choice_tables choices_;
  checksum_tables checksums_;
};

}  // namespace mooncaf::cuda
