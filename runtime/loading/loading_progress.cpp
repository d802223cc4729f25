#include "runtime/loading/loading_progress.hpp"

#include <chrono>

namespace mooncaf {

result<std::unique_ptr<weight>> loading_progress::load_weight(ggml_type type, std::size_t rows,
                                                              std::size_t cols,
                                                              std::span<const std::byte> data) {
  auto loaded = behind_.load_weight(type, rows, cols, data);
  loaded_ += data.size();
  const auto now = now_();
  if (now - said_ < std::chrono::seconds(2)) return loaded;
  said_ = now;
  auto text = std::to_string(loaded_ / MiB);
  if (total_ >= loaded_ && total_ > 0)
    text += " of " + std::to_string(total_ / MiB) + " MiB, " + std::to_string(100 * loaded_ / total_) + " %";
  else text += " MiB";
  say_(text);
  return loaded;
}

}  // namespace mooncaf
