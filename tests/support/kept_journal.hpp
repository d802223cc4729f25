#pragma once
// A journal in memory.

#include <string>

#include "runtime/sched/journal/sink.hpp"

namespace mooncaf::test {

/// @param file  gets the journal's bytes; outlives whoever writes it.
inline journal::sink kept_in(std::string& file) {
  return [&file](std::string_view bytes, bool) {
    file += bytes;
    return journal::written::whole;
  };
}

}  // namespace mooncaf::test
