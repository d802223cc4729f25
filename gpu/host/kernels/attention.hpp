// Attention of some query rows over one KV head's tiles.
// A body of kernel_set.hpp, compiled once per instruction set: no include guard, no namespace of its own.
//
// Products run on 16-bit integers, twice as fast as on f32: queries, keys and values get one scale per row (a
// key's or value's depends on itself alone), weights of the softmax one per row and tile. With at most 12.5
// bits a factor no sum of 64 products overflows, and what rounding adds stays below that of f16 keys and
// values.
//
// Tiles are 64 tokens at absolute positions, wherever blocks begin. A row is folded over its tiles in
// ascending order and skips those it cannot see, so nothing but its own context decides its bits.

constexpr std::size_t key_tile = 64;

/// Largest integer whose square may be summed `n` times.
inline float integer_limit(std::size_t n) {
  return std::min(32767.0f, std::floor(std::sqrt(2147483647.0f / static_cast<float>(n)) * 0.99999f));
}

/// Elements [i, i + 16), of `size` bytes each, as `read` makes them of their bytes; 0 beyond the row's end.
template <std::size_t size, class Read>
MOONCAF_INLINE auto sixteen(const std::byte* row, std::size_t i, std::size_t n, const Read& read) {
  alignas(64) std::byte copy[64];
  const std::byte* from = row + i * size;
  if (i + 16 > n) {
    std::memset(copy, 0, sizeof copy);
    if (i < n) std::memcpy(copy, from, (n - i) * size);
    from = copy;
  }
  return read(from);
}

/// Elements [i, i + 16) of a row of numbers.
template <kv_form Type>
MOONCAF_INLINE v16 elements(const std::byte* row, std::size_t i, std::size_t n) {
  return sixteen < Type == kv_form::f16 ? 2 : 4 > (row, i, n, [](const std::byte* from) {
                                                if constexpr (Type == kv_form::f16) return load_half(from);
                                                else return load(reinterpret_cast<const float*>(from));
                                              });
}

/// Asks for a row that is needed soon: contexts lie in memory that no cache holds.
MOONCAF_INLINE void prefetch_row(const std::byte* row, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
}

struct integer_scale {
  float scale;    ///< value of 1
  float inverse;  ///< 0 for a row of zeros

  integer_scale(float top, float limit)
      : scale(top > 1e-30f ? top * (1.0f / limit) : 0.0f), inverse(top > 1e-30f ? limit / top : 0.0f) {}
};

/// A row of keys, values or a query as integers and the value of 1, its numbers held in registers. `Vectors` = dim / 16;
/// 0 where the row is read again instead.
template <kv_form Type, unsigned Vectors>
struct integer_row {
  v16 held[Vectors ? Vectors : 1];
  const std::byte* row;
  std::size_t n;
  integer_scale by{0, 1};

  MOONCAF_INLINE integer_row(const std::byte* from, std::size_t elements_in_row, std::size_t vectors,
                             float limit)
      : row(from), n(elements_in_row) {
    for (unsigned i = 0; i < Vectors; ++i) held[i] = elements<Type>(row, 16 * i, 16 * Vectors);
    v16 peak{};
    for (std::size_t i = 0; i < (Vectors ? Vectors : vectors); ++i) peak = max(peak, magnitude(number(i)));
    by = {largest(peak), limit};
  }
  MOONCAF_INLINE float scale() const { return by.scale; }
  MOONCAF_INLINE i16x at(std::size_t i) const { return rounded(number(i) * splat(by.inverse)); }

 private:
  MOONCAF_INLINE v16 number(std::size_t i) const {
    return Vectors ? held[i] : elements<Type>(row, 16 * i, n);
  }
};

/// A row of `int8_row` has them already.
template <unsigned Vectors>
struct integer_row<kv_form::int8, Vectors> {
  const std::byte* row;
  std::size_t n;

  MOONCAF_INLINE integer_row(const std::byte* from, std::size_t elements_in_row, std::size_t, float)
      : row(from), n(Vectors ? 16 * Vectors : elements_in_row) {}
  MOONCAF_INLINE float scale() const { return int8_row::scale_of(row); }
  MOONCAF_INLINE i16x at(std::size_t i) const {
    return sixteen<1>(row + int8_row::header_bytes, 16 * i, n,
                      [](const std::byte* from) { return load_bytes(from); });
  }
};

/// A row of `int4_row`, too: they are its integers times their group's multiplier.
template <unsigned Vectors>
struct integer_row<kv_form::int4, Vectors> {
  const std::byte* row;
  const std::byte* integers;
  std::size_t n;

  MOONCAF_INLINE integer_row(const std::byte* from, std::size_t elements_in_row, std::size_t, float)
      : row(from),
        integers(from + int4_row::header_bytes(Vectors ? 16 * Vectors : elements_in_row)),
        n(Vectors ? 16 * Vectors : elements_in_row) {}
  MOONCAF_INLINE float scale() const { return int4_row::scale_of(row); }
  MOONCAF_INLINE i16x at(std::size_t i) const {
    if (16 * i >= n) return i16x{};
    return load_nibbles(integers + 8 * i) * int4_row::multiplier_of(row, 16 * i);
  }
};

/// A row as pairs (i, i + 16) within each 32 elements. @returns its scale.
template <kv_form Type, unsigned Vectors>
MOONCAF_INLINE float pair_row(const std::byte* row, std::size_t n, std::size_t dim, float limit,
                              std::int32_t* out) {
  const integer_row<Type, Vectors> v{row, n, dim / 16, limit};
  for (std::size_t i = 0; i < (Vectors ? Vectors : dim / 16); i += 2)
    store_pairs(out + 8 * i, pair(v.at(i), v.at(i + 1)));
  return v.scale();
}

/// What one task works on; all in the caller's scratch memory.
struct attention_space {
  std::size_t dim;        ///< head_dim rounded up to 32
  std::int32_t* keys;     ///< [dim / 2][64]: pairs of dimensions, keys side by side
  std::int32_t* values;   ///< [32][dim]: pairs of keys (k, k + 16) within each 32, dimensions side by side
  float* key_scale;       ///< [64]
  float* value_scale;     ///< [64]
  std::int32_t* queries;  ///< [rows][dim / 2]
  float* query_scale;     ///< [rows], times the softmax's scale and log2(e)
  float* peak;            ///< [rows]: largest score so far, as an exponent of 2
  float* total;           ///< [rows]: sum of weights
  float* sums;            ///< [rows][dim]: weighted sum of values
  std::int32_t* staging;  ///< [16][dim / 2]: keys on their way to be transposed

  attention_space(float* at, std::size_t head_dim, std::size_t rows) : dim((head_dim + 31) / 32 * 32) {
    const auto take = [&](std::size_t n) { return std::exchange(at, at + (n + 15) / 16 * 16); };
    const auto words = [&](std::size_t n) { return reinterpret_cast<std::int32_t*>(take(n)); };
    keys = words(dim / 2 * key_tile);
    values = words(key_tile / 2 * dim);
    key_scale = take(key_tile);
    value_scale = take(key_tile);
    queries = words(rows * dim / 2);
    query_scale = take(rows);
    peak = take(rows);
    total = take(rows);
    sums = take(rows * dim);
    staging = words(16 * dim / 2);
  }
};

/// Keys [start, start + count) of the task's context, transposed. Lanes beyond `count` get a scale of 0.
template <kv_form Type, unsigned Vectors>
void load_keys(const attention_task& task, std::uint32_t start, std::size_t count, const attention_space& s) {
  const std::size_t n = task.layout->head_dim, words = s.dim / 2, bytes = task.layout->row_bytes();
  const float limit = integer_limit(n);
  std::memset(s.key_scale, 0, key_tile * sizeof(float));
  for (std::size_t t = 0; t < count; t += 16) {
    const auto some = std::min<std::size_t>(16, count - t);
    for (std::size_t k = 0; k < some; ++k) {
      const auto position = start + static_cast<std::uint32_t>(t + k);
      const auto* row = task.row(position, false);
      prefetch_row(task.row(position, true), bytes);
      s.key_scale[t + k] = pair_row<Type, Vectors>(row, n, s.dim, limit, s.staging + k * words);
    }
    if (some < 16) std::memset(s.staging + some * words, 0, (16 - some) * words * sizeof(std::int32_t));
    for (std::size_t w = 0; w < words; w += 16)
      transpose(s.staging + w, words, s.keys + w * key_tile + t, key_tile);
  }
}

/// The same for values, which stay in order; pairs of keys lie side by side.
template <kv_form Type, unsigned Vectors>
void load_values(const attention_task& task, std::uint32_t start, std::size_t count,
                 const attention_space& s) {
  const std::size_t n = task.layout->head_dim, vectors = Vectors ? Vectors : s.dim / 16;
  const std::size_t bytes = task.layout->row_bytes();
  const float limit = integer_limit(key_tile);
  std::memset(s.value_scale, 0, key_tile * sizeof(float));
  const auto row = [&](std::size_t k) { return task.row(start + static_cast<std::uint32_t>(k), true); };
  const bool ahead = start + 2 * key_tile <= task.first_position + task.tokens;
  for (std::size_t t = 0; t < count; t += 32) {
    for (std::size_t k = t; k < t + 16; ++k) {
      auto* out = s.values + (k - t / 2) * s.dim;
      if (k >= count) {
        std::memset(out, 0, s.dim * sizeof(std::int32_t));
        continue;
      }
      if (ahead) {
        prefetch_row(task.row(start + key_tile + static_cast<std::uint32_t>(k), false), bytes);
        prefetch_row(task.row(start + key_tile + static_cast<std::uint32_t>(k) + 16, false), bytes);
      }
      const integer_row<Type, Vectors> low{row(k), n, vectors, limit};
      s.value_scale[k] = low.scale();
      if (k + 16 >= count) {
        for (std::size_t i = 0; i < vectors; ++i) store_pairs(out + 16 * i, pair(low.at(i), i16x{}));
        continue;
      }
      const integer_row<Type, Vectors> high{row(k + 16), n, vectors, limit};
      s.value_scale[k + 16] = high.scale();
      for (std::size_t i = 0; i < vectors; ++i) store_pairs(out + 16 * i, pair(low.at(i), high.at(i)));
    }
  }
}

void load_tile(const attention_task& task, std::uint32_t start, std::size_t count, const attention_space& s) {
  const auto load_rows = [&]<kv_form Keys, kv_form Values, unsigned Vectors>() {
    load_keys<Keys, Vectors>(task, start, count, s);
    load_values<Values, Vectors>(task, start, count, s);
  };
  const auto load_as = [&]<kv_form Keys, kv_form Values>() {
    const auto dim = task.layout->head_dim;
    if (dim == 64) load_rows.template operator()<Keys, Values, 4>();
    else if (dim == 128) load_rows.template operator()<Keys, Values, 8>();
    else load_rows.template operator()<Keys, Values, 0>();
  };
  using enum kv_form;
  switch (task.layout->dtype) {
    case kv_dtype::f32:
      return load_rows.template operator()<f32, f32, 0>();
    case kv_dtype::f16:
      return load_as.template operator()<f16, f16>();
    case kv_dtype::int8:
      return load_as.template operator()<int8, int8>();
    case kv_dtype::k8v4:
      if (task.layout->shared) return load_as.template operator()<int8, int8>();
      return load_as.template operator()<int8, int4>();
  }
}

/// Integer products of `Rows` query rows with the 64 keys. Those that the tile lacks give anything.
template <unsigned Rows>
MOONCAF_INLINE void weigh(const attention_space& s, std::size_t row, i16x (&dots)[Rows][4]) {
  const auto words = s.dim / 2;
  const std::int32_t* q = s.queries + row * words;
  for (unsigned i = 0; i < 4; i += vector_block) {
    i16x acc[Rows][vector_block] = {};
    for (std::size_t w = 0; w < words; ++w) {
      i16x k[vector_block];
      for (unsigned j = 0; j < vector_block; ++j) k[j] = load_pairs(s.keys + w * key_tile + 16 * (i + j));
      for (unsigned r = 0; r < Rows; ++r) {
        for (unsigned j = 0; j < vector_block; ++j) acc[r][j] = dot2(acc[r][j], q[r * words + w], k[j]);
      }
    }
    for (unsigned r = 0; r < Rows; ++r) {
      for (unsigned j = 0; j < vector_block; ++j) dots[r][i + j] = acc[r][j];
    }
  }
}

/// How a tile enters the sums of a row: sums * decay + integers * scale.
struct fold {
  float decay;
  float scale;
};

/// Which positions of a tile a row sees, and how their scores are capped.
struct sight {
  std::int32_t begin;  ///< 0 or less: from the tile's first on
  std::int32_t end;
  float softcap;  ///< in exponents of 2; 0: none
};

/// One row's share of the online softmax over a tile: `weights` become pairs as the values are paired.
MOONCAF_INLINE fold soften(const attention_space& s, std::size_t row, const i16x (&dots)[4],
                           const sight& seen, std::int32_t* weights) {
  const v16 hidden = splat(-std::numeric_limits<float>::infinity());
  const i16x lanes = lane_numbers();
  const v16 scale = splat(s.query_scale[row]);
  v16 w[4];
  for (int i = 0; i < 4; ++i) {
    v16 score = to_float(dots[i]) * (scale * load(s.key_scale + 16 * i));
    if (seen.softcap != 0) score = capped(score, seen.softcap);
    w[i] = choose(lanes < seen.end - 16 * i, score, hidden);
    if (seen.begin > 0) w[i] = choose(lanes < seen.begin - 16 * i, hidden, w[i]);
  }
  const float highest = std::max(s.peak[row], largest(max(max(w[0], w[1]), max(w[2], w[3]))));
  const float decay = first(power_of_two(splat(s.peak[row] - highest)));
  for (auto& x : w) x = power_of_two(x - splat(highest));
  s.peak[row] = highest;
  s.total[row] = s.total[row] * decay + sum((w[0] + w[1]) + (w[2] + w[3]));
  for (int i = 0; i < 4; ++i) w[i] = w[i] * load(s.value_scale + 16 * i);
  const float top = largest(max(max(w[0], w[1]), max(w[2], w[3])));
  const float limit = integer_limit(key_tile);
  const v16 inverse = splat(top > 1e-30f ? limit / top : 0.0f);
  for (int i = 0; i < 4; i += 2)
    store_pairs(weights + 8 * i, pair(rounded(w[i] * inverse), rounded(w[i + 1] * inverse)));
  return {decay, top > 1e-30f ? top / limit : 0.0f};
}

/// Folds the weighted values of `pairs` pairs of keys into columns [c, c + 16 Vectors) of the rows' sums.
template <unsigned Rows, unsigned Vectors>
MOONCAF_INLINE void gather(const attention_space& s, std::size_t row, const std::int32_t (&weights)[Rows][32],
                           const fold (&folds)[Rows], std::size_t pairs, std::size_t c) {
  i16x acc[Rows][Vectors] = {};
  for (std::size_t k = 0; k < pairs; ++k) {
    i16x v[Vectors];
    for (unsigned i = 0; i < Vectors; ++i) v[i] = load_pairs(s.values + k * s.dim + c + 16 * i);
    for (unsigned r = 0; r < Rows; ++r) {
      for (unsigned i = 0; i < Vectors; ++i) acc[r][i] = dot2(acc[r][i], weights[r][k], v[i]);
    }
  }
  for (unsigned r = 0; r < Rows; ++r) {
    float* to = s.sums + (row + r) * s.dim + c;
    for (unsigned i = 0; i < Vectors; ++i) {
      store(to + 16 * i,
            fma(to_float(acc[r][i]), splat(folds[r].scale), load(to + 16 * i) * splat(folds[r].decay)));
    }
  }
}

template <unsigned Rows>
void fold_tile(const attention_task& task, const attention_space& s, std::size_t row, std::uint32_t start,
               std::size_t count) {
  i16x dots[Rows][4];
  weigh<Rows>(s, row, dots);
  std::int32_t weights[Rows][32];
  fold folds[Rows];
  for (unsigned r = 0; r < Rows; ++r) {
    const auto position = task.first_position + static_cast<std::uint32_t>((row + r) / task.group);
    const auto end = static_cast<std::int32_t>(position + 1 - start);
    const auto begin = task.window != 0 ? end - static_cast<std::int32_t>(task.window) : 0;
    folds[r] = soften(s, row + r, dots[r], {begin, end, task.softcap * 1.44269504088896341f}, weights[r]);
  }
  const std::size_t pairs = count > 32 ? 32 : 16;
  std::size_t c = 0;
  for (; c + 16 * vector_block <= s.dim; c += 16 * vector_block)
    gather<Rows, vector_block>(s, row, weights, folds, pairs, c);
  if (c < s.dim) gather<Rows, 2>(s, row, weights, folds, pairs, c);
}

// Goes through the context tile by tile, all rows together, since unpacking a tile costs more than one row's
// products. Rows are folded five at a time: so many sums fit the registers.
void attention(const attention_task& task, float* scratch) {
  const auto& layout = *task.layout;
  const std::size_t rows = std::size_t{task.tokens} * task.group;
  const attention_space s{scratch, layout.head_dim, rows};
  const float limit = integer_limit(layout.head_dim);
  for (std::size_t r = 0; r < rows; ++r) {
    const float* q = task.q + r / task.group * task.q_stride + r % task.group * layout.head_dim;
    s.query_scale[r] = pair_row<kv_form::f32, 0>(reinterpret_cast<const std::byte*>(q), layout.head_dim,
                                                 s.dim, limit, s.queries + r * s.dim / 2) *
                       (task.scale * 1.44269504088896341f);
    // A sink is a score that is there before the first tile.
    const bool sink = task.sinks != nullptr;
    s.peak[r] =
        sink ? task.sinks[r % task.group] * 1.44269504088896341f : -std::numeric_limits<float>::infinity();
    s.total[r] = sink ? 1.0f : 0.0f;
  }
  std::memset(s.sums, 0, rows * s.dim * sizeof(float));

  const auto end = task.first_position + task.tokens;  // no row here sees keys at or after this
  // Nor keys before the first row's window. Tiles begin at multiples of their size, whatever the window.
  const auto seen =
      task.window != 0 && task.first_position >= task.window ? task.first_position + 1 - task.window : 0;
  for (std::uint32_t start = seen / key_tile * key_tile; start < end; start += key_tile) {
    const auto count = std::min<std::size_t>(key_tile, end - start);
    load_tile(task, start, count, s);
    std::size_t r = start > task.first_position ? std::size_t{start - task.first_position} * task.group : 0;
    // Rows whose window begins behind the tile take nothing of it.
    const auto last =
        task.window == 0
            ? rows
            : std::min(rows, (std::uint64_t{start} + key_tile - 1 + task.window - task.first_position) *
                                 task.group);
    for (; r + row_block <= last; r += row_block) fold_tile<row_block>(task, s, r, start, count);
    switch (last - r) {
      case 5:
        fold_tile<5>(task, s, r, start, count);
        break;
      case 4:
        fold_tile<4>(task, s, r, start, count);
        break;
      case 3:
        fold_tile<3>(task, s, r, start, count);
        break;
      case 2:
        fold_tile<2>(task, s, r, start, count);
        break;
      case 1:
        fold_tile<1>(task, s, r, start, count);
        break;
      default:
        break;
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    float* out = task.out + r / task.group * task.out_stride + r % task.group * layout.head_dim;
    const float inverse = 1.0f / s.total[r];
    for (std::uint32_t d = 0; d < layout.head_dim; ++d) out[d] = s.sums[r * s.dim + d] * inverse;
  }
}
