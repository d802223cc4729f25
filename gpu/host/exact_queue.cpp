#include "gpu/host/exact_queue.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "gpu/host/dequantize.hpp"
#include "gpu/host/vocab_ops.hpp"
#include "runtime/base/hash.hpp"

namespace mooncaf {

namespace {

void norm(const float* x, const float* gain, float eps, std::size_t n, float* out) {
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * factor * gain[i]);
}

bool in_four_bits(const kv_layout& layout, bool value) {
  return value && layout.dtype == kv_dtype::k8v4 && !layout.shared;
}
bool in_eight_bits(const kv_layout& layout) {
  return layout.dtype == kv_dtype::int8 || layout.dtype == kv_dtype::k8v4;
}

double kv_element(const kv_layout& layout, const std::byte* row, bool value, std::size_t i) {
  if (in_four_bits(layout, value)) return int4_row::number(row, layout.head_dim, i);
  if (in_eight_bits(layout)) return int8_row::number(row, i);
  if (layout.dtype == kv_dtype::f32) {
    float f;
    std::memcpy(&f, row + 4 * i, 4);
    return f;
  }
  std::uint16_t h;
  std::memcpy(&h, row + 2 * i, 2);
  return half_to_float(h);
}

void put_row(const kv_layout& layout, std::span<const float> from, bool value, std::byte* to) {
  if (in_four_bits(layout, value)) return int4_row::write(from, to);
  if (in_eight_bits(layout)) return int8_row::write(from, to);
  for (std::size_t d = 0; d < from.size(); ++d) {
    const auto half = float_to_half(from[d]);
    if (layout.dtype == kv_dtype::f16) std::memcpy(to + 2 * d, &half, 2);
    else std::memcpy(to + 4 * d, &from[d], 4);
  }
}

/// Query head `head` at `position` against the keys that it shares with its group.
void attend(const kv_layout& layout, std::uint32_t layer, std::uint32_t head, const attention_form& form,
            const attention_seq& seq, std::uint32_t position, const float* q, float* out) {
  const auto kv_head = head / (form.n_heads / layout.n_kv_heads);
  const auto first = form.window != 0 && position >= form.window ? position + 1 - form.window : 0;
  const auto row = [&](std::uint32_t p, bool value) {
    return seq.blocks[p / layout.block_tokens].at +
           layout.offset(layer, kv_head, value, p % layout.block_tokens);
  };
  std::vector<double> weights(position + 1 - first);
  for (std::uint32_t p = first; p <= position; ++p) {
    auto& w = weights[p - first];
    for (std::size_t d = 0; d < layout.head_dim; ++d) w += q[d] * kv_element(layout, row(p, false), false, d);
    w *= form.scale;
    if (form.softcap != 0) w = form.softcap * std::tanh(w / form.softcap);
  }
  double peak = *std::ranges::max_element(weights);
  if (form.sinks != nullptr) peak = std::max<double>(peak, form.sinks[head]);
  double total = form.sinks != nullptr ? std::exp(form.sinks[head] - peak) : 0;
  for (auto& w : weights) total += w = std::exp(w - peak);
  std::vector<double> sums(layout.head_dim);
  for (std::uint32_t p = first; p <= position; ++p) {
    for (std::size_t d = 0; d < layout.head_dim; ++d)
      sums[d] += weights[p - first] * kv_element(layout, row(p, true), true, d);
  }
  for (std::size_t d = 0; d < layout.head_dim; ++d) out[d] = static_cast<float>(sums[d] / total);
}

}  // namespace

void exact_queue::embed(const weight& table, std::span<const std::int32_t> tokens, tensor out) {
  const auto& w = static_cast<const host_weight&>(table);
  const auto stride = row_bytes(w.type_, w.cols_);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    dequantize_row(w.type_, w.source_.subspan(static_cast<std::size_t>(tokens[i]) * stride, stride),
                   {out.row(i), w.cols_});
}

void exact_queue::rms_norm(tensor x, const float* gain, float eps, tensor out) {
  for (std::size_t t = 0; t < x.rows; ++t) norm(x.row(t), gain, eps, x.cols, out.row(t));
}

void exact_queue::rms_norm_heads(tensor x, std::uint32_t heads, std::uint32_t head_dim, const float* gain,
                                 float eps) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      norm(x.row(t) + h * head_dim, gain, eps, head_dim, x.row(t) + h * head_dim);
    }
  }
}

void exact_queue::linear(tensor x, std::span<const linear_job> jobs) {
  for (const auto& job : jobs) {
    const auto& w = static_cast<const host_weight&>(*job.w);
    core_.pool.run(w.rows_, [&](std::size_t r) {
      const float* row = w.exact_.data() + r * w.cols_;
      for (std::size_t t = 0; t < x.rows; ++t) {
        double sum = job.bias ? job.bias[r] : 0;
        for (std::size_t c = 0; c < w.cols_; ++c) sum += static_cast<double>(row[c]) * x.row(t)[c];
        job.out.row(t)[r] = static_cast<float>(sum);
      }
    });
  }
}

void exact_queue::rope(tensor x, std::uint32_t heads, std::uint32_t head_dim,
                       std::span<const std::int32_t> positions, const rope_params& rope) {
  const auto half = static_cast<std::uint32_t>(rope.inv_freq.size());
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      float* head = x.row(t) + h * head_dim;
      for (std::uint32_t i = 0; i < half; ++i) {
        // The angle is rounded to f32 as models were trained with.
        const double angle = static_cast<float>(positions[t]) * rope.inv_freq[i];
        const double c = std::cos(angle) * rope.attention_scale, s = std::sin(angle) * rope.attention_scale;
        float& a = rope.neox ? head[i] : head[2 * i];
        float& b = rope.neox ? head[i + half] : head[2 * i + 1];
        const double turned = a * c - b * s;
        b = static_cast<float>(a * s + b * c);
        a = static_cast<float>(turned);
      }
    }
  }
}

void exact_queue::kv_write(const kv_layout& layout, std::uint32_t layer, tensor k, tensor v,
                           std::span<const attention_seq> seqs) {
  for (const auto& seq : seqs) {
    for (std::uint32_t i = 0; i < seq.q_tokens; ++i) {
      const auto position = seq.kv_tokens - seq.q_tokens + i;
      for (std::uint32_t h = 0; h < layout.n_kv_heads; ++h) {
        for (const bool value : {false, true}) {
          if (value && layout.shared) continue;
          const float* from = (value ? v : k).row(seq.q_begin + i) + std::size_t{h} * layout.head_dim;
          auto* to = seq.blocks[position / layout.block_tokens].at +
                     layout.offset(layer, h, value, position % layout.block_tokens);
          put_row(layout, {from, layout.head_dim}, value, to);
        }
      }
    }
  }
}

void exact_queue::paged_attention(const kv_layout& layout, std::uint32_t layer, const attention_form& form,
                                  tensor q, std::span<const attention_seq> seqs, tensor out) {
  const auto n_heads = form.n_heads;
  for (const auto& seq : seqs) {
    core_.pool.run(std::size_t{seq.q_tokens} * n_heads, [&](std::size_t i) {
      const auto head = static_cast<std::uint32_t>(i % n_heads);
      const auto token = static_cast<std::uint32_t>(i / n_heads);
      const auto column = std::size_t{head} * layout.head_dim;
      attend(layout, layer, head, form, seq, seq.kv_tokens - seq.q_tokens + token,
             q.row(seq.q_begin + token) + column, out.row(seq.q_begin + token) + column);
    });
  }
}

void exact_queue::swiglu(tensor gate, tensor up, tensor out) {
  for (std::size_t t = 0; t < gate.rows; ++t) {
    for (std::size_t i = 0; i < gate.cols; ++i) {
      const double g = gate.row(t)[i];
      out.row(t)[i] = static_cast<float>(g / (1 + std::exp(-g)) * up.row(t)[i]);
    }
  }
}

void exact_queue::geglu(tensor gate, tensor up, tensor out) {
  for (std::size_t t = 0; t < gate.rows; ++t) {
    for (std::size_t i = 0; i < gate.cols; ++i) {
      const double g = gate.row(t)[i];
      const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      out.row(t)[i] = static_cast<float>(0.5 * g * (1 + std::tanh(inner)) * up.row(t)[i]);
    }
  }
}

void exact_queue::clamped_swiglu(tensor gate, tensor up, float limit, tensor out) {
  for (std::size_t t = 0; t < gate.rows; ++t) {
    for (std::size_t i = 0; i < gate.cols; ++i) {
      const double g = std::min(gate.row(t)[i], limit), u = std::clamp(up.row(t)[i], -limit, limit);
      out.row(t)[i] = static_cast<float>(g / (1 + std::exp(-1.702 * g)) * (u + 1));
    }
  }
}

void exact_queue::add(tensor x, tensor y) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t i = 0; i < x.cols; ++i) x.row(t)[i] += y.row(t)[i];
  }
}

void exact_queue::scale(tensor x, float factor) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t i = 0; i < x.cols; ++i) x.row(t)[i] *= factor;
  }
}

void exact_queue::soft_cap(tensor x, float cap) {
  for (std::size_t t = 0; t < x.rows; ++t) {
    for (std::size_t i = 0; i < x.cols; ++i)
      x.row(t)[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x.row(t)[i]) / cap));
  }
}

void exact_queue::gather(tensor x, std::span<const std::uint32_t> rows, tensor out) {
  for (std::size_t i = 0; i < rows.size(); ++i) std::copy_n(x.row(rows[i]), x.cols, out.row(i));
}

void exact_queue::scatter_add(tensor y, std::span<const std::uint32_t> rows, std::span<const float> weights,
                              tensor x) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t c = 0; c < x.cols; ++c) x.row(rows[i])[c] += weights[i] * y.row(i)[c];
  }
}

void exact_queue::choose(tensor logits, std::span<const token_choice> how, std::span<chosen_token> out) {
  for (std::size_t i = 0; i < how.size(); ++i)
    out[i] = choose_token({logits.row(how[i].row), logits.cols}, how[i]);
}

void exact_queue::checksum(std::span<const device_bytes> blocks, std::size_t bytes,
                           std::span<std::uint64_t> out) {
  for (std::size_t i = 0; i < blocks.size(); ++i) out[i] = checksum64({blocks[i].at, bytes});
}

void exact_queue::upload(std::span<const float> from, float* to) {
  std::memcpy(to, from.data(), from.size_bytes());
}

void exact_queue::download(const float* from, std::span<float> to) {
  std::memcpy(to.data(), from, to.size_bytes());
}

}  // namespace mooncaf
