#pragma once
// The one interface to compute hardware. `runtime/model` drives it and knows nothing of what lies behind it;
// the host implementation (gpu/host) is always built, CUDA implements the same calls on a stream.
//
// Promise that the whole system leans on: **batch invariance**. The numbers computed for one token depend on
// that token, its context and the weights alone; never on how many tokens share the call, on chunk borders,
// on batch neighbours, on the number of threads, nor on whether the context was computed here or came from a
// cache. Every implementation therefore fixes the order of each reduction (K in ascending quantisation
// blocks, attention in tiles of absolute position). It is what makes "same tokens from a cold cache, a warm
// cache and another machine" a fact.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gpu/copy_queue.hpp"
#include "gpu/ggml_type.hpp"
#include "gpu/token_choice.hpp"
#include "runtime/base/kv_layout.hpp"
#include "runtime/base/result.hpp"

namespace mooncaf {

/// What a device is and can do; printed by `--version` and shown in `/cluster`.
struct device_info {
  std::string name;  ///< e.g. "host avx512-vnni, 2 threads"
  std::string isa;   ///< "avx512-vnni", "avx2", "portable", "sm_90a"
  unsigned threads = 1;
  std::size_t memory_bytes = 0;
  /// Device memory is the host's: addresses of the two are the same, so that KV blocks are used where they
  /// are. Otherwise nothing but the device's own queues can follow a device address.
  bool host_memory = true;
  bool host_buffers = true;        ///< the host may read and write what `allocate` gives
  std::uint32_t longest_head = 0;  ///< dimensions of an attention head that it takes; 0: any
};

/// A weight matrix, in whatever form the device likes best. Made by `device::load_weight`; immutable.
class weight {
 public:
  virtual ~weight() = default;
  virtual std::size_t rows() const noexcept = 0;  ///< output features
  virtual std::size_t cols() const noexcept = 0;  ///< input features
};

/// Row-major f32 matrix in device memory: [rows, cols], rows `stride` elements apart. Does not own.
struct tensor {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  float* row(std::size_t i) const noexcept { return data + i * stride; }
};

/// `count` rows from row `begin` of the same memory.
inline tensor rows_of(tensor t, std::size_t begin, std::size_t count) noexcept {
  return {t.row(begin), count, t.cols, t.stride};
}

/// `count` columns from column `first` of the same rows.
inline tensor columns_of(tensor t, std::size_t first, std::size_t count) noexcept {
  return {t.data + first, t.rows, count, t.stride};
}

/// Device memory for activations; freed with the object.
class buffer {
 public:
  virtual ~buffer() = default;
  virtual float* data() noexcept = 0;  ///< device address
  virtual std::size_t size_bytes() const noexcept = 0;
};

/// One matrix product of `compute_queue::linear`: out = x · wᵀ (+ bias). All jobs of a call share x.
struct linear_job {
  const weight* w = nullptr;
  const float* bias = nullptr;  ///< [w->rows()] in device memory, or null
  tensor out;                   ///< [x.rows, w->rows()]
};

/// How rotary embedding is applied. `inv_freq` has d/2 entries (rope scaling already folded in): the first d
/// dimensions of a head turn, d ≤ head_dim, and the others stay as they are.
struct rope_params {
  std::span<const float> inv_freq;
  bool neox =
      false;  ///< pairs (i, i + d/2) as in Qwen; false: pairs (2i, 2i+1) as GGUF Llama files store them
  float attention_scale = 1;  ///< multiplies sin and cos (YaRN)
};

/// Which attention a layer computes.
struct attention_form {
  std::uint32_t n_heads = 1;  ///< query heads
  float scale = 1;            ///< of scores
  std::uint32_t window = 0;   ///< positions that a query sees, its own and those right before it; 0: all
  float softcap = 0;          ///< scores s become softcap·tanh(s / softcap); 0: they do not
  /// [n_heads] in device memory: a score that joins each head's softmax and has no value; null: none.
  const float* sinks = nullptr;
};

/// One sequence of an attention call. Its `q_tokens` query rows are the positions
/// [kv_tokens - q_tokens, kv_tokens) of a context of `kv_tokens`, whose keys and values lie in `blocks`.
struct attention_seq {
  std::uint32_t q_begin = 0;  ///< first row of this sequence in q and out
  std::uint32_t q_tokens = 0;
  std::uint32_t kv_tokens = 0;           ///< context length including the query rows
  std::span<const device_bytes> blocks;  ///< KV blocks, ceil(kv_tokens / block_tokens) of them
};

/// Whether devices make checksums of so many bytes: they do of a KV block of any model.
constexpr bool checksum_fits(std::size_t bytes) noexcept { return bytes % 64 == 0 && bytes > 256; }

/// Ordered work on a device. Calls may return before completion; `synchronize` waits. Spans are read before
/// the call returns, but for those of `upload` and `download`. One thread at a time.
class compute_queue {
 public:
  virtual ~compute_queue() = default;

  /// out[i] = row tokens[i] of `table`, as f32. out: [tokens, table.cols()].
  virtual void embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) = 0;
  /// Root-mean-square norm of each row: out = x / sqrt(mean(x²) + eps) · gain. In place allowed. gain:
  /// [cols].
  virtual void rms_norm(tensor x, const float* gain, float eps, tensor out) = 0;
  /// The same over each head of each row (Qwen3's q/k-norm), in place. x: [tokens, heads·head_dim], gain:
  /// [head_dim].
  virtual void rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                              float eps) = 0;
  /// Matrix products that share the input x: [tokens, in].
  virtual void linear(tensor x, std::span<const linear_job> jobs) = 0;
  /// One product in which nothing is rounded below f32, as routers need it: a token near the border between
  /// two experts goes to the same one on every device. @pre the weight was loaded as `ggml_type::f32`.
  virtual void linear_f32(tensor x, const linear_job& job) = 0;
  /// Rotates q or k in place. x: [tokens, heads·head_dim]; positions: [tokens].
  virtual void rope(tensor x, std::uint32_t heads, std::uint32_t head_dim,
                    std::span<const std::int32_t> positions, const rope_params& rope) = 0;
  /// Writes keys and values into layer `layer` of KV blocks. k, v: [tokens, n_kv_heads·head_dim], v unread
  /// where the layout has values in their keys;
  /// rows as in `seqs`: the query rows of a sequence are the tokens that get written.
  virtual void kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                        std::span<const attention_seq> seqs) = 0;
  /// Causal grouped-query attention over paged KV blocks. q, out: [tokens, n_heads·head_dim];
  /// softmax(q·kᵀ·scale)·v, row i of a sequence sees positions up to its own. v is k where the layout says
  /// so.
  virtual void paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form,
                               tensor q, std::span<const attention_seq> seqs, tensor out) = 0;
  /// out = silu(gate) · up, elementwise; out may alias gate.
  virtual void swiglu(tensor gate, tensor up, tensor out) = 0;
  /// The same with GELU in its tanh form.
  virtual void geglu(tensor gate, tensor up, tensor out) = 0;
  /// gpt-oss's: out = g·sigmoid(1.702·g)·(u + 1), g being gate up to `limit` and u up within ±limit.
  virtual void clamped_swiglu(tensor gate, tensor up, float limit, tensor out) = 0;
  /// x += y.
  virtual void add(tensor x, tensor y) = 0;
  /// x *= factor.
  virtual void scale(tensor x, float factor) = 0;
  /// x = cap·tanh(x / cap).
  virtual void soft_cap(tensor x, float cap) = 0;
  /// out[i] = x[rows[i]]. out: [rows, x.cols].
  virtual void gather(tensor x, std::span<const std::uint32_t> rows, tensor out) = 0;
  /// x[rows[i]] += weights[i] · y[i]. No row twice.
  virtual void scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                           tensor x) = 0;
  /// Chooses a token from each row that `how` names, and overwrites the row. `out`, one for each, and the
  /// `top` of each `how` are the host's memory and left alone until `synchronize`.
  /// @pre at most `largest_vocabulary` columns.
  virtual void choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) = 0;
  /// out[i] = `checksum64` of the `bytes` at blocks[i]. `out` is the host's memory and left alone until
  /// `synchronize`. @pre `checksum_fits(bytes)`.
  virtual void checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                        std::span<std::uint64_t> out) = 0;
  /// Copies to and from device memory; the host's side is left alone until `synchronize`.
  virtual void upload(std::span<const float> from, float* to) = 0;
  virtual void download(const float* from, std::span<float> to) = 0;
  virtual void synchronize() = 0;

  /// Later work of this queue begins after `e`. Not with a turn held: other queues would wait, too.
  virtual void wait(const event_ptr& e) = 0;
  /// Reached once everything that was handed over is done.
  virtual event_ptr record() = 0;

  /// A turn on the device. Queues of one device take turns at layer borders, so that a decode step waits for
  /// at most one layer of a prefill; lower `priority` value goes first, equals in order of arrival.
  /// Hold one turn per layer; the calls above need a held turn.
  virtual void begin_turn() = 0;
  virtual void end_turn() = 0;
};

/// Compute hardware. Thread-safe. Outlives the weights, buffers and queues that it made.
class device {
 public:
  virtual ~device() = default;
  virtual device_info info() const = 0;
  /// Takes a matrix [rows, cols] stored as GGUF stores it (rows contiguous, quantised along cols).
  /// May keep pointing into `data` (memory-mapped file), which must outlive the weight.
  /// @error `ec::unsupported` for a type this device cannot compute with, `ec::invalid_argument` if sizes
  /// disagree.
  virtual result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                                      std::span<const std::byte> data) = 0;
  /// A matrix for `compute_queue::embed` alone: a device that looks rows up where they lie takes no memory for it.
  virtual result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                                     std::span<const std::byte> data) {
    return load_weight(type, rows, cols, data);
  }
  virtual result<std::unique_ptr<buffer>> allocate(std::size_t bytes) = 0;
  /// @param priority  turn order against the other queues of this device; decode 0, prefill 1.
  virtual std::unique_ptr<compute_queue> make_queue(int priority) = 0;
  /// Readies host memory, so that copies from and to it run beside computing. Memory may be copied from and
  /// to without that, too. The device keeps `owner`, which keeps it mapped.
  /// @error `ec::out_of_space`, `ec::unavailable`: it stays as it is.
  virtual result<void> pin(std::span<std::byte> memory, std::shared_ptr<const void> owner) = 0;
  /// A queue of copies; those of different queues may run side by side.
  virtual std::unique_ptr<copy_queue> make_copy_queue() = 0;
};

/// RAII over begin_turn / end_turn.
class device_turn {
 public:
  explicit device_turn(compute_queue& queue) : queue_(queue) { queue_.begin_turn(); }
  ~device_turn() { queue_.end_turn(); }
  device_turn(const device_turn&) = delete;
  device_turn& operator=(const device_turn&) = delete;

 private:
  compute_queue& queue_;
};

}  // namespace mooncaf
