#pragma once
// Loading a model, watched: a device that tells how far it is.

#include <functional>
#include <string>

#include "gpu/device.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Hands everything to the device behind it, and tells every two seconds how many bytes of weights were
/// loaded; a shorter load tells nothing. @thread One at a time. Needed for the loading alone: weights and
/// buffers are the other device's.
class loading_progress final : public device {
 public:
  using now_fn = std::function<time_point()>;
  /// Takes the text, such as "1200 of 4690 MiB, 25 %".
  using say_fn = std::function<void(const std::string& progress)>;

  /// @param total_bytes  of all weights; 0: not known
  loading_progress(device& behind, std::size_t total_bytes, now_fn now, say_fn say)
      : behind_(behind), total_(total_bytes), now_(std::move(now)), say_(std::move(say)), said_(now_()) {}

  device_info info() const override { return behind_.info(); }
  result<std::unique_ptr<weight>> load_weight(ggml_type type, std::size_t rows, std::size_t cols,
                                              std::span<const std::byte> data) override {
    auto loaded = behind_.load_weight(type, rows, cols, data);
    count(data.size());
    return loaded;
  }
  result<std::unique_ptr<weight>> load_table(ggml_type type, std::size_t rows, std::size_t cols,
                                             std::span<const std::byte> data) override {
    auto loaded = behind_.load_table(type, rows, cols, data);
    count(data.size());
    return loaded;
  }
  result<std::unique_ptr<buffer>> allocate(std::size_t bytes) override { return behind_.allocate(bytes); }
  std::unique_ptr<compute_queue> make_queue(int priority) override { return behind_.make_queue(priority); }
  result<void> pin(std::span<std::byte> memory, std::shared_ptr<const void> owner) override {
    return behind_.pin(memory, std::move(owner));
  }
  std::unique_ptr<copy_queue> make_copy_queue() override { return behind_.make_copy_queue(); }

 private:
  void count(std::size_t bytes);

  device& behind_;
  const std::size_t total_;
  const now_fn now_;
  const say_fn say_;
  time_point said_;
  std::size_t loaded_ = 0;
};

}  // namespace mooncaf
