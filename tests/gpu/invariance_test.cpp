// A token's numbers depend on the token, its context and the weights alone (gpu/device.hpp): bit for bit.

#include <doctest/doctest.h>

#include "tests/gpu/gpu_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

matrix multiply(device& d, const weight& w, matrix& x, std::size_t begin, std::size_t count) {
  matrix out(count, w.rows(), 1);
  const auto queue = d.make_queue(0);
  const device_turn turn(*queue);
  const linear_job job{&w, nullptr, out.view()};
  queue->linear(x.rows(begin, count), {&job, 1});
  queue->synchronize();
  return out;
}

constexpr std::uint32_t n_heads = 6, context = 300;
const kv_layout layout{1, 2, 64, 64, kv_dtype::f16};

struct attention_case {
  matrix k, v, q;
};

attention_case random_case(std::uint32_t seed) {
  random_source r(seed);
  return {matrix::random(r, context, 128), matrix::random(r, context, 128), matrix::random(r, context, 384)};
}

/// Feeds the context in chunks of the given sizes, as a prefill would, and returns all outputs.
matrix in_chunks(device& d, attention_case& c, const std::vector<std::uint32_t>& chunks,
                 const kv_layout& as = layout) {
  kv_blocks kv(as, context);
  matrix out(context, 384);
  const auto queue = d.make_queue(0);
  const device_turn turn(*queue);
  std::uint32_t at = 0;
  for (const auto n : chunks) {
    const attention_seq seq{0, n, at + n, kv.pointers().first(as.blocks_for(at + n))};
    queue->kv_write(as, 0, c.k.rows(at, n), c.v.rows(at, n), {&seq, 1});
    queue->paged_attention(as, 0, {n_heads, 0.125f}, c.q.rows(at, n), {&seq, 1}, out.rows(at, n));
    at += n;
  }
  queue->synchronize();
  REQUIRE(at == context);
  return out;
}

}  // namespace

TEST_CASE(
    "a product's row has the same bits in a batch of any size, at any place, on any number of threads") {
  for (const auto& isa : usable_isas()) {
    const auto one = host(1, isa), two = host(2, isa), three = host(3, isa);
    for (const auto type : all_types) {
      CAPTURE(isa);
      CAPTURE(to_string(type));
      random_source r(11);
      const auto data = random_weights(r, type, 50, 256);
      const auto w = unwrap(one->load_weight(type, 50, 256, data));
      auto x = matrix::random(r, 70, 256);
      std::vector<std::vector<float>> alone;
      for (std::size_t t = 0; t < 70; ++t) alone.push_back(multiply(*one, *w, x, t, 1).row(0));
      const auto other = unwrap(two->load_weight(type, 50, 256, data));
      for (std::size_t m = 1; m <= 70; ++m) {
        const auto begin = r.below(static_cast<std::uint32_t>(71 - m));
        CAPTURE(m);
        auto got = m % 2 == 0 ? multiply(*two, *other, x, begin, m) : multiply(*three, *w, x, begin, m);
        bool same = true;
        for (std::size_t t = 0; t < m; ++t) same = same && got.row(t) == alone[begin + t];
        REQUIRE(same);
      }
    }
  }
}

TEST_CASE("jobs that share an input get the bits they get alone") {
  const auto d = host(2);
  random_source r(12);
  const auto first = random_weights(r, ggml_type::q4_1, 40, 128),
             second = random_weights(r, ggml_type::q8_0, 23, 128);
  const auto third = random_weights(r, ggml_type::f16, 9, 128);
  const auto a = unwrap(d->load_weight(ggml_type::q4_1, 40, 128, first));
  const auto b = unwrap(d->load_weight(ggml_type::q8_0, 23, 128, second));
  const auto c = unwrap(d->load_weight(ggml_type::f16, 9, 128, third));
  auto x = matrix::random(r, 5, 128);
  matrix ya(5, 40), yb(5, 23), yc(5, 9);
  const auto queue = d->make_queue(0);
  {
    const device_turn turn(*queue);
    const std::array jobs{linear_job{a.get(), nullptr, ya.view()}, linear_job{b.get(), nullptr, yb.view()},
                          linear_job{c.get(), nullptr, yc.view()}};
    queue->linear(x.view(), jobs);
  }
  for (std::size_t t = 0; t < 5; ++t) {
    CHECK(ya.row(t) == multiply(*d, *a, x, 0, 5).row(t));
    CHECK(yb.row(t) == multiply(*d, *b, x, 0, 5).row(t));
    CHECK(yc.row(t) == multiply(*d, *c, x, 0, 5).row(t));
  }
}

TEST_CASE("attention has the same bits for any chunking, block size and number of threads") {
  for (const auto& isa : usable_isas()) {
    CAPTURE(isa);
    auto c = random_case(21);
    const auto one = host(1, isa), two = host(2, isa);
    const auto whole = in_chunks(*one, c, {context}).values;
    CHECK(in_chunks(*two, c, {context}).values == whole);
    CHECK(in_chunks(*two, c, std::vector<std::uint32_t>(context, 1)).values == whole);
    CHECK(in_chunks(*two, c, {64, 64, 64, 64, 44}).values == whole);
    random_source r(22);
    for (int round = 0; round < 6; ++round) {
      std::vector<std::uint32_t> chunks;
      for (std::uint32_t left = context; left > 0; left -= chunks.back())
        chunks.push_back(1 + r.below(std::min(left, 130u)));
      CAPTURE(round);
      CHECK(in_chunks(*two, c, chunks).values == whole);
    }
    auto small = layout;
    small.block_tokens = 16;
    CHECK(in_chunks(*two, c, {100, 200}, small).values == whole);
    small.block_tokens = 25;
    CHECK(in_chunks(*one, c, {1, 299}, small).values == whole);
  }
}

TEST_CASE("attention of one sequence has the same bits beside any others") {
  for (const auto& isa : usable_isas()) {
    CAPTURE(isa);
    const auto d = host(2, isa);
    std::vector<attention_case> cases;
    std::vector<std::vector<float>> alone;
    for (std::uint32_t i = 0; i < 4; ++i) {
      cases.push_back(random_case(30 + i));
      auto out = in_chunks(*d, cases.back(), {context});
      alone.push_back(out.row(context - 1));
    }
    std::vector<kv_blocks> kv;
    std::vector<attention_seq> all, last;
    matrix q(4, 384), out(4, 384);
    const auto queue = d->make_queue(0);
    const device_turn turn(*queue);
    for (std::uint32_t i = 0; i < 4; ++i) {
      kv.emplace_back(layout, context);
      const attention_seq seq{0, context, context, kv.back().pointers()};
      queue->kv_write(layout, 0, cases[i].k.view(), cases[i].v.view(), {&seq, 1});
      std::ranges::copy(cases[i].q.row(context - 1), q.view().row(i));
    }
    for (std::uint32_t i = 0; i < 4; ++i) last.push_back({i, 1, context, kv[i].pointers()});
    queue->paged_attention(layout, 0, {n_heads, 0.125f}, q.view(), last, out.view());
    for (std::uint32_t i = 0; i < 4; ++i) CHECK(out.row(i) == alone[i]);
  }
}
