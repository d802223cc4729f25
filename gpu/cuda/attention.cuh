#pragma once
// Paged attention on tensor cores with an online softmax.
//
// A warp has sixteen rows, a row being one query head of one token (in wide heads the block has sixteen, and
// each warp a part of their dimensions); the block's four warps share tiles of keys and values, which arrive
// while the tile before them is computed with. The result of a row depends on its own context alone:
// tiles lie at absolute positions, positions that a row does not see add exact zeros, and the sums of each
// `attention_split` positions join the total in order, be it in this kernel or in `combine`.

#include "gpu/cuda/kernel_params.hpp"
#include "gpu/cuda/simt.hpp"

namespace mooncaf::cuda {

using namespace mooncaf::simt;

/// Lower than any score, and finite: its difference to itself is zero.
inline constexpr float no_peak = -1e30f;

/// A softmax under way: the largest score, and the sum of exp2(score - peak).
struct softmax_state {
  float peak;
  float total;
};

/// Factors for the sums of `a` and `b` before they are added; `a` becomes the state of both.
struct join_factors {
  float a;
  float b;
};
MOONCAF_DEVICE join_factors join(softmax_state& a, const softmax_state& b) {
  const float peak = larger(a.peak, b.peak);
  const join_factors f{exponential2(a.peak - peak), exponential2(b.peak - peak)};
  a.total = fused(a.total, f.a, b.total * f.b);
  a.peak = peak;
  return f;
}
MOONCAF_DEVICE float joined(float a, float b, const join_factors& f) { return fused(a, f.a, b * f.b); }

struct eight_numbers {
  float at[8];
};

/// Elements [first, first + 8) of a row that is not of f16.
MOONCAF_DEVICE eight_numbers read_eight(kv_form form, unsigned header, const std::byte* row, unsigned first) {
  eight_numbers out;
  if (form == kv_form::int4) {
    const words2 bytes = load8(row + header + first / 16 * 8);
    const auto multiplier = static_cast<unsigned>(row[int4_multipliers_at + first / int4_group]);
    const float scale = *reinterpret_cast<const float*>(row) * static_cast<float>(multiplier);
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned half = bytes.w[i / 4] >> (8 * (i % 4) + first % 16 / 2) & 15u;
      out.at[i] = scale * static_cast<float>(static_cast<int>(half ^ 8u) - 8);
    }
    return out;
  }
  if (form == kv_form::int8) {
    const float scale = *reinterpret_cast<const float*>(row);
    const words2 bytes = load8(row + header + first);
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const auto whole = static_cast<std::int8_t>(bytes.w[i / 4] >> (8 * (i % 4)) & 0xFFu);
      out.at[i] = scale * static_cast<float>(whole);
    }
    return out;
  }
  MOONCAF_UNROLL
  for (unsigned j = 0; j < 2; ++j) {
    const words4 four = load16(row + 4 * first + 16 * j);
    MOONCAF_UNROLL
    for (unsigned i = 0; i < 4; ++i) out.at[4 * j + i] = float_from_bits(four.w[i]);
  }
  return out;
}

/// A tile of keys or values to shared memory, as f16, zeros behind the context and behind the last dimension.
template <unsigned Dim, unsigned Tile>
MOONCAF_DEVICE void fetch_tile(const attention_params& p, const attention_tile& t, unsigned first, bool value,
                               std::uint16_t* to) {
  constexpr unsigned pieces = Dim / 8, pitch = Dim + 8;
  const kv_form form = value ? p.kv.values : p.kv.keys;
  for (unsigned i = thread_index(); i < Tile * pieces; i += attention_threads) {
    const unsigned position = first + i / pieces, piece = i % pieces;
    std::uint16_t* at = to + i / pieces * pitch + 8 * piece;
    const bool there = position < t.kv_tokens && 8 * piece < p.kv.head_dim;
    const std::byte* from = p.blocks[t.first_block + (there ? position / p.kv.block_tokens : 0)];
    from += p.kv.layer_offset + std::size_t{block_y()} * p.kv.head_bytes + (value ? p.kv.value_offset : 0);
    if (there) from += std::size_t{position % p.kv.block_tokens} * p.kv.row_bytes;
    const unsigned first_element = there ? 8 * piece : 0;
    if (form == kv_form::f16) {
      copy_async16(at, from + 2 * first_element, there);
      continue;
    }
    const eight_numbers numbers =
        there ? read_eight(form, value ? p.kv.value_header : p.kv.key_header, from, first_element)
              : eight_numbers{};
    auto* halves = reinterpret_cast<std::uint32_t*>(at);
    MOONCAF_UNROLL
    for (unsigned j = 0; j < 4; ++j) halves[j] = pack_half2(numbers.at[2 * j], numbers.at[2 * j + 1]);
  }
  commit_async();
}

/// The two rows, of a warp's sixteen, that a lane works on, and how far they see.
struct row_pair {
  bool there[2];
  unsigned token[2];  ///< row of q
  unsigned head[2];
  unsigned position[2];  ///< the last that it sees
};

/// @param first  of the warp's sixteen, counted from the tile's
MOONCAF_DEVICE row_pair rows_of(const attention_params& p, const attention_tile& t, unsigned first) {
  row_pair r;
  const unsigned group = thread_index() % warp_threads / 4;
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned row = t.first_row + first + group + 8 * i;
    r.there[i] = row < t.q_tokens * p.group;
    const unsigned token = r.there[i] ? row / p.group : 0;
    r.token[i] = t.q_begin + token;
    r.head[i] = block_y() * p.group + row % p.group;
    r.position[i] = t.kv_tokens - t.q_tokens + token;
  }
  return r;
}

/// Sixteen dimensions of the warp's queries as a fragment, scaled.
MOONCAF_DEVICE void load_query(const attention_params& p, const row_pair& r, unsigned step,
                               std::uint32_t (&q)[4]) {
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned dim = 16 * step + 2 * (thread_index() % 4) + i / 2 * 8;
    q[i] = 0;
    if (r.there[i % 2] && dim < p.kv.head_dim) {
      const float* at = p.q + r.token[i % 2] * p.q_stride + std::size_t{r.head[i % 2]} * p.kv.head_dim + dim;
      q[i] = pack_half2(at[0] * p.scale, at[1] * p.scale);
    }
  }
}

/// The warp's queries: in registers where there is room for them beside the sums, else read again for each
/// tile.
template <unsigned Dim>
struct queries {
  static constexpr bool kept = Dim <= 128;
  std::uint32_t fragments[kept ? Dim / 16 : 1][4];

  MOONCAF_DEVICE queries(const attention_params& p, const row_pair& r) {
    MOONCAF_UNROLL
    for (unsigned s = 0; kept && s < Dim / 16; ++s) load_query(p, r, s, fragments[kept ? s : 0]);
  }
  MOONCAF_DEVICE void get(const attention_params& p, const row_pair& r, unsigned step,
                          std::uint32_t (&q)[4]) const {
    if constexpr (kept) {
      MOONCAF_UNROLL
      for (unsigned i = 0; i < 4; ++i) q[i] = fragments[step][i];
    } else {
      load_query(p, r, step, q);
    }
  }
};

template <unsigned Dim, unsigned Tile>
MOONCAF_DEVICE void score_tile(const attention_params& p, const row_pair& r, const queries<Dim>& all,
                               const std::uint16_t* keys, float (&scores)[Tile / 8][4]) {
  const unsigned lane = thread_index() % warp_threads;
  MOONCAF_UNROLL
  for (unsigned j = 0; j < Tile / 8; ++j) MOONCAF_UNROLL
  for (unsigned i = 0; i < 4; ++i) scores[j][i] = 0;
  const auto two_steps = [&](unsigned s) {
    std::uint32_t q[2][4];
    all.get(p, r, s, q[0]);
    all.get(p, r, s + 1, q[1]);
    MOONCAF_UNROLL
    for (unsigned j = 0; j < Tile / 8; ++j) {
      const words4 k = load_matrices(keys + (8 * j + lane % 8) * (Dim + 8) + 16 * s + lane / 8 * 8);
      mma_16x8x16(scores[j], q[0], k.w[0], k.w[1]);
      mma_16x8x16(scores[j], q[1], k.w[2], k.w[3]);
    }
  };
  if constexpr (queries<Dim>::kept) {
    MOONCAF_UNROLL
    for (unsigned s = 0; s < Dim / 16; s += 2) two_steps(s);
  } else {
    MOONCAF_ROLLED
    for (unsigned s = 0; s < Dim / 16; s += 2) two_steps(s);
  }
}

/// Turns the scores of a tile into weights: positions that a row does not see are masked, the state takes the rest
/// in, and sums so far are brought to the new peak.
template <unsigned Dim, unsigned Tile>
MOONCAF_DEVICE void weigh_tile(const attention_params& p, const row_pair& r, unsigned first,
                               float (&scores)[Tile / 8][4], softmax_state (&state)[2],
                               float (&sums)[Dim / 8][4]) {
  const unsigned part = thread_index() % 4;
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    float peak = state[i].peak;
    MOONCAF_UNROLL
    for (unsigned j = 0; j < Tile / 8; ++j) MOONCAF_UNROLL
    for (unsigned c = 2 * i; c < 2 * i + 2; ++c) {
      // How far behind the row's own position; huge for those ahead of it.
      const unsigned behind = r.position[i] - (first + 8 * j + 2 * part + c % 2);
      if (p.softcap != 0) scores[j][c] = capped(scores[j][c], p.softcap);
      if (behind >= p.window) scores[j][c] = 2 * no_peak;
      peak = larger(peak, scores[j][c]);
    }
    peak = larger(peak, shuffle_xor(peak, 1));
    peak = larger(peak, shuffle_xor(peak, 2));
    const float factor = exponential2(state[i].peak - peak);
    float total = state[i].total * factor;  // of this lane's positions alone, until the split ends
    MOONCAF_UNROLL
    for (unsigned j = 0; j < Tile / 8; ++j) MOONCAF_UNROLL
    for (unsigned c = 2 * i; c < 2 * i + 2; ++c) total += scores[j][c] = exponential2(scores[j][c] - peak);
    MOONCAF_UNROLL
    for (unsigned d = 0; d < Dim / 8; ++d) MOONCAF_UNROLL
    for (unsigned c = 2 * i; c < 2 * i + 2; ++c) sums[d][c] *= factor;
    state[i] = {peak, total};
  }
}

template <unsigned Dim, unsigned Tile, unsigned Pitch = Dim + 8>
MOONCAF_DEVICE void add_values(const float (&weights)[Tile / 8][4], const std::uint16_t* values,
                               float (&sums)[Dim / 8][4]) {
  const unsigned lane = thread_index() % warp_threads;
  MOONCAF_UNROLL
  for (unsigned t = 0; t < Tile / 16; ++t) {
    const std::uint32_t a[4] = {pack_half2(weights[2 * t][0], weights[2 * t][1]),
                                pack_half2(weights[2 * t][2], weights[2 * t][3]),
                                pack_half2(weights[2 * t + 1][0], weights[2 * t + 1][1]),
                                pack_half2(weights[2 * t + 1][2], weights[2 * t + 1][3])};
    MOONCAF_UNROLL
    for (unsigned d = 0; d < Dim / 8; d += 2) {
      const words4 v = load_matrices_turned(values + (16 * t + lane % 16) * Pitch + 8 * d + lane / 16 * 8);
      mma_16x8x16(sums[d], a, v.w[0], v.w[1]);
      mma_16x8x16(sums[d + 1], a, v.w[2], v.w[3]);
    }
  }
}

/// A split's sums, of the dimensions from `origin` on, go to where `combine` finds them.
template <unsigned Dim>
MOONCAF_DEVICE void leave_split(const attention_params& p, const row_pair& r, unsigned origin, unsigned split,
                                const softmax_state (&state)[2], const float (&sums)[Dim / 8][4]) {
  const unsigned part = thread_index() % 4;
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    if (!r.there[i]) continue;
    const std::size_t row = (std::size_t{split} * p.tokens + r.token[i]) * p.heads + r.head[i];
    float* out = p.sums + row * p.kv.head_dim + origin;
    MOONCAF_UNROLL
    for (unsigned d = 0; d < Dim / 8; ++d) {
      if (origin + 8 * d >= p.kv.head_dim) break;
      out[8 * d + 2 * part] = sums[d][2 * i];
      out[8 * d + 2 * part + 1] = sums[d][2 * i + 1];
    }
    if (part == 0 && origin == 0) {
      p.peaks[2 * row] = state[i].peak;
      p.peaks[2 * row + 1] = state[i].total;
    }
  }
}

/// A split's sums join the total, which lies in `out` itself until the last split divides it.
template <unsigned Dim>
MOONCAF_DEVICE void join_split(const attention_params& p, const row_pair& r, unsigned origin, bool is_first,
                               bool is_last, softmax_state (&total)[2], const softmax_state (&state)[2],
                               const float (&sums)[Dim / 8][4]) {
  const unsigned part = thread_index() % 4;
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    join_factors f{};
    if (is_first) total[i] = state[i];
    else f = join(total[i], state[i]);
    if (!r.there[i]) continue;
    float* out = p.out + r.token[i] * p.out_stride + std::size_t{r.head[i]} * p.kv.head_dim + origin;
    const float scale = is_last ? 1 / total[i].total : 1;
    MOONCAF_UNROLL
    for (unsigned d = 0; d < Dim / 8; ++d) {
      if (origin + 8 * d >= p.kv.head_dim) break;
      MOONCAF_UNROLL
      for (unsigned c = 0; c < 2; ++c) {
        float& at = out[8 * d + 2 * part + c];
        const float sum = is_first ? sums[d][2 * i + c] : joined(at, sums[d][2 * i + c], f);
        at = sum * scale;
      }
    }
  }
}

/// The positions that a block of threads goes through.
struct stretch {
  unsigned begin, end;  ///< empty: none
  bool apart;           ///< of one split alone, whose sums are left for `combine`
};

template <unsigned Rows>
MOONCAF_DEVICE stretch stretch_of(const attention_params& p, const attention_tile& t) {
  const unsigned last_row =
      t.first_row + Rows < t.q_tokens * p.group ? t.first_row + Rows - 1 : t.q_tokens * p.group - 1;
  const unsigned context = t.kv_tokens - t.q_tokens + last_row / p.group + 1;
  const unsigned splits = (context + attention_split - 1) / attention_split;
  const bool apart = p.sums != nullptr;
  const unsigned first_split = apart ? block_z() : 0, last_split = apart ? block_z() + 1 : splits;
  const unsigned end = last_split * attention_split < context ? last_split * attention_split : context;
  return {first_split * attention_split, first_split < splits ? end : 0, apart};
}

/// Begins a row's softmax. A sink is a score that is there before the first split; one lane of a row's four
/// counts it.
MOONCAF_DEVICE void begin_softmax(const attention_params& p, const row_pair& r, bool first_split,
                                  softmax_state (&state)[2]) {
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    state[i] = {no_peak, 0};
    if (p.sinks != nullptr && first_split)
      state[i] = {p.sinks[r.head[i]] * 1.44269504f, thread_index() % 4 == 0 ? 1.0f : 0.0f};
  }
}

/// Ends a split: joins its sums to the total, or leaves them to `combine`, and begins the next split's.
template <unsigned Dim>
MOONCAF_DEVICE void end_split(const attention_params& p, const row_pair& r, unsigned origin, unsigned split,
                              bool apart, bool is_last, softmax_state (&total)[2], softmax_state (&state)[2],
                              float (&sums)[Dim / 8][4]) {
  MOONCAF_UNROLL
  for (unsigned i = 0; i < 2; ++i) {
    state[i].total += shuffle_xor(state[i].total, 1);
    state[i].total += shuffle_xor(state[i].total, 2);
  }
  if (apart) leave_split<Dim>(p, r, origin, split, state, sums);
  else join_split<Dim>(p, r, origin, split == 0, is_last, total, state, sums);
  begin_softmax(p, r, false, state);
  MOONCAF_UNROLL
  for (unsigned d = 0; d < Dim / 8; ++d) MOONCAF_UNROLL
  for (unsigned c = 0; c < 4; ++c) sums[d][c] = 0;
}

/// grid: tiles, KV heads, and splits or 1
template <unsigned Dim, unsigned Tile>
MOONCAF_DEVICE void attend(const attention_params& p, std::uint16_t* keys, std::uint16_t* values) {
  const attention_tile t = p.tiles[block_x()];
  const auto [begin, end, apart] = stretch_of<attention_rows>(p, t);
  if (begin >= end) return;
  const row_pair r = rows_of(p, t, thread_index() / warp_threads * 16);
  const bool busy = t.first_row + thread_index() / warp_threads * 16 < t.q_tokens * p.group;
  const queries<Dim> q(p, r);
  softmax_state total[2] = {}, state[2];
  begin_softmax(p, r, begin == 0, state);
  float sums[Dim / 8][4] = {};
  fetch_tile<Dim, Tile>(p, t, begin, false, keys);
  fetch_tile<Dim, Tile>(p, t, begin, true, values);
  for (unsigned first = begin; first < end; first += Tile) {
    const bool more = first + Tile < end;
    float scores[Tile / 8][4];
    wait_async<1>();
    sync_block();
    if (busy) {
      score_tile<Dim, Tile>(p, r, q, keys, scores);
      weigh_tile<Dim, Tile>(p, r, first, scores, state, sums);
    }
    sync_block();
    if (more) {
      fetch_tile<Dim, Tile>(p, t, first + Tile, false, keys);
      wait_async<1>();
    } else {
      wait_async<0>();
    }
    sync_block();
    if (busy) add_values<Dim, Tile>(scores, values, sums);
    sync_block();
    if (more) fetch_tile<Dim, Tile>(p, t, first + Tile, true, values);
    if (more && (first + Tile) % attention_split != 0) continue;
    end_split<Dim>(p, r, 0, first / attention_split, apart, !more, total, state, sums);
  }
}

/// Partial scores of sixteen rows: each warp's of its own dimensions, as a lane has them.
template <unsigned Tile>
inline constexpr unsigned partial_scores = attention_warps*(Tile / 8) * 4 * warp_threads;

/// The same for heads so wide that no warp has registers for the sums: the four warps have the same sixteen
/// rows, and each a quarter of the dimensions. Scores are the sum of their four parts, as (0 + 1) + (2 + 3).
/// Where values are their keys, a tile is read once, into the two arrays by turns.
template <unsigned Dim, unsigned Tile>
MOONCAF_DEVICE void attend_wide(const attention_params& p, std::uint16_t* keys, std::uint16_t* values,
                                float* partial) {
  constexpr unsigned mine = Dim / attention_warps, pitch = Dim + 8;
  const attention_tile t = p.tiles[block_x()];
  const auto [begin, end, apart] = stretch_of<wide_attention_rows>(p, t);
  if (begin >= end) return;
  const unsigned warp = thread_index() / warp_threads, lane = thread_index() % warp_threads;
  const unsigned origin = warp * mine;
  const row_pair r = rows_of(p, t, 0);
  std::uint32_t q[mine / 16][4];
  MOONCAF_UNROLL
  for (unsigned s = 0; s < mine / 16; ++s) load_query(p, r, origin / 16 + s, q[s]);
  const bool one_plane = p.kv.shared != 0;
  softmax_state total[2] = {}, state[2];
  begin_softmax(p, r, begin == 0, state);
  float sums[mine / 8][4] = {};
  fetch_tile<Dim, Tile>(p, t, begin, false, keys);
  if (!one_plane) fetch_tile<Dim, Tile>(p, t, begin, true, values);
  for (unsigned first = begin; first < end; first += Tile) {
    const bool more = first + Tile < end;
    if (one_plane && more) fetch_tile<Dim, Tile>(p, t, first + Tile, false, values);
    if (one_plane && !more) wait_async<0>();
    else wait_async<1>();
    sync_block();
    float scores[Tile / 8][4] = {};
    MOONCAF_UNROLL
    for (unsigned s = 0; s < mine / 16; s += 2) MOONCAF_UNROLL
    for (unsigned j = 0; j < Tile / 8; ++j) {
      const words4 k = load_matrices(keys + (8 * j + lane % 8) * pitch + origin + 16 * s + lane / 8 * 8);
      mma_16x8x16(scores[j], q[s], k.w[0], k.w[1]);
      mma_16x8x16(scores[j], q[s + 1], k.w[2], k.w[3]);
    }
    MOONCAF_UNROLL
    for (unsigned i = 0; i < Tile / 2; ++i)
      partial[(warp * Tile / 2 + i) * warp_threads + lane] = scores[i / 4][i % 4];
    sync_block();
    MOONCAF_UNROLL
    for (unsigned i = 0; i < Tile / 2; ++i) {
      const float* const from = partial + i * warp_threads + lane;
      constexpr unsigned next = Tile / 2 * warp_threads;
      scores[i / 4][i % 4] = (from[0] + from[next]) + (from[2 * next] + from[3 * next]);
    }
    weigh_tile<mine, Tile>(p, r, first, scores, state, sums);
    if (!one_plane) {
      if (more) {
        fetch_tile<Dim, Tile>(p, t, first + Tile, false, keys);
        wait_async<1>();
      } else {
        wait_async<0>();
      }
      sync_block();
    }
    add_values<mine, Tile, pitch>(scores, (one_plane ? keys : values) + origin, sums);
    sync_block();
    if (one_plane) {
      std::uint16_t* const other = keys;
      keys = values;
      values = other;
    } else if (more) {
      fetch_tile<Dim, Tile>(p, t, first + Tile, true, values);
    }
    if (more && (first + Tile) % attention_split != 0) continue;
    end_split<mine>(p, r, origin, first / attention_split, apart, !more, total, state, sums);
  }
}

}  // namespace mooncaf::cuda

/// Heads of up to DIM dimensions, TILE positions at a time: the two arrays stay below the 48 KiB that a block gets
/// without asking.
#define MOONCAF_ATTENTION(DIM, TILE)                                       \
  MOONCAF_KERNEL(mooncaf_attention_##DIM, mooncaf::cuda::attention_params, \
                 mooncaf::cuda::attention_threads) {                       \
    using namespace mooncaf::cuda;                                         \
    MOONCAF_SHARED(std::uint16_t, keys, TILE*(DIM + 8));                   \
    MOONCAF_SHARED(std::uint16_t, values, TILE*(DIM + 8));                 \
    attend<DIM, TILE>(p, keys, values);                                    \
  }
MOONCAF_ATTENTION(64, 64)
MOONCAF_ATTENTION(128, 64)
MOONCAF_ATTENTION(256, 32)

/// DeepSeek's latents have 576 dimensions.
MOONCAF_KERNEL(mooncaf_attention_640, mooncaf::cuda::attention_params, mooncaf::cuda::attention_threads) {
  using namespace mooncaf::cuda;
  constexpr unsigned dim = 640, tile = 16;
  MOONCAF_SHARED(std::uint16_t, keys, tile * (dim + 8));
  MOONCAF_SHARED(std::uint16_t, values, tile * (dim + 8));
  MOONCAF_SHARED(float, partial, partial_scores<tile>);
  attend_wide<dim, tile>(p, keys, values, partial);
}

/// The splits of each row and head, joined in order. grid: tokens, heads
MOONCAF_KERNEL(mooncaf_combine, mooncaf::cuda::combine_params, mooncaf::cuda::combine_threads) {
  using namespace mooncaf::cuda;
  const unsigned splits = (p.contexts[block_x()] + attention_split - 1) / attention_split;
  for (unsigned dim = thread_index(); dim < p.head_dim; dim += combine_threads) {
    softmax_state total{};
    float sum = 0;
    for (unsigned split = 0; split < splits; ++split) {
      const std::size_t row = (std::size_t{split} * p.tokens + block_x()) * p.heads + block_y();
      const softmax_state state{p.peaks[2 * row], p.peaks[2 * row + 1]};
      const float part = p.sums[row * p.head_dim + dim];
      if (split == 0) {
        total = state;
        sum = part;
      } else {
        sum = joined(sum, part, join(total, state));
      }
    }
    p.out[block_x() * p.out_stride + std::size_t{block_y()} * p.head_dim + dim] = sum * (1 / total.total);
  }
}
