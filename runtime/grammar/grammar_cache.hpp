#pragma once
// The grammars that a process is using: compiled once, shared by all requests that bring the same text.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/base/result.hpp"
#include "runtime/grammar/matcher.hpp"
#include "runtime/grammar/pushdown.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mooncaf {

/// Keeps the latest `grammar_limits::max_cached_grammars`; grammars in use live on beyond that. @thread Any
/// number.
class grammar_cache {
 public:
  explicit grammar_cache(std::shared_ptr<const tokenizer> text) : text_(std::move(text)) {}

  /// @error `ec::invalid_argument`, without a field's name: the mistake in the text (`parse_gbnf`,
  /// `automaton::compile`).
  /// @cost of a text that is new, bounded by grammar_limits: some 100 ms at worst, for a schema under a
  /// millisecond; the first text of a process pays for the tree of the vocabulary.
  result<std::shared_ptr<pushdown>> find(const std::string& text);
  /// A place at the beginning of `text`'s language. @error as `find`.
  result<std::unique_ptr<token_constraint>> start(const std::string& text);

 private:
  struct entry {
    std::string text;
    std::shared_ptr<pushdown> rules;
  };
  const std::shared_ptr<const tokenizer> text_;
  std::mutex lock_;
  std::shared_ptr<const vocab_trie> vocab_;
  std::list<entry> recent_;  ///< latest first
  std::unordered_map<std::string_view, std::list<entry>::iterator> by_text_;
};

}  // namespace mooncaf
