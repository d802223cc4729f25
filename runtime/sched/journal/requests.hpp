#pragma once
// The requests of a journal, as a trace: their sizes, times and shared prefixes, without a word of them.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/journal/frames.hpp"
#include "runtime/sched/trace_reader.hpp"

namespace mooncaf::journal {

/// Requests that a trace leaves out, since how long their answers would have been is not known.
struct left_out {
  std::uint64_t refused = 0;            ///< before they had a place
  std::uint64_t refused_at_decode = 0;  ///< after their prefill
  std::uint64_t given_up = 0;           ///< cancelled or failed
  std::uint64_t unfinished = 0;         ///< waiting or under way when the journal ends
  std::uint64_t without_keys = 0;       ///< answered, but their blocks have no names
  std::uint64_t sum() const noexcept {
    return refused + refused_at_decode + given_up + unfinished + without_keys;
  }
};

struct journal_requests {
  std::vector<trace_record> records;  ///< by arrival; the first came at 0
  journal::left_out left_out;
  std::uint32_t block_tokens = 0;
  std::optional<gap> missing;  ///< of the journal: requests behind it are not counted
  ending end = ending::open;
};

/// Every request that was answered, once, however often it was placed. Ids of blocks follow from their keys,
/// so equal ids mean equal prefixes; blocks that have no key (the last of a prompt, mostly) have ids of their
/// own.
/// @param name  of the file, for error texts. @error  As `reader` has them.
result<journal_requests> requests_of(std::string_view bytes, const std::string& name);

}  // namespace mooncaf::journal
