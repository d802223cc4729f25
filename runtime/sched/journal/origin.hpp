#pragma once
// Which program wrote a journal.

#include <string>

namespace mooncaf::journal {

/// The beginning of the first frame.
struct origin {
  std::string release;  ///< of mooncaf; empty in a journal of version 15
};
origin this_program();

}  // namespace mooncaf::journal
