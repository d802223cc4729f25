#pragma once
// An outcome as a table for people, JSON for machines, and a page with plots.

#include <string>

#include "runtime/sim/options.hpp"
#include "runtime/sim/outcome.hpp"

namespace mooncaf::sim {

const char* name_of(coupled_mode m);

/// The simulated cluster, in one line.
std::string describe(const simulation_options& options);

/// A table of some thirty lines; `describe` is not in it.
std::string to_table(const simulation_options& options, const outcome& out);
/// One JSON object; the same options and trace give the same bytes.
std::string to_json(const simulation_options& options, const outcome& out);
/// A run over time: an object of rows, null where there is no number.
std::string to_json(const timeline& history);
/// A distribution as [[value, share of at most that], …], ascending. @param step  the least between two
/// shares.
std::string json_cdf(const log_histogram& h, double step);
/// A self-contained HTML page: no other file, no network.
std::string to_html(const simulation_options& options, const outcome& out);

}  // namespace mooncaf::sim
