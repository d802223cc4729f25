#pragma once
// Devices under test, and activations and KV blocks in whatever memory they have.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/cuda/cuda_device.hpp"
#include "gpu/linked/linked_device.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/support/simt/simt_accelerator.hpp"

namespace mooncaf::testing {

/// How far from the reference a device's operations may be.
struct tolerance {
  double product = 0;      ///< of |row of w| |x|
  double elementwise = 0;  ///< of 1 + |value|
  double attention = 0;    ///< absolute, for values within [-1, 1]
};

struct device_kind {
  std::string name;
  std::function<std::unique_ptr<device>()> make;
  tolerance within;
};

/// A link that is slow enough for work to overtake a copy that it does not wait for.
inline linked_device_options linked_options(bool exact) {
  return {{.threads = 2, .exact = exact}, {std::size_t{1} << 30, std::chrono::microseconds(50)}, 2};
}

inline const std::vector<device_kind>& device_kinds() {
  static const tolerance host_within{5e-3, 2e-6, 5e-4};
  static const tolerance cuda_within{1e-3, 2e-6, 1e-3};
  static const std::vector<device_kind> kinds = [] {
    std::vector<device_kind> all{
        {"exact", [] { return reference(); }, {}},
        {"host", [] { return host(2); }, host_within},
        {"linked exact", [] { return unwrap(make_linked_device(linked_options(true))); }, {}},
        {"linked", [] { return unwrap(make_linked_device(linked_options(false))); }, host_within},
        {"cuda kernels", [] { return cuda::make_device(simt::make_simt_accelerator(), 1); }, cuda_within},
    };
    // A GPU of the driver's, where somebody says which (tests/bench/gpu_session.sh).
    if (const char* ordinal = std::getenv("MOONCAF_TEST_GPU"))
      all.push_back(
          {"cuda GPU",
           [which = static_cast<unsigned>(std::atoi(ordinal))] { return unwrap(make_cuda_device({which})); },
           cuda_within});
    return all;
  }();
  return kinds;
}

/// A queue of a device, with what tests put into its memory.
class device_world {
 public:
  explicit device_world(device& d) : device_(d), queue_(d.make_queue(0)), copies_(d.make_copy_queue()) {}

  compute_queue& queue() { return *queue_; }
  copy_queue& copies() { return *copies_; }

  tensor put(matrix& m) {
    auto t = m.view();
    t.data = put(m.values);
    return t;
  }
  float* put(const std::vector<float>& values) {
    auto* at = allocate(values.size() * sizeof(float));
    queue_->upload(values, at);
    queue_->synchronize();
    return at;
  }
  tensor room(std::size_t rows, std::size_t cols, std::size_t padding = 0) {
    const auto stride = cols + padding;
    return {put(std::vector<float>(rows * stride)), rows, cols, stride};
  }
  matrix get(tensor t) {
    matrix m(t.rows, t.cols, t.stride - t.cols);
    queue_->download(t.data, m.values);
    queue_->synchronize();
    return m;
  }

  /// Blocks filled with a pattern that is a NaN in both element types.
  std::vector<device_bytes> blocks(const kv_layout& layout, std::size_t tokens) {
    std::vector<device_bytes> made;
    for (std::size_t i = 0; i < layout.blocks_for(tokens); ++i) {
      made.push_back({reinterpret_cast<std::byte*>(allocate(layout.block_bytes()))});
      std::vector<std::byte> pattern(layout.block_bytes(), std::byte{0xFF});
      write(made.back(), pattern);
    }
    return made;
  }
  void write(device_bytes to, std::vector<std::byte>& from) {
    const kv_copy copy{to, from.data(), from.size(), 0, 1};
    copies_->load({&copy, 1});
    wait_for(copies_->record());
  }
  std::vector<std::byte> read(device_bytes from, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    const kv_copy copy{from, out.data(), bytes, 0, 1};
    copies_->wait(queue_->record());
    copies_->store({&copy, 1});
    wait_for(copies_->record());
    return out;
  }

 private:
  float* allocate(std::size_t bytes) {
    buffers_.push_back(unwrap(device_.allocate(bytes)));
    return buffers_.back()->data();
  }

  device& device_;
  std::deque<std::unique_ptr<buffer>> buffers_;  // first: queues may still use them
  std::unique_ptr<compute_queue> queue_;
  std::unique_ptr<copy_queue> copies_;
};

/// Largest |a - b| / (1 + |b|); enormous for a NaN where the other has none.
inline double worst_difference(matrix& got, matrix& want) {
  REQUIRE(got.rows_ == want.rows_);
  REQUIRE(got.cols_ == want.cols_);
  double largest = 0;
  for (std::size_t t = 0; t < got.rows_; ++t) {
    for (std::size_t i = 0; i < got.cols_; ++i) {
      const double a = got.view().row(t)[i], b = want.view().row(t)[i];
      const double error = std::fabs(a - b) / (1 + std::fabs(b));
      largest = error <= largest ? largest : std::isnan(error) ? 1e30 : error;
    }
  }
  return largest;
}

/// Runs `compute` on a device of each kind and on the reference, and holds the difference against the kind's
/// tolerance.
template <class Compute>
void agrees_with_reference(double tolerance::*limit, const Compute& compute) {
  const auto exact = reference();
  device_world want_world(*exact);
  auto want = compute(*exact, want_world);
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world world(*d);
    auto got = compute(*d, world);
    CHECK(worst_difference(got, want) <= kind.within.*limit);
  }
}

}  // namespace mooncaf::testing
