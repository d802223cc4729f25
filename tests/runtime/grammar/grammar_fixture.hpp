#pragma once
// Grammars over a vocabulary of bytes and a few longer tokens, asked as a sampler asks.

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "runtime/grammar/grammar_cache.hpp"

namespace mooncaf::testing {

/// Bytes as ids 0 to 255, then `longer`, then <|end|>.
std::shared_ptr<const tokenizer> text_of(const std::vector<std::string>& longer = {});

/// Whether every byte of `answer` is allowed where it comes and the answer may end behind it. Fails the test
/// if the grammar does not compile.
bool accepts(const std::string& grammar, std::string_view answer);

/// The tokens that `mask` allows.
std::set<std::int32_t> allowed_in(std::span<const std::uint64_t> mask);

/// What a failed result says; empty if it did not fail.
template <class Result>
std::string problem_of(const Result& r) {
  return r ? std::string{} : r.error().detail;
}

}  // namespace mooncaf::testing
