#pragma once
// A piece of one of several files.

#include <cstddef>
#include <cstdint>

namespace mooncaf {

struct file_range {
  std::size_t file = 0;  ///< which of them
  std::uint64_t offset = 0, bytes = 0;
};

}  // namespace mooncaf
