#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/base/int4_row.hpp"
#include "runtime/base/int8_row.hpp"
#include "runtime/base/kv_layout.hpp"

using namespace mooncaf;

namespace {

std::vector<float> random_row(std::mt19937& random, std::size_t dims, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> out(dims);
  for (auto& x : out) x = normal(random);
  return out;
}

float largest(std::span<const float> x) {
  float top = 0;
  for (const float v : x) top = std::max(top, std::abs(v));
  return top;
}

}  // namespace

TEST_CASE("a row of 8-bit integers gives each number back within half a step of its largest") {
  std::mt19937 random(1);
  for (const std::size_t dims : {1u, 7u, 8u, 20u, 64u, 80u, 128u, 576u}) {
    for (const float size : {1e-20f, 1e-3f, 1.0f, 3e4f, 1e30f}) {
      const auto x = random_row(random, dims, size);
      std::vector<std::byte> row(int8_row::bytes(dims), std::byte{0xEE});
      int8_row::write(x, row.data());
      for (std::size_t i = 0; i < dims; ++i)
        CHECK(std::abs(int8_row::number(row.data(), i) - x[i]) <= largest(x) / 127 * 0.5001f);
    }
  }
}

TEST_CASE("a row of 4-bit integers gives each number back within a step of its group's largest") {
  std::mt19937 random(2);
  for (const std::size_t dims : {1u, 7u, 8u, 20u, 64u, 80u, 128u, 576u}) {
    for (const float size : {1e-20f, 1e-3f, 1.0f, 3e4f, 1e30f}) {
      auto x = random_row(random, dims, size);
      for (std::size_t i = 0; i < dims; i += 40) x[i] *= 30;  // groups of very different sizes
      std::vector<std::byte> row(int4_row::bytes(dims), std::byte{0xEE});
      int4_row::write(x, row.data());
      for (std::size_t i = 0; i < dims; ++i) {
        const auto begin = i / int4_row::group * int4_row::group;
        const auto top = largest(std::span{x}.subspan(begin, std::min(int4_row::group, dims - begin)));
        // Half a step of its group's own 7, and what a multiplier of 8 bits adds to the step.
        const auto step = top / 7 + largest(x) / 255 / 7;
        CHECK(std::abs(int4_row::number(row.data(), dims, i) - x[i]) <= step * 0.5001f);
      }
    }
  }
}

TEST_CASE("rows of zeros are zeros, and numbers that are none harm no other row") {
  for (const float odd : {0.0f, -0.0f, 1e-38f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> x(40, 0.0f);
    x[3] = odd;
    std::vector<std::byte> eight(int8_row::bytes(40) + 8, std::byte{0xEE});
    std::vector<std::byte> four(int4_row::bytes(40) + 8, std::byte{0xEE});
    int8_row::write(x, eight.data());
    int4_row::write(x, four.data());
    for (std::size_t i = 0; i < 8; ++i) {
      CHECK(eight[int8_row::bytes(40) + i] == std::byte{0xEE});
      CHECK(four[int4_row::bytes(40) + i] == std::byte{0xEE});
    }
    if (std::abs(odd) > 1) continue;
    for (std::size_t i = 0; i < 40; ++i) {
      CHECK(int8_row::number(eight.data(), i) == 0);
      CHECK(int4_row::number(four.data(), 40, i) == 0);
    }
  }
}

TEST_CASE("a token's KV is as large as the pages promise, and rows begin at multiples of eight") {
  const auto bytes = [](kv_dtype type, std::uint32_t dims) {
    return kv_layout{1, 1, dims, 64, type}.bytes_per_token();
  };
  CHECK(bytes(kv_dtype::f16, 128) == 512);
  CHECK(bytes(kv_dtype::int8, 128) == 272);
  CHECK(bytes(kv_dtype::k8v4, 128) == 208);
  CHECK(bytes(kv_dtype::f16, 64) == 256);
  CHECK(bytes(kv_dtype::int8, 64) == 144);
  CHECK(bytes(kv_dtype::k8v4, 64) == 112);
  for (std::uint32_t dims = 2; dims < 700; dims += 2) {
    for (const auto type : {kv_dtype::int8, kv_dtype::k8v4}) {
      const kv_layout layout{3, 2, dims, 16, type};
      CHECK(layout.row_bytes() % 8 == 0);
      CHECK(layout.value_offset() % 8 == 0);
    }
  }
}
