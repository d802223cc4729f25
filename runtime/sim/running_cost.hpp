#pragma once
// The cost of a run's machines.

#include <algorithm>

#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"

namespace mooncaf::sim {

struct running_cost {
  double machine_hours = 0;  ///< paid: from asking for a machine until it is let go
  double total = 0;          ///< in the prices' currency; 0 without prices
  double per_million_tokens = 0, per_million_output_tokens = 0;  ///< of prompts and answers; of answers
  double per_thousand_good = 0;                                  ///< requests inside both SLOs
  double peak_hours = 0, peak_total = 0;  ///< if as many as at the peak had been there all the time
};

inline running_cost cost_of(const simulation_options& o, const outcome& out) {
  running_cost c;
  const auto price = [&](double prefill_s, double decode_s) {
    return (prefill_s * o.price.prefill + decode_s * o.price.decode) / 3600;
  };
  const auto per = [&](double many) { return many > 0 ? c.total / many : 0; };
  c.machine_hours = (out.prefill_machine_s + out.decode_machine_s) / 3600;
  c.total = price(out.prefill_machine_s, out.decode_machine_s);
  const auto tokens = static_cast<double>(out.prompt_tokens),
             answers = static_cast<double>(out.output_tokens);
  c.per_million_tokens = per((tokens + answers) * 1e-6);
  c.per_million_output_tokens = per(answers * 1e-6);
  c.per_thousand_good = per(static_cast<double>(out.all().slo_met) * 1e-3);
  const double prefill = out.most_prefill * (o.coupled == coupled_mode::off ? o.pipeline : 1) * out.span_s;
  const double decode = out.most_decode * out.span_s;
  c.peak_hours = (prefill + decode) / 3600;
  c.peak_total = price(prefill, decode);
  return c;
}

}  // namespace mooncaf::sim
