#pragma once
// A grammar at work: the bytes and tokens that may follow an answer so far, found once and kept.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/grammar/automaton.hpp"
#include "runtime/grammar/vocab_trie.hpp"

namespace mooncaf {

/// One bit for each token of the vocabulary.
using token_mask = std::vector<std::uint64_t>;

/// One grammar over one vocabulary, shared by every answer that is held to it.
///
/// A **stack** is a place in the automaton with the places to return to below it; a **configuration** is all
/// stacks that the bytes so far leave possible, in an order that depends on those bytes alone. Stacks,
/// configurations, moves between them and masks are memoised: work that answers have in common is done once,
/// and text within a string, however long, stays in a handful of configurations.
///
/// @thread Any number; a lock is held while something is computed.
class pushdown {
 public:
  /// A place of an answer. Good as long as `epoch` is the pushdown's; see `advance`.
  struct position {
    std::uint64_t epoch = 0;
    std::int32_t config = 0;  ///< -1: the answer has left the grammar
  };

  pushdown(automaton rules, std::shared_ptr<const vocab_trie> vocab, std::span<const std::int32_t> eog_ids);

  /// Moves `at` over the tokens of `answer` from index `from` on; from the beginning if its configuration has
  /// been forgotten. Tokens without text move nothing.
  void advance(position& at, std::span<const std::int32_t> answer, std::size_t from, const tokenizer& text);
  /// The tokens that may come at `at`, the place behind `answer`: all that fit, and the end-of-generation
  /// tokens if the grammar may end or nothing fits.
  std::shared_ptr<const token_mask> mask(position& at, std::span<const std::int32_t> answer,
                                         const tokenizer& text);
  /// The same if it is known already, else null.
  std::shared_ptr<const token_mask> known_mask(const position& at) const;

 private:
  using stack_id = std::uint32_t;  ///< 0: the empty stack, behind the grammar's end
  struct frame {
    std::uint32_t place = 0;
    stack_id below = 0;
  };
  struct configuration {
    std::vector<stack_id> stacks;  ///< with a place that has byte edges on top, or empty
    std::unique_ptr<std::array<std::int32_t, 256>> next;
    std::shared_ptr<const token_mask> mask;
    bool may_end = false;
  };
  /// How tokens fit from a place until its rule ends.
  struct local {
    token_mask tokens;                   ///< that stay inside
    std::vector<std::uint32_t> escapes;  ///< trie nodes where the rule may have ended, with more below
  };
  struct stacks_hash {
    std::size_t operator()(const std::vector<stack_id>& s) const noexcept;
  };

  void forget();
  void renew(position& at, std::span<const std::int32_t> answer, const tokenizer& text);
  void walk(position& at, std::span<const std::int32_t> answer, std::size_t from, const tokenizer& text);
  stack_id push(std::uint32_t place, stack_id below);
  /// Adds the stacks that `stack` reaches without a byte to `out`.
  void expand(stack_id stack, std::vector<stack_id>& out);
  std::int32_t intern(std::vector<stack_id> stacks);
  std::int32_t closure_of(stack_id stack);
  std::int32_t step(std::int32_t config, std::uint8_t byte);
  std::int32_t compute_step(std::int32_t config, std::uint8_t byte);
  /// Sets the bits of the tokens in nodes [begin, end) that fit from `config`, the place before node `begin`.
  /// @param escapes  nodes where an empty stack is among the stacks left, with more below; may be null.
  void mark(std::uint32_t begin, std::uint32_t end, std::int32_t config, token_mask& out,
            std::vector<std::uint32_t>* escapes);
  const local& local_at(std::uint32_t place);
  std::shared_ptr<const token_mask> mask_of(std::int32_t config);
  std::shared_ptr<const token_mask> compute_mask(std::int32_t config);

  const automaton rules_;
  const std::shared_ptr<const vocab_trie> vocab_;
  const std::vector<std::uint32_t> classes_;  ///< for each place the first of its class
  const std::vector<std::int32_t> eog_ids_;

  mutable std::mutex lock_;
  std::uint64_t epoch_ = 0;
  std::size_t bytes_ = 0;  ///< memoised, about
  std::vector<frame> frames_;
  std::unordered_map<std::uint64_t, stack_id> frame_ids_;
  std::vector<configuration> configs_;
  std::unordered_map<std::vector<stack_id>, std::int32_t, stacks_hash> config_ids_;
  std::unordered_map<std::uint32_t, local> locals_;
  /// Masks that depend on the places on top alone, by their classes; behind them whether the answer may end.
  std::unordered_map<std::vector<std::uint32_t>, std::shared_ptr<const token_mask>, stacks_hash>
      shared_masks_;
  std::vector<stack_id> visited_;   ///< by the expansion under way
  std::vector<std::int32_t> path_;  ///< configurations along the walk under way
};

}  // namespace mooncaf
