#pragma once
// The requests of a journal, as a trace: what a server was asked, without a word of it.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/trace_reader.hpp"

namespace mooncaf::journal {

struct journal_requests {
  std::vector<trace_record> records;  ///< by arrival; the first came at 0
  std::uint64_t left_out =
      0;  ///< refused, cancelled or still under way: how long their answers are nobody knows
  std::uint32_t block_tokens = 0;
};

/// Every request that was answered, once, however often it was placed. Ids of blocks follow from their keys,
/// so equal ids mean equal prefixes; blocks that have no key (the last of a prompt, mostly) have ids of their
/// own.
/// @param name  of the file, for error texts. @error  What `reader` says.
result<journal_requests> requests_of(std::string_view bytes, const std::string& name);

}  // namespace mooncaf::journal
