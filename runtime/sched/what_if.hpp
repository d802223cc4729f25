#pragma once
// What else than the rule of admission could be different, and what it would be worth: advice to who runs a cluster.

#include <cstdint>
#include <vector>

#include "runtime/base/words.hpp"
#include "runtime/sched/admission_rule.hpp"

namespace mooncaf {

/// Another cluster than there is, or more requests than came.
enum class what_if : std::uint8_t { more_prefill, more_decode, prefill_decodes, decode_prefills, more_load };

constexpr auto words_of(what_if) noexcept {
  using enum what_if;
  return words<what_if, 5>{{{more_prefill, "one more prefill instance"},
                            {more_decode, "one more decode instance"},
                            {prefill_decodes, "a prefill instance decodes"},
                            {decode_prefills, "a decode instance prefills"},
                            {more_load, "10 % more requests"}}};
}

/// How the last minutes would have gone with it, under the rule in force.
struct played_what_if {
  what_if what = what_if::more_prefill;
  std::uint64_t met = 0;  ///< requests inside both SLOs; of
  std::uint64_t judged = 0;
};

/// All that was played of the last minutes.
struct played_minutes {
  std::vector<played_rule> rules;
  std::vector<played_what_if> what_ifs;  ///< those that are possible; none where nobody asked
};

}  // namespace mooncaf
