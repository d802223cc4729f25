#include "gpu/cuda/cuda_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gpu/cuda/cuda_copies.hpp"
#include "gpu/cuda/cuda_weight.hpp"

namespace mooncaf::cuda {

namespace {

/// Tokens up to which the kernel with one tile of tokens is taken: behind that its reading the weights again
/// for each eight tokens costs more than the other's larger tiles.
constexpr std::size_t few_tokens = 8;

/// Scratch for splits that are computed apart: as long a context as that is worth it for.
constexpr std::size_t most_split_floats = std::size_t{64} << 20;

constexpr double log2_e = 1.4426950408889634;

const weight_view& view_of(const weight& w) { return static_cast<const cuda_weight&>(w).view(); }

unsigned blocks_of(std::size_t n, std::size_t each) { return static_cast<unsigned>((n + each - 1) / each); }

unsigned count_of(std::size_t n) { return static_cast<unsigned>(n); }

kernel product_kernel(weight_form form, bool few) {
  switch (form) {
    case weight_form::nibbles:
      return few ? kernel::product_nibbles_few : kernel::product_nibbles_many;
    case weight_form::fives:
      return few ? kernel::product_fives_few : kernel::product_fives_many;
    case weight_form::bytes:
      return few ? kernel::product_bytes_few : kernel::product_bytes_many;
    case weight_form::bytes_by_sixteen:
      return few ? kernel::product_bytes_by_sixteen_few : kernel::product_bytes_by_sixteen_many;
    case weight_form::fp4:
      return few ? kernel::product_fp4_few : kernel::product_fp4_many;
    case weight_form::f16:
      return few ? kernel::product_f16_few : kernel::product_f16_many;
    case weight_form::bf16:
      return few ? kernel::product_bf16_few : kernel::product_bf16_many;
    case weight_form::f32:
      break;
  }
  return few ? kernel::product_f32_few : kernel::product_f32_many;
}

static_assert(int4_group == int4_row::group && int4_multipliers_at == int4_row::multipliers_at);

void set_forms(kv_view& v, const kv_layout& layout) {
  switch (layout.dtype) {
    case kv_dtype::f16:
      v.keys = v.values = kv_form::f16;
      return;
    case kv_dtype::f32:
      v.keys = v.values = kv_form::f32;
      return;
    case kv_dtype::int8:
    case kv_dtype::k8v4:
      v.keys = v.values = kv_form::int8;
      v.key_header = v.value_header = int8_row::header_bytes;
      if (!layout.joined()) return;
      v.values = kv_form::int4;
      v.value_header = count_of(int4_row::header_bytes(layout.head_dim));
  }
}

kv_view view_of(const kv_layout& layout, std::uint32_t layer) {
  if (layout.head_dim % 8 != 0 || layout.head_dim > longest_head)
    throw device_failure("attention heads of " + std::to_string(layout.head_dim) +
                             " dimensions: this device takes multiples of 8 up to " +
                             std::to_string(longest_head),
                         false);
  kv_view v;
  v.layer_offset = layout.offset(layer, 0, false, 0);
  v.head_bytes = count_of(layout.head_planes() * layout.plane_bytes());
  v.value_offset = count_of(layout.value_offset());
  v.row_bytes = count_of(layout.row_bytes());
  v.block_tokens = layout.block_tokens;
  v.kv_heads = layout.n_kv_heads;
  v.head_dim = layout.head_dim;
  v.shared = layout.shared ? 1 : 0;
  set_forms(v, layout);
  return v;
}

}  // namespace

cuda_queue::cuda_queue(accelerator& gpu, int priority)
    : processors_(gpu.info().processors),
      stream_(gpu.make_stream(priority)),
      rooms_{gpu, [this] { run_kept(); }},
      tokens_(rooms_),
      inputs_(rooms_),
      rotations_(rooms_),
      writes_(rooms_),
      attention_(rooms_),
      moves_(rooms_),
      choices_(rooms_),
      checksums_(rooms_) {}

void cuda_queue::collect() { rooms_.keeps = true; }

void cuda_queue::hand_over() {
  send();
  rooms_.keeps = false;
}

void cuda_queue::send() {
  run_kept();
  ++rooms_.batch;
}

void cuda_queue::run_kept() {
  if (kept_.size() == 0) return;
  const std::unique_ptr<launch_list, void (*)(launch_list*)> in_any_case{&kept_,
                                                                         [](auto* list) { list->clear(); }};
  graphs_.run(*stream_, kept_);
}

template <class Params>
void cuda_queue::launch(kernel which, grid blocks, Params params) {
  if (!rooms_.keeps) return stream_->launch(which, blocks, &params);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&params);  // so that equal parameters have equal bytes
#endif
  kept_.add(which, blocks, &params, sizeof params);
}

void cuda_queue::embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) {
  if (tokens.empty()) return;
  const embed_params p{view_of(table), tokens_.put(*stream_, tokens), out.data, out.stride,
                       count_of(table.cols())};
  launch(kernel::embed, {count_of(tokens.size())}, p);
}

void cuda_queue::rms_norm(tensor x, const float* gain, float eps, tensor out) {
  if (x.rows == 0) return;
  const norm_params p{x.data, gain, out.data, x.stride, out.stride, 1, count_of(x.cols), eps};
  launch(kernel::norm, {count_of(x.rows)}, p);
}

void cuda_queue::rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                                float eps) {
  if (x.rows == 0) return;
  const norm_params p{x.data, gain, x.data, x.stride, x.stride, heads, head_dim, eps};
  launch(kernel::norm, {count_of(x.rows), heads}, p);
}

void cuda_queue::linear(tensor x, std::span<const linear_job> jobs) {
  if (x.rows == 0 || jobs.empty()) return;
  const auto chunks = blocks_of(x.cols, chunk_columns);
  const halve_params h{x.data,
                       inputs_.values.of(x.rows * chunks * chunk_columns),
                       inputs_.scales.of(x.rows),
                       x.stride,
                       count_of(x.cols),
                       chunks};
  launch(kernel::halve, {count_of(x.rows)}, h);
  const bool few = x.rows <= few_tokens;
  for (const auto& job : jobs) {
    product_params p;
    p.w = view_of(*job.w);
    p.x = h.halves;
    p.x_scale = h.scale;
    p.bias = job.bias;
    p.out = job.out.data;
    p.out_stride = job.out.stride;
    p.tokens = count_of(x.rows);
    launch(product_kernel(p.w.form, few),
           {blocks_of(p.w.rows, few ? 16 : 32), blocks_of(x.rows, few ? 8 : 64)}, p);
  }
}

void cuda_queue::linear_f32(tensor x, const linear_job& job) {
  if (x.rows == 0) return;
  wide_product_params p;
  p.w = view_of(*job.w);
  p.x = x.data;
  p.bias = job.bias;
  p.out = job.out.data;
  p.x_stride = x.stride;
  p.out_stride = job.out.stride;
  p.cols = count_of(x.cols);
  launch(kernel::product_wide, {count_of(x.rows), blocks_of(p.w.rows, product_warps)}, p);
}

void cuda_queue::rope(tensor x, std::uint32_t heads, std::uint32_t head_dim,
                      std::span<const std::int32_t> positions, const rope_params& rope) {
  if (x.rows == 0) return;
  rope_launch p;
  p.x = x.data;
  p.positions = rotations_.positions.put(*stream_, positions);
  p.inv_freq = rotations_.frequencies.put(*stream_, rope.inv_freq);
  p.stride = x.stride;
  p.heads = heads;
  p.head_dim = head_dim;
  p.half = count_of(rope.inv_freq.size());
  p.neox = rope.neox ? 1 : 0;
  p.scale = rope.attention_scale;
  launch(kernel::rope, {count_of(x.rows)}, p);
}

void cuda_queue::kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                          std::span<const attention_seq> seqs) {
  if (k.rows == 0) return;
  kv_write_params p;
  p.k = k.data;
  p.v = v.data;
  p.k_stride = k.stride;
  p.v_stride = v.stride;
  writes_.put(*stream_, layout, k.rows, seqs, p);
  p.kv = view_of(layout, layer);
  launch(kernel::kv_write, {count_of(k.rows)}, p);
}

// One launch where tiles keep the device busy; else a second one joins the splits that the first computed
// apart.
void cuda_queue::paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form,
                                 tensor q, std::span<const attention_seq> seqs, tensor out) {
  const auto n_heads = form.n_heads;
  attention_params p;
  p.kv = view_of(layout, layer);
  p.group = n_heads / layout.n_kv_heads;
  attention_.make(seqs, q.rows, p.group, layout.head_dim <= 256 ? attention_rows : wide_attention_rows);
  if (attention_.tiles() == 0) return;
  p.q = q.data;
  p.out = out.data;
  p.q_stride = q.stride;
  p.out_stride = out.stride;
  attention_.put(*stream_, p);
  p.tokens = count_of(q.rows);
  p.heads = n_heads;
  p.scale = static_cast<float>(form.scale * log2_e);
  // Positions ahead of a row count as more than 2^31 behind it: they are outside of this, too.
  p.window = form.window != 0 ? form.window : std::uint32_t{1} << 31;
  p.softcap = static_cast<float>(form.softcap * log2_e);
  p.sinks = form.sinks;
  // Where there is less work than processors, splits are computed side by side; the bits are the same. A
  // launch that is kept comes again with longer contexts: blocks of threads without a split cost less than
  // another graph.
  const auto needed = blocks_of(attention_.longest(), attention_split);
  const auto splits = rooms_.keeps ? std::bit_ceil(needed) : needed;
  const auto sums = std::size_t{splits} * q.rows * n_heads * layout.head_dim;
  const bool apart = splits > 1 && std::size_t{attention_.tiles()} * layout.n_kv_heads < 2 * processors_ &&
                     sums <= most_split_floats;
  if (apart) attention_.split(splits, p);
  const auto which = layout.head_dim <= 64    ? kernel::attention_64
                     : layout.head_dim <= 128 ? kernel::attention_128
                     : layout.head_dim <= 256 ? kernel::attention_256
                                              : kernel::attention_640;
  launch(which, {attention_.tiles(), layout.n_kv_heads, apart ? splits : 1}, p);
  if (!apart) return;
  combine_params c;
  c.sums = p.sums;
  c.peaks = p.peaks;
  c.out = out.data;
  c.contexts = attention_.put_contexts(*stream_);
  c.out_stride = out.stride;
  c.tokens = p.tokens;
  c.heads = n_heads;
  c.head_dim = layout.head_dim;
  launch(kernel::combine, {p.tokens, n_heads}, c);
}

void cuda_queue::gated(tensor gate, tensor up, tensor out, bool gelu, float limit) {
  if (gate.rows == 0) return;
  const swiglu_params p{gate.data,           up.data,        out.data, gate.stride, up.stride, out.stride,
                        count_of(gate.cols), gelu ? 1u : 0u, limit};
  launch(kernel::swiglu, {count_of(gate.rows)}, p);
}

void cuda_queue::swiglu(tensor gate, tensor up, tensor out) { gated(gate, up, out, false, 0); }
void cuda_queue::geglu(tensor gate, tensor up, tensor out) { gated(gate, up, out, true, 0); }
void cuda_queue::clamped_swiglu(tensor gate, tensor up, float limit, tensor out) {
  gated(gate, up, out, false, limit);
}

void cuda_queue::add(tensor x, tensor y) {
  if (x.rows == 0) return;
  const add_params p{x.data, y.data, x.stride, y.stride, count_of(x.cols)};
  launch(kernel::add, {count_of(x.rows)}, p);
}

void cuda_queue::scale(tensor x, float factor) {
  if (x.rows == 0) return;
  const bend_params p{x.data, x.stride, count_of(x.cols), factor, 0};
  launch(kernel::bend, {count_of(x.rows)}, p);
}

void cuda_queue::soft_cap(tensor x, float cap) {
  if (x.rows == 0) return;
  const bend_params p{x.data, x.stride, count_of(x.cols), 1, cap};
  launch(kernel::bend, {count_of(x.rows)}, p);
}

void cuda_queue::gather(tensor x, std::span<const std::uint32_t> rows, tensor out) {
  if (rows.empty()) return;
  const move_params p{x.data,     out.data,        moves_.rows.put(*stream_, rows), nullptr, x.stride,
                      out.stride, count_of(x.cols)};
  launch(kernel::move, {count_of(rows.size())}, p);
}

void cuda_queue::scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                             tensor x) {
  if (rows.empty()) return;
  const move_params p{x.data,
                      y.data,
                      moves_.rows.put(*stream_, rows),
                      moves_.weights.put(*stream_, weights),
                      x.stride,
                      y.stride,
                      count_of(x.cols)};
  launch(kernel::move, {count_of(rows.size())}, p);
}

void cuda_queue::choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) {
  if (how.empty()) return;
  choose_params p;
  p.logits = logits.data;
  p.stride = logits.stride;
  choices_.put(*stream_, how, p);
  p.cols = count_of(logits.cols);
  launch(kernel::choose, {count_of(how.size())}, p);
  send();
  choices_.take(*stream_, p, how, out);
}

void cuda_queue::checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                          std::span<std::uint64_t> out) {
  if (blocks.empty()) return;
  auto p = checksum_secrets();
  checksums_.put(*stream_, blocks, p);
  p.bytes = bytes;
  launch(kernel::checksum, {count_of(blocks.size())}, p);
  send();
  stream_->download(out.data(), reinterpret_cast<const std::byte*>(p.out), out.size_bytes());
}

void cuda_queue::upload(std::span<const float> from, float* to) {
  send();
  stream_->upload(reinterpret_cast<std::byte*>(to), from.data(), from.size_bytes());
}

void cuda_queue::download(const float* from, std::span<float> to) {
  send();
  stream_->download(to.data(), reinterpret_cast<const std::byte*>(from), to.size_bytes());
}

}  // namespace mooncaf::cuda
