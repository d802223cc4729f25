#pragma once
// What a queue keeps for its operations: tables that the host fills and kernels read, and scratch memory that
// kernels leave results in for the next. Each class serves one operation and owns both sides of its tables.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/cuda/device_array.hpp"
#include "gpu/cuda/kernel_params.hpp"
#include "gpu/device.hpp"

namespace mooncaf::cuda {

/// The input of a product, halved: rows of 16-bit floats, each with a scale.
struct halved_rows {
  explicit halved_rows(const room_source& rooms) : values(rooms), scales(rooms) {}

  device_room<std::uint16_t> values;
  device_room<float> scales;
};

/// How far rows are turned: their positions, and the frequency of each pair of dimensions.
struct rotation_tables {
  explicit rotation_tables(const room_source& rooms) : positions(rooms), frequencies(rooms) {}

  device_table<std::int32_t> positions;
  device_table<float> frequencies;
};

/// Rows that are gathered or scattered, and the weights of the latter.
struct move_tables {
  explicit move_tables(const room_source& rooms) : rows(rooms), weights(rooms) {}

  device_table<std::uint32_t> rows;
  device_table<float> weights;
};

/// Where the keys and values of each row go: its block, and the offset within the block's planes.
class kv_write_tables {
 public:
  explicit kv_write_tables(const room_source& rooms) : device_blocks_(rooms), device_offsets_(rooms) {}

  /// Sets the tables of `p`. Rows of no sequence go nowhere.
  void put(stream& on, const kv_layout& layout, std::size_t rows, std::span<const attention_seq> seqs,
           kv_write_params& p);

 private:
  std::vector<std::byte*> blocks_;
  std::vector<std::uint32_t> offsets_;
  device_table<std::byte*> device_blocks_;
  device_table<std::uint32_t> device_offsets_;
};

/// What the sequences of an attention call come to: tiles of rows that a block of threads computes, the
/// blocks that they read, and sums of splits that are computed apart.
class attention_plan {
 public:
  explicit attention_plan(const room_source& rooms)
      : device_tiles_(rooms), device_blocks_(rooms), device_contexts_(rooms), sums_(rooms), peaks_(rooms) {}

  /// Plans a call. @param group  heads of q that share one of k. @param tile_rows  of (token, head of the
  /// group)
  void make(std::span<const attention_seq> seqs, std::size_t rows, std::uint32_t group,
            std::uint32_t tile_rows);
  std::uint32_t tiles() const noexcept { return static_cast<std::uint32_t>(tiles_.size()); }
  /// Tokens of the longest context.
  std::uint32_t longest() const noexcept { return longest_; }

  /// Sets the tables of `p`.
  void put(stream& on, attention_params& p);
  /// Makes room for the results of `splits` that are computed apart, and sets it in `p`.
  void split(std::size_t splits, attention_params& p);
  /// Puts the tokens of context of each row, which tell how many splits it has; 0 for a row of no sequence.
  const std::uint32_t* put_contexts(stream& on) { return device_contexts_.put(on, contexts_); }

 private:
  std::vector<attention_tile> tiles_;
  std::vector<const std::byte*> blocks_;
  std::vector<std::uint32_t> contexts_;
  std::uint32_t longest_ = 0;
  device_table<attention_tile> device_tiles_;
  device_table<const std::byte*> device_blocks_;
  device_table<std::uint32_t> device_contexts_;
  device_room<float> sums_;
  device_room<float> peaks_;
};

/// How tokens are chosen, row by row, and what was chosen.
class choice_tables {
 public:
  explicit choice_tables(const room_source& rooms)
      : device_rows_(rooms), device_edits_(rooms), raw_(rooms), tops_(rooms), chosen_(rooms) {}

  /// Sets the tables of `p`, and the room for what is chosen.
  void put(stream& on, std::span<const token_choice> how, choose_params& p);
  /// Downloads what the launch with `p` has chosen, and the likeliest tokens of the rows that ask for them.
  void take(stream& on, const choose_params& p, std::span<const token_choice> how,
            std::span<chosen_token> out);

 private:
  std::vector<row_choice> rows_;
  std::vector<logit_edit> edits_;  // of all rows, one after another
  device_table<row_choice> device_rows_;
  device_table<logit_edit> device_edits_;
  device_room<float> raw_;  // logits before their edits
  device_room<candidate> tops_;
  device_room<chosen_token> chosen_;
};

/// Blocks whose checksums are taken, and the checksums.
class checksum_tables {
 public:
  explicit checksum_tables(const room_source& rooms) : device_blocks_(rooms), sums_(rooms) {}

  /// Sets the table of `p`, and the room for the sums.
  void put(stream& on, std::span<const device_bytes> blocks, checksum_params& p);

 private:
  std::vector<const std::byte*> blocks_;
  device_table<const std::byte*> device_blocks_;
  device_room<std::uint64_t> sums_;
};

}  // namespace mooncaf::cuda
