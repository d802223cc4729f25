#include "runtime/grammar/grammar_cache.hpp"

#include <utility>

#include "runtime/grammar/limits.hpp"

namespace mooncaf {

result<std::shared_ptr<pushdown>> grammar_cache::find(const std::string& text) {
  std::shared_ptr<const vocab_trie> vocab;
  {
    const std::lock_guard hold(lock_);
    if (const auto i = by_text_.find(text); i != by_text_.end()) {
      recent_.splice(recent_.begin(), recent_, i->second);
      return i->second->rules;
    }
    if (!vocab_) vocab_ = std::make_shared<vocab_trie>(*text_);
    vocab = vocab_;
  }
  // Other threads go on meanwhile; a second one that compiles the same text at the same time does so for
  // nothing.
  const auto parsed = parse_gbnf(text);
  if (!parsed) return fail(parsed.error());
  auto compiled = automaton::compile(*parsed);
  if (!compiled) return fail(compiled.error());
  auto rules = std::make_shared<pushdown>(std::move(*compiled), std::move(vocab), text_->eog_ids());
  const std::lock_guard hold(lock_);
  if (const auto i = by_text_.find(text); i != by_text_.end()) return i->second->rules;
  recent_.push_front({text, rules});
  by_text_.emplace(recent_.front().text, recent_.begin());
  if (recent_.size() > grammar_limits::max_cached_grammars) {
    by_text_.erase(recent_.back().text);
    recent_.pop_back();
  }
  return rules;
}

result<std::unique_ptr<token_constraint>> grammar_cache::start(const std::string& text) {
  auto rules = find(text);
  if (!rules) return fail(rules.error());
  return std::make_unique<matcher>(std::move(*rules), text_);
}

}  // namespace mooncaf
