#pragma once
// The canonical layout of a KV block: [layer][kv_head][K|V][token][head_dim], or
// [layer][kv_head][token][head_dim] where values are a part of their keys, or [layer][kv_head][token][K|V][head_dim]
// where both have different sizes (`joined`).
//
// One layer of a block is contiguous, so it can leave while the next layer computes; a head range of a layer
// is contiguous, so a tensor-parallel instance of any degree reads just its share.
//
// Where a device has memory of its own, its blocks are so; the host's (pages) may be in another order:
// `page_order`, `kv_layout::page`.

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/block_pieces.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/int4_row.hpp"
#include "runtime/base/int8_row.hpp"
#include "runtime/base/words.hpp"

namespace mooncaf {

/// Number format of cached keys and values. A row is written once, as its token is computed, and every reader, tier and path
/// has those bytes: what is rounded in `int8` is rounded for all, so that tokens do not depend on where a block was.
enum class kv_dtype : std::uint8_t {
  f16 = 1,
  f32 = 2,
  int8 = 3,  ///< `int8_row`: a little more than half of f16's bytes
  k8v4 = 4,  ///< keys in `int8_row`, which they need, and values in `int4_row`: two fifths
};

constexpr auto words_of(kv_dtype) noexcept {
  using enum kv_dtype;
  return words<kv_dtype, 4>{{{f16, "f16"}, {f32, "f32"}, {int8, "int8"}, {k8v4, "k8v4"}}};
}

/// Order of a page: a block in the host's memory (L2), beside a device that has memory of its own. In the
/// page-first ones it is one piece of memory, and so one object for SSD and network without a copy.
enum class page_order : std::uint8_t {
  /// [layer][kv_head][K|V][token][head_dim], as on the device: a layer of a page is one copy.
  page_first_direct = 0,
  /// [token][layer][kv_head][K|V][head_dim]: a run of tokens is one piece, all layers of it; a layer of a
  /// page
  /// is a copy of as many rows of `head_dim` as there are tokens, heads, keys and values.
  page_first = 1,
  /// A layer of `kv_layout::layer_group` blocks is one piece, [block][kv_head][K|V][token][head_dim], and the
  /// next layer of all of them lies behind it: a layer of a page is one copy, a page as many pieces as there
  /// are layers, which SSD gets gathered and network one by one.
  layer_first = 2,
};

constexpr auto words_of(page_order) noexcept {
  using enum page_order;
  return words<page_order, 3>{
      {{page_first_direct, "page_first_direct"}, {page_first, "page_first"}, {layer_first, "layer_first"}}};
}

/// Bytes from one to the next in memory; a row of `head_dim` numbers is in one piece.
struct page_strides {
  std::size_t layer = 0, plane = 0, token = 0;

  constexpr std::size_t offset(std::uint32_t at_layer, std::size_t at_plane,
                               std::uint32_t at_token) const noexcept {
    return at_layer * layer + at_plane * plane + at_token * token;
  }
};

/// Shape of one KV block. Two nodes may share blocks only if `fingerprint` agrees.
struct kv_layout {
  std::uint32_t n_layers = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 64;
  kv_dtype dtype = kv_dtype::f16;
  bool shared = false;  ///< values are read out of their keys' rows, and have none (latent attention)
  page_order pages = page_order::page_first_direct;
  /// KV heads of a block of which these are some, one behind the other: a rank's share, whose offsets and page count from
  /// its first head. 0: they are all. Only with `page_first_direct`.
  std::uint32_t block_heads = 0;

  static constexpr std::uint32_t version = 1;  ///< Bump when the order of dimensions changes.
  /// Blocks in a group of `layer_first`, layers together: long runs, and little memory left over at its end.
  static constexpr std::uint32_t layer_group = 16;

  /// A head's key of one token.
  constexpr std::size_t key_bytes() const noexcept {
    if (dtype == kv_dtype::int8 || dtype == kv_dtype::k8v4) return int8_row::bytes(head_dim);
    return head_dim * (dtype == kv_dtype::f16 ? 2 : 4);
  }
  constexpr std::size_t value_bytes() const noexcept {
    return dtype == kv_dtype::k8v4 ? int4_row::bytes(head_dim) : key_bytes();
  }
  /// Whether a key and its value, being of two sizes, are one row: planes of one size are what copies are made of.
  constexpr bool joined() const noexcept { return dtype == kv_dtype::k8v4 && !shared; }
  /// Of one token of one plane.
  constexpr std::size_t row_bytes() const noexcept { return key_bytes() + (joined() ? value_bytes() : 0); }
  /// Bytes of one plane: [block_tokens] rows, of the keys or the values of one head, or of both.
  constexpr std::size_t plane_bytes() const noexcept { return block_tokens * row_bytes(); }
  constexpr std::size_t head_planes() const noexcept { return shared || joined() ? 1 : 2; }
  /// Planes of one layer of a block, one behind the other: keys and values of each head.
  constexpr std::size_t planes() const noexcept { return head_planes() * n_kv_heads; }
  /// From a key to its value.
  constexpr std::size_t value_offset() const noexcept {
    return shared ? 0 : joined() ? key_bytes() : plane_bytes();
  }
  /// Bytes of one layer of a block: [planes, block_tokens, row].
  constexpr std::size_t layer_bytes() const noexcept { return planes() * plane_bytes(); }
  /// From a layer to the next.
  constexpr std::size_t layer_stride() const noexcept {
    return head_planes() * (block_heads != 0 ? block_heads : n_kv_heads) * plane_bytes();
  }
  constexpr std::size_t block_bytes() const noexcept { return n_layers * layer_bytes(); }
  /// From the first byte of a page to the end of the last: of some heads, others' lie between.
  constexpr std::size_t page_span() const noexcept {
    return n_layers == 0 ? 0 : (n_layers - 1) * layer_stride() + layer_bytes();
  }
  constexpr std::size_t bytes_per_token() const noexcept { return block_bytes() / block_tokens; }

  /// Offset inside the block of row `token` of head `head` in layer `layer`; `value` picks V instead of K.
  constexpr std::size_t offset(std::uint32_t layer, std::uint32_t head, bool value,
                               std::uint32_t token) const noexcept {
    return layer * layer_stride() + head * head_planes() * plane_bytes() + (value ? value_offset() : 0) +
           token * row_bytes();
  }

  /// Where rows lie in a page: row `token` of plane `plane` (see `planes`) of a layer.
  constexpr page_strides page() const noexcept {
    if (pages == page_order::page_first) return {planes() * row_bytes(), row_bytes(), bytes_per_token()};
    const auto layer = pages == page_order::layer_first ? pieces().stride() : layer_stride();
    return {layer, plane_bytes(), row_bytes()};
  }
  /// A block of these heads alone, as a rank with memory of its own has it.
  constexpr kv_layout compact() const noexcept {
    auto own = *this;
    own.block_heads = 0;
    return own;
  }
  /// How pages lie in the host's memory.
  constexpr block_pieces pieces() const noexcept {
    if (pages == page_order::layer_first) return {layer_bytes(), n_layers, layer_group};
    return {block_bytes()};
  }

  constexpr std::size_t blocks_for(std::size_t tokens) const noexcept {
    return (tokens + block_tokens - 1) / block_tokens;
  }

  friend constexpr bool operator==(const kv_layout&, const kv_layout&) noexcept = default;
  friend std::string to_string(const kv_layout& l) {
    return std::to_string(l.n_layers) + " layers x " + std::to_string(l.n_kv_heads) + " KV heads x " +
           std::to_string(l.head_dim) + " dims, blocks of " + std::to_string(l.block_tokens) + " tokens, " +
           std::string{to_string(l.dtype)} + ", layout v" + std::to_string(version) +
           (l.shared ? ", values in their keys" : "") +
           (l.pages == page_order::page_first    ? ", pages by token"
            : l.pages == page_order::layer_first ? ", pages by layer"
                                                 : "");
  }
};

}  // namespace mooncaf
