#pragma once
// Two journals of the same requests side by side: of two releases, of two options, of a server and its
// simulation. Data flow: `decisions_of` reads a conductor's journal, `compare` pairs the requests of two,
// `to_text` prints.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.hpp"
#include "runtime/sched/admission_queue.hpp"
#include "runtime/sched/journal/frames.hpp"

namespace mooncaf::journal {

/// A request of a journal, as it was first decided about: its later tries follow from what became of that.
struct decided_request {
  std::uint64_t number = 0;  ///< among those that asked, from 1: what `--explain '#N'` takes
  request_id id;
  std::uint32_t prompt_tokens = 0;
  time_point arrival{};                                       ///< at its gateway
  std::optional<tl::expected<placement, rejection>> outcome;  ///< nothing: it waits, or went before
  time_point decided{};
  std::optional<duration> ttft;  ///< from its arrival until the conductor heard of the first token
  std::uint32_t cached_tokens = 0;
  bool refused_at_decode = false;  ///< after its prefill
  bool refused() const noexcept { return refused_at_decode || (outcome && !*outcome); }
};

struct decided_requests {
  std::vector<decided_request> all;  ///< by arrival
  std::optional<gap> missing;        ///< of the journal: requests behind it are not here
  ending end = ending::open;
};

/// @param name  of the file, for error texts. @error  As `reader` has them.
result<decided_requests> decisions_of(std::string_view bytes, const std::string& name);

/// What came of all requests of one journal.
struct journal_sums {
  std::uint64_t requests = 0, refused = 0;
  duration mean_wait{};  ///< for the decision
  duration mean_ttft{}, p90_ttft{};
  double reused = 0;  ///< share of the computed requests' prompt tokens
};

struct comparison {
  journal_sums first, second;
  std::uint64_t in_both = 0, alike = 0;
  // Each pair that differs counts in one of these, the first that fits.
  std::uint64_t refused_in_one = 0, undecided_in_one = 0, other_prefill = 0, other_decode = 0,
                other_prefix = 0;
  /// The first pair that differs, or the first request that is in one journal alone (the other is null then).
  std::optional<std::pair<const decided_request*, const decided_request*>> differs;
  bool same() const noexcept { return !differs; }
};

/// Requests are paired by the length of their prompts, in order of arrival; instances and nodes as they are
/// first used, since their ids are another cluster's. When is no part of a decision.
/// @returns pointers into the arguments.
comparison compare(const decided_requests& first, const decided_requests& second);

/// @param names  of the two files.
std::string to_text(const comparison& c, const std::pair<std::string, std::string>& names);

}  // namespace mooncaf::journal
