#pragma once
// Several runs side by side: their different options, and their results.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace mooncaf::sim {

/// A line of the table: an option of the runs, or a result.
struct compared_row {
  std::string what;
  std::vector<std::string> values;  ///< one per run, "–" where a run has none
  int best = -1;                    ///< the run that has the best value alone
  bool option = false;              ///< an option in which runs differ
};

/// A run that `mooncaf simulate --json` wrote.
struct compared_run {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;  ///< flat: "hardware.decode_max_batch" → "128"
  std::vector<double> figures;                               ///< the table's, in its order; NaN: not there
  std::string plots;                                         ///< the page's data of it, JSON
};

/// @param name  as which it stands in the table, and in error texts.
/// @error `ec::corrupt`: "NAME: …", also for JSON that is no run.
result<compared_run> read_run(std::string_view json, const std::string& name);

/// Options that differ, then results.
std::vector<compared_row> compare(const std::vector<compared_run>& runs);
std::string to_text(const std::vector<compared_run>& runs);
/// @param runs  2 to 8: as many as there are colours.
std::string to_html(const std::vector<compared_run>& runs);

}  // namespace mooncaf::sim
