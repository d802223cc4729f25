#include "storage/objects/segment/page_filler.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>

#include "runtime/base/units.hpp"

namespace mooncaf {

page_filler::page_filler(std::span<std::byte> bytes) {
  try {
    thread_ = std::thread{[this, bytes] { fill(bytes); }};
  } catch (const std::system_error&) {
    // Where no thread can be started the pages come when they are touched.
  }
}

page_filler::~page_filler() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void page_filler::fill(std::span<std::byte> bytes) {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14; older kernels refuse it, which costs speed and nothing else
  constexpr std::size_t step = 8 * MiB;
  while (!stop_ && !bytes.empty()) {
    const auto now = std::min(step, bytes.size());
    if (::madvise(bytes.data(), now, MADV_POPULATE_WRITE) != 0) return;
    bytes = bytes.subspan(now);
  }
#else
  static_cast<void>(bytes);
#endif
}

}  // namespace mooncaf
