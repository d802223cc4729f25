#pragma once
// The options of a process as RDMA takes them, and the view of `mooncaf topology`.

#include "config/options.hpp"
#include "runtime/base/result.hpp"
#include "transport/rdma/rdma_options.hpp"

namespace mooncaf {

/// @error `ec::invalid_argument` names the option.
result<rdma_options> as_rdma_options(const options& o);

/// `mooncaf topology [options]`: the NICs of this host, which memory each serves, and which of their ports
/// the options let RDMA use, with the reason where they do not. @returns the exit status of the process.
int print_topology(int argc, const char* const* argv);

}  // namespace mooncaf
