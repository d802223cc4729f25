#pragma once
// The parameters of kernels: one plain struct each, equal on both sides of a launch. Pointers are device
// addresses.

#include <cstddef>
#include <cstdint>

#include "gpu/kv_form.hpp"
#include "gpu/token_choice.hpp"

namespace mooncaf::cuda {

using mooncaf::kv_form;  // kernels are in no namespace and use this one

/// How a weight matrix lies in device memory: rows one behind the other, each padded to whole chunks with
/// zeros.
enum class weight_form : std::uint32_t {
  nibbles,           ///< 4 bits; scale and minimum per 32 columns
  fives,             ///< 5 bits; scale and minimum per 32 columns
  bytes,             ///< 8 bits; scale and minimum per 32 columns
  bytes_by_sixteen,  ///< 8 bits; scale and minimum per 16 columns
  fp4,               ///< numbers of 4 bits, a sign and E2M1; an exponent of 8 bits per 32 columns
  f16,
  bf16,
  f32,
};

/// Columns that a warp multiplies at a time: 16 for each of the four lanes that share a row.
inline constexpr unsigned chunk_columns = 64;
/// Rows of weights are padded to a multiple of this.
inline constexpr unsigned row_padding = 32;
/// Warps that share the columns of a product, chunks taking turns: part of the order of summation, so that it
/// is the same for one token and for a thousand.
inline constexpr unsigned product_warps = 4;
inline constexpr unsigned product_threads = 32 * product_warps;

struct weight_view {
  /// [rows][chunks][64] in `form`; of `fives` a chunk is 32 bytes with the lowest four bits of each, as
  /// nibbles have them, and 8 bytes with the highest.
  const std::byte* values = nullptr;
  /// [rows][groups] of (scale, minimum); f16 or f32. A weight is scale · quant + minimum. Of `fp4`: of the
  /// exponents e as bytes, a weight being 2^(e - 127) · number. Null for plain forms.
  const std::byte* scales = nullptr;
  weight_form form = weight_form::f32;
  std::uint32_t wide_scales = 0;  ///< 1: scales are f32
  std::uint32_t rows = 0;
  std::uint32_t chunks = 0;
};

struct embed_params {
  weight_view table;
  const std::int32_t* tokens = nullptr;
  float* out = nullptr;
  std::size_t stride = 0;
  std::uint32_t cols = 0;
};

/// out = x / sqrt(mean(x²) + eps) · gain for each of `heads` parts of each row.
struct norm_params {
  const float* x = nullptr;
  const float* gain = nullptr;
  float* out = nullptr;
  std::size_t x_stride = 0;
  std::size_t out_stride = 0;
  std::uint32_t heads = 1;
  std::uint32_t dim = 0;
  float eps = 0;
};

/// Rows of activations as f16, each divided by a power of two that brings its largest value below 2^15.
struct halve_params {
  const float* x = nullptr;
  std::uint16_t* halves = nullptr;  ///< [tokens][chunks][64], zero behind the last column
  float* scale = nullptr;           ///< [tokens]: the divisor of each row
  std::size_t stride = 0;
  std::uint32_t cols = 0;
  std::uint32_t chunks = 0;
};

struct product_params {
  weight_view w;
  const std::uint16_t* x = nullptr;
  const float* x_scale = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  std::size_t out_stride = 0;
  std::uint32_t tokens = 0;
};

/// A product of activations in f32 with weights in `weight_form::f32`.
struct wide_product_params {
  weight_view w;
  const float* x = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
  std::size_t x_stride = 0;
  std::size_t out_stride = 0;
  std::uint32_t cols = 0;
};

struct rope_launch {
  float* x = nullptr;
  const std::int32_t* positions = nullptr;
  const float* inv_freq = nullptr;
  std::size_t stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t half = 0;  ///< of the dimensions that turn
  std::uint32_t neox = 0;
  float scale = 1;
};

inline constexpr unsigned int4_group = 32, int4_multipliers_at = 4;  ///< as `int4_row` has them

/// Where keys and values lie: the sizes of gpu's `kv_layout`, and the layer's place in a block.
struct kv_view {
  std::size_t layer_offset = 0;
  std::uint32_t head_bytes = 0;    ///< from a head's first key to the next head's
  std::uint32_t value_offset = 0;  ///< from a key to its value
  std::uint32_t row_bytes = 0;     ///< from a token's key to the next token's
  std::uint32_t block_tokens = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  kv_form keys = kv_form::f16, values = kv_form::f16;
  std::uint32_t key_header = 0, value_header = 0;  ///< bytes of a row before its integers
  std::uint32_t shared = 0;                        ///< 1: values are their keys
};

struct kv_write_params {
  const float* k = nullptr;
  const float* v = nullptr;
  std::size_t k_stride = 0;
  std::size_t v_stride = 0;
  /// Of each token: its block, and its row's offset inside a plane; null where a row belongs to no sequence.
  std::byte* const* blocks = nullptr;
  const std::uint32_t* row_offsets = nullptr;
  kv_view kv;
};

/// Queries of one sequence that a block of threads takes: rows [first_row, first_row + attention_rows) of its
/// q_tokens · (query heads per KV head).
struct attention_tile {
  std::uint32_t q_begin = 0;
  std::uint32_t q_tokens = 0;
  std::uint32_t kv_tokens = 0;
  std::uint32_t first_block = 0;  ///< in the table of blocks
  std::uint32_t first_row = 0;
};

inline constexpr unsigned attention_warps = 4;
inline constexpr unsigned attention_threads = 32 * attention_warps;
inline constexpr unsigned attention_rows = 16 * attention_warps;
inline constexpr unsigned wide_attention_rows = 16;  ///< of heads of more than 256 dimensions
/// Positions whose softmax is summed up for itself before it joins the total: the order of summation, so that
/// a context may be cut here and nowhere else.
inline constexpr unsigned attention_split = 256;

struct attention_params {
  const float* q = nullptr;
  float* out = nullptr;
  std::size_t q_stride = 0;
  std::size_t out_stride = 0;
  const attention_tile* tiles = nullptr;
  const std::byte* const* blocks = nullptr;
  /// Null: a block of threads takes all splits, one after the other. Else each takes the split of its z, and
  /// leaves [split][token][head][head_dim] sums and [split][token][head][2] peak and total for `combine`.
  float* sums = nullptr;
  float* peaks = nullptr;
  std::uint32_t tokens = 0;  ///< rows of q
  std::uint32_t heads = 0;
  std::uint32_t group = 1;                   ///< query heads per KV head
  float scale = 1;                           ///< of scores, times log2(e)
  std::uint32_t window = ~std::uint32_t{0};  ///< positions that a row sees
  float softcap = 0;                         ///< times log2(e); 0: none
  const float* sinks = nullptr;              ///< [heads]; null: none
  kv_view kv;
};

struct combine_params {
  const float* sums = nullptr;
  const float* peaks = nullptr;
  float* out = nullptr;
  const std::uint32_t* contexts = nullptr;  ///< positions that each row of q sees
  std::size_t out_stride = 0;
  std::uint32_t tokens = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
};

/// out = gate·sigmoid(f(gate))·up: SiLU, or GELU in its tanh form, or clamped as `clamped_swiglu` says.
struct swiglu_params {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
  std::size_t gate_stride = 0;
  std::size_t up_stride = 0;
  std::size_t out_stride = 0;
  std::uint32_t cols = 0;
  std::uint32_t gelu = 0;
  float limit = 0;  ///< 0: not clamped
};

struct add_params {
  float* x = nullptr;
  const float* y = nullptr;
  std::size_t x_stride = 0;
  std::size_t y_stride = 0;
  std::uint32_t cols = 0;
};

/// x = x·factor, or cap·tanh(x / cap) with a cap.
struct bend_params {
  float* x = nullptr;
  std::size_t stride = 0;
  std::uint32_t cols = 0;
  float factor = 1;
  float cap = 0;
};

/// Row i of `packed` is row rows[i] of `sparse`: copied from there, or added to it `weights[i]` times.
struct move_params {
  float* sparse = nullptr;
  float* packed = nullptr;
  const std::uint32_t* rows = nullptr;
  const float* weights = nullptr;  ///< null: copied from there
  std::size_t sparse_stride = 0;
  std::size_t packed_stride = 0;
  std::uint32_t cols = 0;
};

/// `token_choice` of a row.
struct row_choice {
  double u = 0;
  std::uint32_t row = 0;
  std::uint32_t greedy = 0;
  float per_degree = 1;  ///< one by the temperature; 1 if greedy
  float nats = 0;        ///< below the best, that an entry may be
  std::uint32_t top_k = 0;
  float top_p = 1;
  std::uint32_t first_edit = 0;
  std::uint32_t edits = 0;
  std::uint32_t first_top = 0;
  std::uint32_t tops = 0;
  std::uint32_t describe = 0;
};

struct choose_params {
  float* logits = nullptr;
  std::size_t stride = 0;
  const row_choice* choices = nullptr;
  const logit_edit* edits = nullptr;
  float* raw = nullptr;  ///< of each edit: its logit before
  candidate* tops = nullptr;
  chosen_token* out = nullptr;
  std::uint32_t cols = 0;
};

inline constexpr unsigned choice_threads = 1024;

/// Some pieces of memory that go from one place to another; either may be the host's. Addresses and sizes are
/// multiples of 16.
struct piece_move {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint32_t piece_bytes = 0;
  std::uint32_t count = 0;
  std::size_t from_pitch = 0, to_pitch = 0;  ///< bytes from one piece to the next
};

struct carry_params {
  const piece_move* moves = nullptr;
  std::uint32_t count = 0;
  std::uint32_t blocks = 1;  ///< of threads, that share the moves
};

/// Threads that have so much of a slow link's bytes under way that few blocks of them keep it busy.
inline constexpr unsigned carry_threads = 1024;

/// XXH3 of 64 bits (XXH3's specification, "long inputs"), of blocks of the same size.
struct checksum_params {
  const std::byte* const* blocks = nullptr;
  std::uint64_t* out = nullptr;
  std::uint64_t bytes = 0;        ///< a multiple of 64, more than 256
  std::uint64_t secret[24] = {};  ///< at each eighth byte
  std::uint64_t last[8] = {};     ///< for the last stripe
  std::uint64_t merge[8] = {};    ///< for the end
};

inline constexpr unsigned checksum_threads = 256;

/// Division by a number that a launch knows, of numbers below 2^31, without dividing.
/// @source  T. Granlund, P. L. Montgomery, "Division by invariant integers using multiplication", PLDI '94.
struct quotient {
  std::uint32_t divisor = 1;
  std::uint32_t factor = std::uint32_t{1} << 31;  ///< 2^shift / divisor, rounded up
  std::uint32_t shift = 31;
};

/// Where a page's words of 8 bytes lie, and the block's. They are counted in the order in which they are
/// checksummed: that of the page's rows, piece by piece.
struct page_words {
  quotient row;              ///< words of a row of one token
  quotient rows;             ///< of a token that lie beside each other in the page; 1: as in the block
  std::uint32_t tokens = 1;  ///< whose rows lie beside each other in the block instead
  quotient piece;            ///< words of a piece of the page
  std::uint32_t stride = 0;  ///< words from a piece to the next
};

/// KV blocks that go to pages of the host, and the pages' checksums.
struct gather_params {
  checksum_params sums;
  page_words words;
  std::byte* const* pages = nullptr;  ///< their first pieces
  std::uint32_t count = 0;
  std::uint32_t shares = 1;  ///< blocks of threads, that share the KV blocks
};

/// Threads of the kernels that go through rows.
inline constexpr unsigned row_threads = 256;
inline constexpr unsigned combine_threads = 128;

}  // namespace mooncaf::cuda
