#pragma once
// Limits on a grammar's size and on the cost of its use. All are far above the schemas of real clients; they
// keep a hostile text from holding a thread or the memory.

#include <cstddef>

namespace mooncaf::grammar_limits {

inline constexpr std::size_t max_source_bytes =
    128 * 1024;                                            ///< of a client's schema, regex or list of choices
inline constexpr std::size_t max_text_bytes = 512 * 1024;  ///< of a grammar, also of one made from a schema
inline constexpr std::size_t max_rules = 10'000;
inline constexpr std::size_t max_nesting = 100;            ///< of groups in a rule, and of a schema
inline constexpr std::size_t max_repeat = 10'000;          ///< in {m,n}
inline constexpr std::size_t max_nfa_states = 400'000;     ///< of all rules, repetitions written out
inline constexpr std::size_t max_places = 40'000;          ///< states of the rules' DFAs, all together
inline constexpr std::size_t max_subset_work = 8'000'000;  ///< NFA states visited while DFAs are made
inline constexpr std::size_t max_stacks = 128;             ///< readings followed at once
inline constexpr std::size_t max_pushdown_bytes = 24 * 1024 * 1024;  ///< memoised by one grammar
inline constexpr std::size_t max_cached_grammars = 64;               ///< kept by a process

}  // namespace mooncaf::grammar_limits
