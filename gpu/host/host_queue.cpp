#include "gpu/host/host_queue.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "gpu/host/dequantize.hpp"
#include "gpu/host/vocab_ops.hpp"
#include "runtime/base/hash.hpp"

namespace mooncaf {

namespace {

/// Rows below which a parallel section costs more than it saves.
constexpr std::size_t few_rows = 8;

/// Rows that a thread multiplies with all its tiles before it takes the next ones, so that they stay in its second-level
/// cache: whole numbers of what every instruction set takes at once.
constexpr std::size_t block_rows = 96;

/// Query rows of one attention task: enough that preparing a tile of keys and values hardly shows, and few
/// enough that a prompt's chunk makes work for all threads and a task's memory stays in the second-level
/// cache.
constexpr std::uint32_t task_rows = 192;

/// Query heads of one attention task: where one KV head serves all of a model's, a decode step's are shared
/// out.
constexpr std::uint32_t task_heads = 32;

const host_weight& as_host(const weight& w) noexcept { return static_cast<const host_weight&>(w); }

std::size_t tiles_of(const linear_job& job) noexcept { return (job.w->rows() + 15) / 16; }

/// A tile of a weight that is not packed: [columns][16 rows], bf16 [pairs of columns][16 rows][2], since two of them
/// fill a lane and either becomes a float by one instruction.
void pack_plain(host_weight& w, std::size_t tile) {
  const auto size = block_bytes(w.type_), stride = row_bytes(w.type_, w.cols_);
  const bool pairs = w.type_ == ggml_type::bf16;
  for (std::size_t r = 0; r < 16 && tile * 16 + r < w.rows_; ++r) {
    const auto* from = w.source_.data() + (tile * 16 + r) * stride;
    auto* to = w.plain_.get() + tile * w.plain_tile_bytes();
    for (std::size_t c = 0; c < w.cols_; ++c) {
      const auto at = pairs ? (c / 2 * 16 + r) * 2 + c % 2 : c * 16 + r;
      std::memcpy(to + at * size, from + c * size, size);
    }
  }
}

/// This thread's memory for one attention call, 64-byte aligned.
float* attention_scratch(std::size_t floats) {
  struct free_it {
    void operator()(float* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<float, free_it> memory;
  thread_local std::size_t size = 0;
  if (size < floats) {
    memory.reset(static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
    size = memory ? floats : 0;
    if (!memory) throw std::bad_alloc{};
  }
  return memory.get();
}

}  // namespace

// Three forms: the exact device's f32, packed groups for types with kernels of their own, and tiles of
// sixteen rows for all others, so that a vector loads a column of a tile, or two of bf16.
result<std::unique_ptr<weight>> make_host_table(ggml_type type, std::size_t rows, std::size_t cols,
                                                std::span<const std::byte> data) {
  if (auto fits = check_matrix(type, rows, cols, data); !fits) return fail(fits.error());
  auto made = std::make_unique<host_weight>();
  made->type_ = type;
  made->rows_ = rows;
  made->cols_ = cols;
  made->source_ = data;
  return std::unique_ptr<weight>{std::move(made)};
}

result<std::unique_ptr<weight>> make_host_weight(host_core& core, ggml_type type, std::size_t rows,
                                                 std::size_t cols, std::span<const std::byte> data) {
  auto table = make_host_table(type, rows, cols, data);
  if (!table) return table;
  auto* const made = static_cast<host_weight*>(table->get());
  const auto stride = row_bytes(type, cols);
  if (core.exact) {
    made->exact_.resize(rows * cols);
    core.pool.run(rows, [&](std::size_t r) {
      dequantize_row(type, data.subspan(r * stride, stride), std::span{made->exact_}.subspan(r * cols, cols));
    });
  } else if (can_pack(type)) {
    auto packed = pack(type, rows, cols, data, core.pool, core.weights);
    if (!packed) return fail(packed.error());
    made->packed_ = std::move(*packed);
  } else {
    const auto tiles = (rows + 15) / 16;
    auto taken = core.weights.take(tiles * made->plain_tile_bytes());
    if (!taken) return fail(taken.error());
    made->plain_ = std::move(*taken);
    core.pool.run(tiles, [&](std::size_t tile) { pack_plain(*made, tile); });
  }
  return table;
}

template <class Work>
void host_queue::each_row(std::size_t rows, const Work& work) {
  if (rows < few_rows) {
    for (std::size_t r = 0; r < rows; ++r) work(r);
    return;
  }
  constexpr std::size_t piece = 8;
  core_.pool.run((rows + piece - 1) / piece, [&](std::size_t p) {
    for (auto r = p * piece; r < std::min(rows, (p + 1) * piece); ++r) work(r);
  });
}

void host_queue::embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) {
  const auto& w = as_host(table);
  const auto stride = row_bytes(w.type_, w.cols_);
  each_row(tokens.size(), [&](std::size_t i) {
    dequantize_row(w.type_, w.source_.subspan(static_cast<std::size_t>(tokens[i]) * stride, stride),
                   {out.row(i), w.cols_});
  });
}

void host_queue::rms_norm(tensor x, const float* gain, float eps, tensor out) {
  each_row(x.rows, [&](std::size_t i) { core_.kernels.rms_norm(x.row(i), gain, eps, x.cols, out.row(i)); });
}

void host_queue::rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                                float eps) {
  each_row(x.rows, [&](std::size_t i) {
    for (std::uint32_t h = 0; h < heads; ++h) {
      float* head = x.row(i) + std::size_t{h} * head_dim;
      core_.kernels.rms_norm(head, gain, eps, head_dim, head);
    }
  });
}

void host_queue::quantize(tensor x) {
  auto& z = quantized_;
  z.cols = x.cols;
  z.q_stride = (x.cols + 63) / 64 * 64;
  z.groups = x.cols / 32;
  q_.resize(std::max(q_.size(), x.rows * z.q_stride));
  q_scale_.resize(std::max(q_scale_.size(), x.rows * z.groups));
  q_sum32_.resize(std::max(q_sum32_.size(), x.rows * z.groups));
  q_sum16_.resize(std::max(q_sum16_.size(), x.rows * z.groups * 2));
  z.q = q_.data();
  z.scale = q_scale_.data();
  z.sum32 = q_sum32_.data();
  z.sum16 = q_sum16_.data();
  each_row(x.rows, [&](std::size_t t) {
    core_.kernels.quantize(x.row(t), z.cols, z.q + t * z.q_stride, z.scale + t * z.groups,
                           z.sum32 + t * z.groups, z.sum16 + t * 2 * z.groups);
  });
}

void host_queue::linear(tensor x, std::span<const linear_job> jobs) {
  const auto packed = [](const linear_job& job) { return as_host(*job.w).packed_.data != nullptr; };
  if (std::ranges::any_of(jobs, packed)) quantize(x);
  std::size_t tiles = 0;
  for (const auto& job : jobs) tiles += tiles_of(job);
  // Enough pieces that no thread waits long for the last one, and not so many that handing them out shows.
  const auto pieces = core_.pool.size() * (x.rows < few_rows ? 4 : 8);
  const auto piece = std::max<std::size_t>(1, tiles / pieces);
  core_.pool.run((tiles + piece - 1) / piece, [&](std::size_t p) {
    for (std::size_t begin = 0; begin < x.rows; begin += block_rows) {
      const auto end = std::min(x.rows, begin + block_rows);
      for (auto at = p * piece; at < std::min(tiles, (p + 1) * piece); ++at) {
        auto tile = at;
        auto job = jobs.begin();
        for (; tile >= tiles_of(*job); ++job) tile -= tiles_of(*job);
        tile_product(*job, tile, x, begin, end);
      }
    }
  });
}

void host_queue::tile_product(const linear_job& job, std::size_t tile, tensor x, std::size_t begin,
                              std::size_t end) const {
  const auto& w = as_host(*job.w);
  if (w.packed_.data) {
    core_.kernels.matmul_packed(w.packed_, tile, quantized_, begin, end, job.out.data, job.out.stride,
                                job.bias);
  } else {
    const auto row = tile * 16;
    core_.kernels.matmul_plain(w.type_, w.plain_.get() + tile * w.plain_tile_bytes(), w.cols_, x.row(begin),
                               x.stride, end - begin, job.out.row(begin) + row, job.out.stride, w.rows_ - row,
                               job.bias ? job.bias + row : nullptr);
  }
}

const host_queue::rotation_table& host_queue::rotations(std::int32_t last, const rope_params& rope) {
  const auto same = [&](const rotation_table& t) {
    return std::ranges::equal(t.freq, rope.inv_freq) && t.neox == rope.neox &&
           t.scale == rope.attention_scale;
  };
  auto table = std::ranges::find_if(rotations_, same);
  if (table == rotations_.end()) {
    constexpr std::size_t most_kinds = 4;  // a model with more kinds makes its tables again
    if (rotations_.size() == most_kinds) rotations_.clear();
    rotations_.push_back({{}, {rope.inv_freq.begin(), rope.inv_freq.end()}, rope.neox, rope.attention_scale});
    table = rotations_.end() - 1;
  }
  const std::size_t half = rope.inv_freq.size(), dim = 2 * half, row = 2 * dim;
  const auto known = table->turns.size() / row, wanted = static_cast<std::size_t>(last) + 1;
  if (known >= wanted) return *table;
  table->turns.resize(wanted * row);
  each_row(wanted - known, [&](std::size_t r) {
    float* cosine = table->turns.data() + (known + r) * row;
    float* sine = cosine + dim;
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(known + r) * rope.inv_freq[i];
      const auto first = rope.neox ? i : 2 * i, second = rope.neox ? i + half : 2 * i + 1;
      cosine[first] = cosine[second] = std::cos(angle) * rope.attention_scale;
      sine[second] = std::sin(angle) * rope.attention_scale;
      sine[first] = -sine[second];
    }
  });
  return *table;
}

void host_queue::rope(tensor x, std::uint32_t heads, std::uint32_t head_dim,
                      std::span<const std::int32_t> positions, const rope_params& rope) {
  if (positions.empty()) return;
  const auto& table = rotations(*std::ranges::max_element(positions), rope);
  const auto dim = 2 * rope.inv_freq.size();
  each_row(x.rows, [&](std::size_t t) {
    const float* turn = table.turns.data() + static_cast<std::size_t>(positions[t]) * 2 * dim;
    for (std::uint32_t h = 0; h < heads; ++h) {
      core_.kernels.rope(x.row(t) + std::size_t{h} * head_dim, turn, dim, rope.neox);
    }
  });
}

void host_queue::kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                          std::span<const attention_seq> seqs) {
  // A row is coded by itself, so that its bytes are the same in whatever batch it was computed.
  const auto put = [&](const float* from, bool value, std::byte* to) {
    switch (layout.dtype) {
      case kv_dtype::f16:
        return core_.kernels.to_half(from, layout.head_dim, reinterpret_cast<std::uint16_t*>(to));
      case kv_dtype::f32:
        std::memcpy(to, from, layout.key_bytes());
        return;
      case kv_dtype::k8v4:
        if (value) return core_.kernels.to_int4(from, layout.head_dim, to);
        [[fallthrough]];
      case kv_dtype::int8:
        return core_.kernels.to_int8(from, layout.head_dim, to);
    }
  };
  for (const auto& seq : seqs) {
    each_row(seq.q_tokens, [&](std::size_t i) {
      const auto position = static_cast<std::uint32_t>(seq.kv_tokens - seq.q_tokens + i);
      auto* block = seq.blocks[position / layout.block_tokens].at;
      const auto row = position % layout.block_tokens;
      for (std::uint32_t h = 0; h < layout.n_kv_heads; ++h) {
        const auto head = std::size_t{h} * layout.head_dim;
        put(k.row(seq.q_begin + i) + head, false, block + layout.offset(layer, h, false, row));
        if (!layout.shared)
          put(v.row(seq.q_begin + i) + head, true, block + layout.offset(layer, h, true, row));
      }
    });
  }
}

// Cuts the call into tasks of few enough rows that their scores stay in the core's cache, each within one KV
// head, so that its heads share what is read.
void host_queue::paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form,
                                 tensor q, std::span<const attention_seq> seqs, tensor out) {
  const auto group = form.n_heads / layout.n_kv_heads;
  const auto part = std::min(group, task_heads);
  const auto most = std::max<std::uint32_t>(1, task_rows / part);
  tasks_.clear();
  for (const auto& seq : seqs) {
    for (std::uint32_t first = 0; first < seq.q_tokens; first += most) {
      for (std::uint32_t head = 0, next = 0; head < form.n_heads; head = next) {
        const auto group_end = (head / group + 1) * group;
        next = std::min(head + part, group_end);
        attention_task task;
        task.layout = &layout;
        task.layer = layer;
        task.kv_head = head / group;
        task.group = next - head;
        task.scale = form.scale;
        task.window = form.window;
        task.softcap = form.softcap;
        task.sinks = form.sinks != nullptr ? form.sinks + head : nullptr;
        task.blocks = seq.blocks;
        task.first_position = seq.kv_tokens - seq.q_tokens + first;
        task.tokens = std::min(most, seq.q_tokens - first);
        const auto column = std::size_t{head} * layout.head_dim;
        task.q = q.row(seq.q_begin + first) + column;
        task.q_stride = q.stride;
        task.out = out.row(seq.q_begin + first) + column;
        task.out_stride = out.stride;
        tasks_.push_back(task);
      }
    }
  }
  // Pieces are handed out from the last to the first: the longest contexts of a prompt are at its end.
  const auto floats = attention_scratch_floats(layout.head_dim, std::size_t{most} * part);
  core_.pool.run(tasks_.size(),
                 [&](std::size_t i) { core_.kernels.attention(tasks_[i], attention_scratch(floats)); });
}

void host_queue::swiglu(tensor gate, tensor up, tensor out) {
  each_row(gate.rows,
           [&](std::size_t i) { core_.kernels.swiglu(gate.row(i), up.row(i), gate.cols, out.row(i)); });
}

void host_queue::geglu(tensor gate, tensor up, tensor out) {
  each_row(gate.rows,
           [&](std::size_t i) { core_.kernels.geglu(gate.row(i), up.row(i), gate.cols, out.row(i)); });
}

void host_queue::clamped_swiglu(tensor gate, tensor up, float limit, tensor out) {
  each_row(gate.rows, [&](std::size_t i) {
    core_.kernels.clamped_swiglu(gate.row(i), up.row(i), limit, gate.cols, out.row(i));
  });
}

void host_queue::add(tensor x, tensor y) {
  each_row(x.rows, [&](std::size_t i) { core_.kernels.add(x.row(i), y.row(i), x.cols); });
}

void host_queue::scale(tensor x, float factor) {
  each_row(x.rows, [&](std::size_t i) {
    for (std::size_t c = 0; c < x.cols; ++c) x.row(i)[c] *= factor;
  });
}

void host_queue::soft_cap(tensor x, float cap) {
  each_row(x.rows, [&](std::size_t i) { core_.kernels.soft_cap(x.row(i), cap, x.cols); });
}

void host_queue::gather(tensor x, std::span<const std::uint32_t> rows, tensor out) {
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows[i]), x.cols, out.row(i));
}

void host_queue::scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                             tensor x) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    float* to = x.row(rows[i]);
    for (std::size_t c = 0; c < x.cols; ++c) to[c] += weights[i] * y.row(i)[c];
  }
}

void host_queue::choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) {
  core_.pool.run(how.size(), [&](std::size_t i) {
    out[i] = choose_token({logits.row(how[i].row), logits.cols}, how[i]);
  });
}

void host_queue::checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                          std::span<std::uint64_t> out) {
  core_.pool.run(blocks.size(), [&](std::size_t i) { out[i] = checksum64({blocks[i].at, bytes}); });
}

void host_queue::upload(std::span<const float> from, float* to) {
  std::memcpy(to, from.data(), from.size_bytes());
}

void host_queue::download(const float* from, std::span<float> to) {
  std::memcpy(to.data(), from, to.size_bytes());
}

}  // namespace mooncaf
