#include "runtime/loading/loading_progress.hpp"

#include <chrono>

namespace mooncaf {

void loading_progress::count(std::size_t bytes) {
  loaded_ += bytes;
  const auto now = now_();
  if (now - said_ < std::chrono::seconds(2)) return;
  said_ = now;
  auto text = std::to_string(loaded_ / MiB);
  if (total_ >= loaded_ && total_ > 0)
    text += " of " + std::to_string(total_ / MiB) + " MiB, " + std::to_string(100 * loaded_ / total_) + " %";
  else text += " MiB";
  say_(text);
}

}  // namespace mooncaf
