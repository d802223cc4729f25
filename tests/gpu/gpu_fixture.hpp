#pragma once
// What tests of a device share: seeded data of every element type, and activations that own their memory.

#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/host/dequantize.hpp"
#include "gpu/host/host_device.hpp"
#include "tests/support/unwrap.hpp"

namespace mooncaf::testing {

inline constexpr std::array all_types{ggml_type::f32,  ggml_type::f16,  ggml_type::bf16, ggml_type::q8_0,
                                      ggml_type::q4_0, ggml_type::q4_1, ggml_type::q4_k, ggml_type::q5_k,
                                      ggml_type::q6_k, ggml_type::mxfp4};

class random_source {
 public:
  explicit random_source(std::uint32_t seed) : engine_(seed) {}
  float uniform(float low = -1, float high = 1) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  std::byte byte() { return static_cast<std::byte>(engine_()); }

 private:
  std::mt19937 engine_;
};

/// Row-major floats with rows `padding` further apart than they are long.
struct matrix {
  matrix(std::size_t rows, std::size_t cols, std::size_t padding = 0)
      : rows_(rows), cols_(cols), values((cols + padding) * rows) {}

  static matrix random(random_source& r, std::size_t rows, std::size_t cols, std::size_t padding = 0) {
    matrix m(rows, cols, padding);
    for (auto& v : m.values) v = r.uniform();
    return m;
  }
  tensor view() { return {values.data(), rows_, cols_, values.size() / rows_}; }
  tensor rows(std::size_t begin, std::size_t count) {
    const auto all = view();
    return {all.row(begin), count, cols_, all.stride};
  }
  std::vector<float> row(std::size_t i) {
    const float* at = view().row(i);
    return {at, at + cols_};
  }

  std::size_t rows_, cols_;
  std::vector<float> values;
};

/// Random weights in the file's form, of about unit size.
inline std::vector<std::byte> random_weights(random_source& r, ggml_type type, std::size_t rows,
                                             std::size_t cols) {
  std::vector<std::byte> data(rows * row_bytes(type, cols));
  const auto step = block_bytes(type);
  const auto half = [&](std::size_t at, float value) {
    const auto h = float_to_half(value);
    std::memcpy(&data[at], &h, 2);
  };
  for (auto& b : data) b = r.byte();
  for (std::size_t at = 0; at < data.size(); at += step) {
    switch (type) {
      case ggml_type::f32: {
        const float f = r.uniform();
        std::memcpy(&data[at], &f, 4);
        break;
      }
      case ggml_type::f16:
        half(at, r.uniform());
        break;
      case ggml_type::bf16: {
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(r.uniform()) >> 16);
        std::memcpy(&data[at], &bits, 2);
        break;
      }
      case ggml_type::q8_0:
        half(at, r.uniform(0.002f, 0.01f));
        break;
      case ggml_type::q4_0:
        half(at, r.uniform(-0.12f, 0.12f));
        break;
      case ggml_type::q4_1:
        half(at, r.uniform(0.05f, 0.12f));
        half(at + 2, r.uniform(-1, -0.5f));
        break;
      case ggml_type::q4_k:
      case ggml_type::q5_k:
        half(at, r.uniform(0.001f, 0.002f));
        half(at + 2, r.uniform(0.005f, 0.01f));
        break;
      case ggml_type::q6_k:
        half(at + 208, r.uniform(0.0001f, 0.0003f));
        break;
      case ggml_type::mxfp4:
        data[at] = static_cast<std::byte>(121 + r.below(5));
        break;
    }
  }
  return data;
}

/// KV blocks of one sequence, each its own allocation, first filled with a pattern that is a NaN in both
/// types.
class kv_blocks {
 public:
  kv_blocks(const kv_layout& layout, std::size_t tokens) {
    for (std::size_t i = 0; i < layout.blocks_for(tokens); ++i) {
      memory_.emplace_back(layout.block_bytes(), std::byte{0xFF});
      pointers_.push_back({memory_.back().data()});
    }
  }
  std::span<const device_bytes> pointers() const { return pointers_; }
  const std::vector<std::vector<std::byte>>& memory() const { return memory_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<device_bytes> pointers_;
};

/// The instruction sets that this processor can run.
inline std::vector<std::string> usable_isas() {
  std::vector<std::string> found;
  for (const char* isa : {"portable", "avx2", "avx512-vnni"}) {
    if (try_make_host_device({.threads = 1, .isa = isa})) found.emplace_back(isa);
  }
  return found;
}

inline std::unique_ptr<device> host(unsigned threads, const std::string& isa = {}) {
  return unwrap(try_make_host_device({.threads = threads, .isa = isa}));
}
inline std::unique_ptr<device> reference() { return make_host_device({.threads = 1, .exact = true}); }

}  // namespace mooncaf::testing
