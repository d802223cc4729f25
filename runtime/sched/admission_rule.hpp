#pragma once
// The admission rule in force: one of the policies, and how near to the SLOs its predictions may come.

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

#include "runtime/sched/admission_policy.hpp"

namespace mooncaf {

struct admission_rule {
  admission_policy policy = admission_policy::queue;  ///< never `adaptive`
  double slo_share = 1;  ///< of each SLO, up to which a predicted TTFT or TBT is taken for inside of it

  friend bool operator==(const admission_rule&, const admission_rule&) = default;
};

/// "early", "priced at 0.85 of the SLOs".
inline std::string text_of(const admission_rule& rule) {
  std::string out{to_string(rule.policy)};
  if (rule.slo_share == 1) return out;
  std::array<char, 48> share;
  std::snprintf(share.data(), share.size(), " at %.2f of the SLOs", rule.slo_share);
  return out + share.data();
}

/// How a rule did when the last minutes were played under it.
struct played_rule {
  admission_rule rule;
  std::uint64_t met = 0;     ///< requests inside both SLOs; of
  std::uint64_t judged = 0;  ///< requests that were counted

  friend bool operator==(const played_rule&, const played_rule&) = default;
};

}  // namespace mooncaf
