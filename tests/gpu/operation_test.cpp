// Every operation of the host device, on every instruction set, against the exact reference.

#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "tests/gpu/gpu_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// How far from the reference an operation may be.
constexpr float plain_product_error = 1e-6f;   ///< relative to |row of w| |x|
constexpr float packed_product_error = 5e-3f;  ///< the same; activations have 8 bits per 32 columns
constexpr float elementwise_error = 2e-6f;     ///< relative to 1 + |value|
constexpr float attention_error =
    5e-4f;  ///< absolute, for values within [-1, 1]; keys and values have 12.5 bits

bool is_plain(ggml_type t) { return t == ggml_type::f32 || t == ggml_type::f16 || t == ggml_type::bf16; }

double length(std::span<const float> v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

float worst(matrix& a, matrix& b) {
  float largest = 0;
  for (std::size_t t = 0; t < a.rows_; ++t) {
    for (std::size_t i = 0; i < a.cols_; ++i) {
      const float x = a.view().row(t)[i], y = b.view().row(t)[i];
      const float error = std::fabs(x - y) / (1 + std::fabs(y));
      largest = error <= largest ? largest : std::isnan(error) ? 1e30f : error;
    }
  }
  return largest;
}

/// Largest |out - reference| / (|w row| |x row|) of one product.
double product_error(device& fast, ggml_type type, std::size_t rows, std::size_t cols, std::size_t tokens,
                     bool biased) {
  random_source r(static_cast<std::uint32_t>(rows * 31 + cols * 7 + tokens));
  const auto data = random_weights(r, type, rows, cols);
  auto x = matrix::random(r, tokens, cols, 5);
  auto bias = matrix::random(r, 1, rows);
  const auto product = [&](device& d) {
    const auto w = unwrap(d.load_weight(type, rows, cols, data));
    const auto queue = d.make_queue(0);
    matrix out(tokens, rows, 3);
    const device_turn turn(*queue);
    const linear_job job{w.get(), biased ? bias.values.data() : nullptr, out.view()};
    queue->linear(x.view(), {&job, 1});
    queue->synchronize();
    return out;
  };
  auto got = product(fast);
  auto want = product(*reference());
  double worst_error = 0;
  std::vector<float> row(cols);
  for (std::size_t i = 0; i < rows; ++i) {
    dequantize_row(type, std::span{data}.subspan(i * row_bytes(type, cols), row_bytes(type, cols)), row);
    for (std::size_t t = 0; t < tokens; ++t) {
      const double error =
          std::fabs(got.view().row(t)[i] - want.view().row(t)[i]) / (length(row) * length(x.row(t)));
      worst_error = error <= worst_error ? worst_error : std::isnan(error) ? 1e30 : error;
    }
  }
  return worst_error;
}

/// Writes keys and values of `tokens` positions and attends from the last `queries` of them.
matrix attend(device& d, const kv_layout& layout, std::uint32_t n_heads, std::uint32_t tokens,
              std::uint32_t queries, std::uint32_t seed, std::uint32_t window = 0, float softcap = 0) {
  random_source r(seed);
  const auto kv_dim = std::size_t{layout.n_kv_heads} * layout.head_dim;
  auto k = matrix::random(r, tokens, kv_dim, 1), v = matrix::random(r, tokens, kv_dim, 2);
  auto q = matrix::random(r, queries, std::size_t{n_heads} * layout.head_dim, 3);
  for (auto& x : q.values) x *= 3;
  kv_blocks kv(layout, tokens);
  matrix out(queries, q.cols_, 4);
  const auto queue = d.make_queue(0);
  const device_turn turn(*queue);
  const attention_seq all{0, tokens, tokens, kv.pointers()}, last{0, queries, tokens, kv.pointers()};
  const auto layer = layout.n_layers - 1;
  queue->kv_write(layout, layer, k.view(), v.view(), {&all, 1});
  const attention_form form{n_heads, 1 / std::sqrt(static_cast<float>(layout.head_dim)), window, softcap};
  queue->paged_attention(layout, layer, form, q.view(), {&last, 1}, out.view());
  queue->synchronize();
  return out;
}

}  // namespace

TEST_CASE("every instruction set multiplies every weight type as the reference does") {
  constexpr std::size_t shapes[][3] = {
      {1, 256, 1}, {16, 256, 3}, {33, 512, 13}, {50, 768, 70}, {20, 256, 201}};
  for (const auto& isa : usable_isas()) {
    const auto fast = host(2, isa);
    for (const auto type : all_types) {
      for (const auto& [rows, cols, tokens] : shapes) {
        CAPTURE(isa);
        CAPTURE(to_string(type));
        CAPTURE(rows);
        CAPTURE(cols);
        CAPTURE(tokens);
        const float tolerance = is_plain(type) ? plain_product_error : packed_product_error;
        CHECK(product_error(*fast, type, rows, cols, tokens, tokens % 2 == 1) < tolerance);
      }
    }
  }
}

TEST_CASE("rows of any whole number of blocks are multiplied, also where they fill no vector") {
  for (const auto& isa : usable_isas()) {
    const auto fast = host(1, isa);
    CAPTURE(isa);
    CHECK(product_error(*fast, ggml_type::q4_1, 17, 32, 5, false) < packed_product_error);
    CHECK(product_error(*fast, ggml_type::q8_0, 5, 96, 2, true) < packed_product_error);
    CHECK(product_error(*fast, ggml_type::q4_0, 40, 1120, 9, false) < packed_product_error);
    CHECK(product_error(*fast, ggml_type::f32, 19, 37, 6, true) < plain_product_error);
    CHECK(product_error(*fast, ggml_type::bf16, 3, 1, 1, false) < plain_product_error);
  }
}

TEST_CASE("products stay finite for activations of zeros and of extreme size") {
  for (const auto& isa : usable_isas()) {
    const auto fast = host(1, isa);
    random_source r(3);
    const auto data = random_weights(r, ggml_type::q4_1, 16, 64);
    const auto w = unwrap(fast->load_weight(ggml_type::q4_1, 16, 64, data));
    matrix x(3, 64), out(3, 16);
    for (std::size_t i = 0; i < 64; ++i) {
      x.view().row(1)[i] = 1e-38f;
      x.view().row(2)[i] = 1e30f;
    }
    const auto queue = fast->make_queue(0);
    const device_turn turn(*queue);
    const linear_job job{w.get(), nullptr, out.view()};
    queue->linear(x.view(), {&job, 1});
    for (const float v : out.values) CHECK(std::isfinite(v));
    for (const float v : out.row(0)) CHECK(v == 0);
  }
}

TEST_CASE("embedding looks up rows of every type exactly") {
  for (const auto type : all_types) {
    CAPTURE(to_string(type));
    random_source r(5);
    const auto data = random_weights(r, type, 9, 256);
    const std::int32_t tokens[] = {8, 0, 3, 3};
    const auto look_up = [&](device& d) {
      const auto w = unwrap(d.load_weight(type, 9, 256, data));
      matrix out(4, 256, 7);
      const auto queue = d.make_queue(0);
      const device_turn turn(*queue);
      queue->embed(*w, tokens, out.view());
      return out;
    };
    auto got = look_up(*host(2)), want = look_up(*reference());
    for (std::size_t t = 0; t < 4; ++t) CHECK(got.row(t) == want.row(t));
  }
}

TEST_CASE("norms, rotation, activation and addition equal the reference on odd sizes") {
  for (const auto& isa : usable_isas()) {
    for (const std::size_t cols : {16, 64, 100, 576, 1531}) {
      const auto fast = host(2, isa), exact = reference();
      const auto fast_queue = fast->make_queue(0), exact_queue = exact->make_queue(0);
      const device_turn fast_turn(*fast_queue), exact_turn(*exact_queue);
      CAPTURE(isa);
      CAPTURE(cols);
      random_source r(static_cast<std::uint32_t>(cols));
      const auto x = matrix::random(r, 21, cols, 3);
      auto y = matrix::random(r, 21, cols, 1);
      const auto gain = matrix::random(r, 1, cols).values;
      const auto both = [&](auto work) {
        auto a = x, b = x;
        work(*fast_queue, a);
        work(*exact_queue, b);
        return worst(a, b);
      };
      CHECK(both([&](compute_queue& q, matrix& m) { q.rms_norm(m.view(), gain.data(), 1e-5f, m.view()); }) <
            elementwise_error);
      CHECK(both([&](compute_queue& q, matrix& m) { q.swiglu(m.view(), y.view(), m.view()); }) <
            elementwise_error);
      CHECK(both([&](compute_queue& q, matrix& m) { q.geglu(m.view(), y.view(), m.view()); }) <
            elementwise_error);
      CHECK(both([&](compute_queue& q, matrix& m) { q.clamped_swiglu(m.view(), y.view(), 0.7f, m.view()); }) <
            elementwise_error);
      CHECK(both([&](compute_queue& q, matrix& m) { q.soft_cap(m.view(), 2.5f); }) < elementwise_error);
      CHECK(both([&](compute_queue& q, matrix& m) { q.add(m.view(), y.view()); }) < elementwise_error);
    }
  }
}

TEST_CASE("heads are normalised and rotated as the reference does, in both pairings") {
  for (const auto& isa : usable_isas()) {
    for (const std::uint32_t head_dim : {20u, 64u, 80u, 96u, 128u}) {
      for (const bool neox : {false, true}) {
        CAPTURE(isa);
        CAPTURE(head_dim);
        CAPTURE(neox);
        random_source r(head_dim);
        constexpr std::size_t tokens = 11, heads = 3;
        const auto x = matrix::random(r, tokens, heads * head_dim, 2);
        const auto gain = matrix::random(r, 1, head_dim).values;
        std::vector<float> frequencies;
        for (std::uint32_t i = 0; i < head_dim / 2; ++i) {
          frequencies.push_back(
              std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
        }
        std::vector<std::int32_t> positions;
        for (std::size_t t = 0; t < tokens; ++t)
          positions.push_back(static_cast<std::int32_t>(r.below(3000)));
        const auto turned = [&](device& d) {
          auto m = x;
          const auto queue = d.make_queue(0);
          const device_turn turn(*queue);
          queue->rms_norm_heads(m.view(), heads, head_dim, gain.data(), 1e-6f);
          queue->rope(m.view(), heads, head_dim, positions, {frequencies, neox, 1.25f});
          return m;
        };
        auto got = turned(*host(2, isa)), want = turned(*reference());
        CHECK(worst(got, want) < elementwise_error);
      }
    }
  }
}

TEST_CASE(
    "attention equals the reference for every grouping, head size, element type and context around tile "
    "borders") {
  struct shape {
    std::uint32_t kv_heads, group, head_dim, block_tokens;
    kv_dtype dtype;
  };
  const shape shapes[] = {
      {3, 3, 64, 64, kv_dtype::f16},   {2, 1, 80, 16, kv_dtype::f16},   {1, 4, 128, 64, kv_dtype::f32},
      {2, 8, 96, 48, kv_dtype::f16},   {1, 2, 20, 10, kv_dtype::f32},   {1, 5, 128, 32, kv_dtype::f16},
      {1, 40, 576, 32, kv_dtype::f16}, {3, 3, 64, 64, kv_dtype::int8},  {2, 4, 128, 32, kv_dtype::int8},
      {1, 2, 20, 10, kv_dtype::int8},  {2, 8, 96, 48, kv_dtype::int8},  {1, 40, 576, 32, kv_dtype::int8},
      {3, 3, 64, 64, kv_dtype::k8v4},  {2, 4, 128, 32, kv_dtype::k8v4}, {1, 2, 20, 10, kv_dtype::k8v4},
      {2, 8, 80, 48, kv_dtype::k8v4},  {1, 40, 576, 32, kv_dtype::k8v4}};
  for (const auto& isa : usable_isas()) {
    for (const auto& s : shapes) {
      const kv_layout layout{2, s.kv_heads, s.head_dim, s.block_tokens, s.dtype};
      const auto fast = host(2, isa), exact = reference();
      for (const auto& [tokens, queries] :
           {std::pair{1u, 1u}, {16u, 3u}, {33u, 1u}, {63u, 63u}, {64u, 2u}, {65u, 65u}, {200u, 70u}}) {
        CAPTURE(isa);
        CAPTURE(to_string(layout));
        CAPTURE(tokens);
        CAPTURE(queries);
        auto got = attend(*fast, layout, s.kv_heads * s.group, tokens, queries, tokens);
        auto want = attend(*exact, layout, s.kv_heads * s.group, tokens, queries, tokens);
        // Factors of long rows have fewer bits.
        CHECK(worst(got, want) < (s.head_dim > 256 ? 2 : 1) * attention_error);
      }
    }
  }
}

TEST_CASE("attention through a window, and with capped scores, equals the reference around tile borders") {
  const kv_layout layout{1, 2, 64, 16, kv_dtype::f16};
  for (const auto& isa : usable_isas()) {
    const auto fast = host(2, isa), exact = reference();
    for (const auto& [tokens, queries] : {std::pair{1u, 1u}, {65u, 65u}, {200u, 1u}, {400u, 250u}}) {
      for (const auto window : {0u, 1u, 5u, 63u, 64u, 65u, 130u, 500u}) {
        CAPTURE(isa);
        CAPTURE(tokens);
        CAPTURE(window);
        const auto softcap = window % 2 == 0 ? 1.5f : 0;
        auto got = attend(*fast, layout, 6, tokens, queries, tokens, window, softcap);
        auto want = attend(*exact, layout, 6, tokens, queries, tokens, window, softcap);
        CHECK(worst(got, want) < attention_error);
      }
    }
  }
}

TEST_CASE(
    "keys and values are stored in the canonical layout, rounded as their type is, and nothing else is "
    "touched") {
  for (const auto& isa : usable_isas()) {
    for (const auto dtype : all_values<kv_dtype>()) {
      CAPTURE(isa);
      const kv_layout layout{3, 2, 20, 8, dtype};
      random_source r(1);
      auto k = matrix::random(r, 20, 40), v = matrix::random(r, 20, 40);
      k.view().row(3)[1] = 1e-6f;  // a subnormal half
      k.view().row(4)[1] = 1e6f;   // beyond the largest half
      k.view().row(5)[1] = 65519.9f;
      const auto written = [&](device& d) {
        kv_blocks kv(layout, 24);
        const auto queue = d.make_queue(0);
        const device_turn turn(*queue);
        const attention_seq seq{0, 20, 23, kv.pointers()};  // positions 3 to 22
        queue->kv_write(layout, 1, k.view(), v.view(), {&seq, 1});
        return kv.memory();
      };
      CHECK(written(*host(2, isa)) == written(*reference()));
    }
  }
}

TEST_CASE("half floats survive the way there and back") {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(static_cast<std::uint16_t>(h));
    if (std::isnan(f)) continue;
    REQUIRE(float_to_half(f) == h);
  }
  CHECK(float_to_half(1.0f + 1.0f / 2048) == 0x3C00);  // ties go to even
  CHECK(float_to_half(1.0f + 3.0f / 2048) == 0x3C02);
  CHECK(float_to_half(65520.0f) == 0x7C00);
  CHECK(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}
