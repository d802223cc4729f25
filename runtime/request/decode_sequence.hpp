#pragma once
// The tokens of one answer on their way into KV blocks: which positions are filled, and what full blocks are
// called.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/request/messages.hpp"
#include "runtime/sched/block_hash.hpp"

namespace mooncaf {

/// Changes only between steps: a step reads tokens that stay where they are.
/// @thread  Owned by the decode core; an executor reads it during a step.
class decode_sequence {
 public:
  /// Stands behind the prompt, whose full blocks are named already. @param block_tokens  of one block.
  decode_sequence(const work_order& job, std::uint32_t block_tokens)
      : block_tokens_(block_tokens),
        root_(job.root),
        keys_(job.keys),
        tail_(job.tokens.begin() + static_cast<std::ptrdiff_t>(job.keys.size() * block_tokens),
              job.tokens.end()),
        position_(static_cast<std::uint32_t>(job.tokens.size())) {}

  /// The prompt's first token, which the prefill worker chose.
  void begin(std::int32_t first) noexcept { next_ = first; }
  /// A step wrote `next` into the blocks and chose the token behind it. @returns whether that filled a block,
  /// whose key is the last one now.
  bool append(std::int32_t chosen) {
    tail_.push_back(std::exchange(next_, chosen));
    ++position_;
    if (tail_.size() < block_tokens_) return false;
    keys_.push_back(next_key(keys_.empty() ? root_ : keys_.back(), tail_));
    tail_.clear();
    return true;
  }

  /// The one token that the next step appends.
  std::span<const std::int32_t> next() const noexcept { return {&next_, 1}; }
  /// Tokens in the blocks.
  std::uint32_t position() const noexcept { return position_; }
  /// Of the full blocks, in order.
  const block_keys_t& keys() const noexcept { return keys_; }
  /// Parent of the first block.
  const block_key& root() const noexcept { return root_; }

 private:
  std::uint32_t block_tokens_;
  block_key root_;
  block_keys_t keys_;
  std::vector<std::int32_t> tail_;  ///< of the block that is filling up
  std::int32_t next_ = -1;
  std::uint32_t position_;
};

}  // namespace mooncaf
