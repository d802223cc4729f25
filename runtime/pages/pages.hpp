#pragma once
// The program's web pages, each one file with its styles and scripts inside, so that nothing else is fetched.

#include <string_view>

namespace mooncaf::pages {

extern const std::string_view live;   ///< of a cluster, at `/`: polls /cluster and /metrics
extern const std::string_view store;  ///< of an object store, at `/store`: polls /store/figures
extern const std::string_view icon;   ///< of both, as SVG

/// A report without its contents: @TITLE@ (text), @TABLE@ (HTML), @DATA@ (JSON) and the script that plots it.
extern const std::string_view report;
extern const std::string_view run_plots;      ///< of `mooncaf simulate --report`
extern const std::string_view compare_plots;  ///< of `mooncaf simulate --compare`
extern const std::string_view plan_plots;     ///< of `mooncaf plan --report`

}  // namespace mooncaf::pages
