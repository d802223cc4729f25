// What every device promises (gpu/device.hpp), whatever it computes with and wherever its memory is.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>

#include "tests/conformance/device_world.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

std::vector<float> random_floats(random_source& r, std::size_t n) {
  std::vector<float> out(n);
  for (auto& f : out) f = r.uniform();
  return out;
}

double length(std::span<const float> v) {
  double squares = 0;
  for (const double f : v) squares += f * f;
  return std::sqrt(squares);
}

/// Of all |row of w|, to measure products with.
double longest_row(ggml_type type, const std::vector<std::byte>& data, std::size_t rows, std::size_t cols) {
  double longest = 0;
  std::vector<float> row(cols);
  for (std::size_t i = 0; i < rows; ++i) {
    dequantize_row(type, std::span{data}.subspan(i * row_bytes(type, cols), row_bytes(type, cols)), row);
    longest = std::max(longest, length(row));
  }
  return longest;
}

const kv_layout half_layout{2, 2, 64, 16, kv_dtype::f16}, float_layout{2, 2, 64, 16, kv_dtype::f32},
    shared_layout{2, 2, 64, 16, kv_dtype::f16, true}, byte_layout{2, 2, 64, 16, kv_dtype::int8},
    shared_bytes{2, 2, 64, 16, kv_dtype::int8, true}, nibble_layout{2, 2, 64, 16, kv_dtype::k8v4};
constexpr std::uint32_t heads = 6;

/// Two sequences whose rows lie one behind the other: 40 tokens of which all are queries, 33 of which 3 are.
struct two_sequences {
  matrix k, v, q;
  explicit two_sequences(std::uint32_t seed) : k(0, 0), v(0, 0), q(0, 0) {
    random_source r(seed);
    k = matrix::random(r, 73, 128, 1), v = matrix::random(r, 73, 128, 2), q = matrix::random(r, 43, 384, 3);
  }
};

std::array<attention_seq, 2> writes(const std::vector<device_bytes>& a, const std::vector<device_bytes>& b) {
  return {attention_seq{0, 40, 40, a}, attention_seq{40, 33, 33, b}};
}
std::array<attention_seq, 2> reads(const std::vector<device_bytes>& a, const std::vector<device_bytes>& b) {
  return {attention_seq{0, 40, 40, a}, attention_seq{40, 3, 33, b}};
}

}  // namespace

TEST_CASE("embedding looks up the rows of its tokens in every element type") {
  for (const auto type : all_types) {
    for (const bool alone : {false, true}) {
      CAPTURE(to_string(type));
      random_source r(1);
      const auto data = random_weights(r, type, 20, 256);
      const std::vector<std::int32_t> tokens{7, 0, 19, 7};
      agrees_with_reference(&tolerance::elementwise, [&](device& d, device_world& w) {
        const auto table =
            unwrap(alone ? d.load_table(type, 20, 256, data) : d.load_weight(type, 20, 256, data));
        const auto out = w.room(4, 256, 2);
        {
          const device_turn turn(w.queue());
          w.queue().embed(*table, tokens, out);
        }
        return w.get(out);
      });
    }
  }
}

TEST_CASE("products are near the definition in every element type, with a bias and without") {
  for (const auto type : all_types) {
    for (const bool biased : {false, true}) {
      CAPTURE(to_string(type));
      random_source r(2);
      const auto data = random_weights(r, type, 50, 256);
      auto x = matrix::random(r, 9, 256, 5);
      const auto bias = random_floats(r, 50);
      double scale = 0;
      for (std::size_t t = 0; t < 9; ++t) {
        const auto row = x.row(t);
        scale = std::max(scale, length(row));
      }
      scale *= longest_row(type, data, 50, 256);
      agrees_with_reference(&tolerance::product, [&](device& d, device_world& w) {
        const auto weight = unwrap(d.load_weight(type, 50, 256, data));
        const auto in = w.put(x), out = w.room(9, 50, 3);
        const linear_job job{weight.get(), biased ? w.put(bias) : nullptr, out};
        {
          const device_turn turn(w.queue());
          w.queue().linear(in, {&job, 1});
        }
        auto got = w.get(out);
        for (auto& f : got.values) f = static_cast<float>(f / scale);
        return got;
      });
    }
  }
}

TEST_CASE(
    "a product in f32 rounds neither weights nor activations, and a row has the bits that it has alone") {
  random_source r(12);
  const auto data = random_weights(r, ggml_type::f32, 37, 200);
  auto x = matrix::random(r, 11, 200, 5);
  const auto bias = random_floats(r, 37);
  const auto compute = [&](device& d, device_world& w, std::size_t at_once) {
    const auto weight = unwrap(d.load_weight(ggml_type::f32, 37, 200, data));
    const auto in = w.put(x), out = w.room(11, 37, 3);
    const auto* b = w.put(bias);
    {
      const device_turn turn(w.queue());
      for (std::size_t t = 0; t < 11; t += at_once) {
        const auto rows = std::min(at_once, 11 - t);
        w.queue().linear_f32({in.row(t), rows, 200, in.stride},
                             {weight.get(), b, {out.row(t), rows, 37, out.stride}});
      }
    }
    return w.get(out);
  };
  const auto exact = reference();
  device_world reference_world(*exact);
  auto want = compute(*exact, reference_world, 11);
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world w(*d);
    auto got = compute(*d, w, 11);
    CHECK(worst_difference(got, want) <= 1e-5);  // the order of 200 sums; 11 bits would be off by 1e-3
    CHECK(compute(*d, w, 1).values == got.values);
  }
}

TEST_CASE("norms, of rows and of heads in place, are near the definition") {
  random_source r(3);
  auto x = matrix::random(r, 5, 192, 7);
  const auto gain = random_floats(r, 192), head_gain = random_floats(r, 64);
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto in = w.put(x), out = w.room(5, 192, 1);
    const auto* g = w.put(gain);
    const device_turn turn(w.queue());
    w.queue().rms_norm(in, g, 1e-5f, out);
    return w.get(out);
  });
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto in = w.put(x);
    const auto* g = w.put(head_gain);
    const device_turn turn(w.queue());
    w.queue().rms_norm_heads(in, 3, 64, g, 1e-6f);
    return w.get(in);
  });
}

TEST_CASE("rotations of both kinds of pairs are near the definition, also far into a context") {
  random_source r(4);
  auto x = matrix::random(r, 4, 192, 1);
  std::vector<float> frequencies;
  for (int i = 0; i < 32; ++i) frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / 32));
  const std::vector<std::int32_t> positions{0, 1, 77, 4095};
  for (const bool neox : {false, true}) {
    CAPTURE(neox);
    agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
      const auto in = w.put(x);
      const device_turn turn(w.queue());
      w.queue().rope(in, 3, 64, positions, {frequencies, neox, 0.9f});
      return w.get(in);
    });
    // The beginning of wider heads: what lies behind it stays.
    agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
      const auto in = w.put(x);
      const device_turn turn(w.queue());
      w.queue().rope(in, 2, 96, positions, {frequencies, neox, 0.9f});
      return w.get(in);
    });
  }
}

TEST_CASE("the gated unit and the sum are near the definition, in place, too") {
  random_source r(5);
  auto a = matrix::random(r, 3, 130, 6), b = matrix::random(r, 3, 130, 1);
  for (auto& f : a.values) f *= 20;
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto gate = w.put(a), up = w.put(b);
    const device_turn turn(w.queue());
    w.queue().swiglu(gate, up, gate);
    w.queue().add(gate, up);
    return w.get(gate);
  });
}

TEST_CASE("GELU's gated unit, scaling and capping are near the definition, for any size of number") {
  random_source r(15);
  auto a = matrix::random(r, 3, 130, 6), b = matrix::random(r, 3, 130, 1);
  for (auto& f : a.values) f *= 20;
  a.values[0] = 1e6f, a.values[1] = -1e6f, a.values[2] = 1e-6f;
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto gate = w.put(a), up = w.put(b);
    const device_turn turn(w.queue());
    w.queue().soft_cap(gate, 8);
    w.queue().geglu(gate, up, gate);
    w.queue().scale(gate, 0.37f);
    return w.get(gate);
  });
}

TEST_CASE("the clamped unit is near the definition on both sides of its limits") {
  random_source r(17);
  auto a = matrix::random(r, 3, 130, 6), b = matrix::random(r, 3, 130, 1);
  for (auto& f : a.values) f *= 20;
  for (auto& f : b.values) f *= 20;
  a.values[0] = 1e6f, a.values[1] = -1e6f, b.values[2] = 1e6f, b.values[3] = -1e6f;
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto gate = w.put(a), up = w.put(b);
    const device_turn turn(w.queue());
    w.queue().clamped_swiglu(gate, up, 7, gate);
    return w.get(gate);
  });
}

TEST_CASE("rows are gathered as they are, and added with their weights where they came from") {
  random_source r(16);
  auto x = matrix::random(r, 9, 70, 1);
  const std::vector<std::uint32_t> rows{1, 4, 8};
  const std::vector<float> weights{0.5f, -2, 3};
  agrees_with_reference(&tolerance::elementwise, [&](device&, device_world& w) {
    const auto all = w.put(x), some = w.room(3, 70, 1);
    const device_turn turn(w.queue());
    w.queue().gather(all, rows, some);
    w.queue().scatter_add(some, rows, weights, all);
    return w.get(all);
  });
}

TEST_CASE("keys and values are written to the same bytes by every device, and to no other") {
  for (const auto& layout :
       {half_layout, float_layout, shared_layout, byte_layout, shared_bytes, nibble_layout}) {
    two_sequences s(6);
    const auto written = [&](device& d) {
      device_world w(d);
      const auto a = w.blocks(layout, 48), b = w.blocks(layout, 33);
      const auto k = w.put(s.k), v = w.put(s.v);
      {
        const device_turn turn(w.queue());
        w.queue().kv_write(layout, 1, k, v, writes(a, b));
      }
      std::vector<std::vector<std::byte>> all;
      for (const auto* blocks : {&a, &b})
        for (const auto block : *blocks) all.push_back(w.read(block, layout.block_bytes()));
      return all;
    };
    const auto want = written(*reference());
    for (const auto& kind : device_kinds()) {
      CAPTURE(kind.name);
      CHECK(written(*kind.make()) == want);
    }
  }
}

TEST_CASE("attention over blocks is near the definition, and its rows do not depend on each other") {
  struct variant {
    kv_layout layout;
    std::uint32_t window;
    float softcap;
    bool sinks;
  };
  const std::vector<float> sinks{0.5f, -3, 2, 0, 40, -200};
  for (const auto& [layout, window, softcap, sunk] : {variant{half_layout, 0, 0, false},
                                                      {float_layout, 0, 0, true},
                                                      {half_layout, 9, 0, true},
                                                      {half_layout, 0, 0.7f, false},
                                                      {float_layout, 33, 0.7f, false},
                                                      {half_layout, 1, 0, false},
                                                      {shared_layout, 0, 0, false},
                                                      {shared_layout, 9, 0, true},
                                                      {byte_layout, 0, 0, false},
                                                      {byte_layout, 9, 0.7f, true},
                                                      {shared_bytes, 0, 0, false},
                                                      {nibble_layout, 0, 0, true}}) {
    two_sequences s(7);
    const auto attend = [&](device_world& w, bool together) {
      const auto a = w.blocks(layout, 40), b = w.blocks(layout, 33);
      const auto k = w.put(s.k), v = w.put(s.v), q = w.put(s.q), out = w.room(43, 384, 2);
      const attention_form form{heads, 0.125f, window, softcap, sunk ? w.put(sinks) : nullptr};
      const device_turn turn(w.queue());
      w.queue().kv_write(layout, 1, k, v, writes(a, b));
      const auto seqs = reads(a, b);
      if (together) {
        w.queue().paged_attention(layout, 1, form, q, seqs, out);
      } else {
        for (std::uint32_t i = 0; i < 43; ++i) {
          const auto& whole = i < 40 ? seqs[0] : seqs[1];
          const auto end = i < 40 ? i + 1 : i - 40 + 31;
          const attention_seq one{i, 1, end, whole.blocks.first(layout.blocks_for(end))};
          w.queue().paged_attention(layout, 1, form, q, {&one, 1}, out);
        }
      }
      return w.get(out);
    };
    agrees_with_reference(&tolerance::attention, [&](device&, device_world& w) { return attend(w, true); });
    for (const auto& kind : device_kinds()) {
      CAPTURE(kind.name);
      const auto d = kind.make();
      device_world w(*d);
      CHECK(attend(w, true).values == attend(w, false).values);
    }
  }
}

TEST_CASE("a product's row has the bits that it has alone") {
  random_source r(8);
  for (const auto type : {ggml_type::q4_1, ggml_type::q8_0, ggml_type::f16}) {
    const auto data = random_weights(r, type, 40, 128);
    auto x = matrix::random(r, 21, 128, 1);
    for (const auto& kind : device_kinds()) {
      CAPTURE(kind.name);
      const auto d = kind.make();
      device_world w(*d);
      const auto weight = unwrap(d->load_weight(type, 40, 128, data));
      const auto in = w.put(x), all = w.room(21, 40, 0), single = w.room(21, 40, 0);
      {
        const device_turn turn(w.queue());
        const linear_job whole{weight.get(), nullptr, all};
        w.queue().linear(in, {&whole, 1});
        for (std::size_t t = 0; t < 21; ++t) {
          const linear_job one{weight.get(), nullptr, {single.row(t), 1, 40, 40}};
          w.queue().linear({in.row(t), 1, 128, in.stride}, {&one, 1});
        }
      }
      CHECK(w.get(all).values == w.get(single).values);
    }
  }
}

TEST_CASE("copies move the pieces that they name and nothing between them") {
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world w(*d);
    const auto block = w.blocks({1, 1, 64, 16, kv_dtype::f16}, 16).front();
    const std::size_t size = 4096;
    std::vector<std::byte> from(size), blank(size, std::byte{0});
    for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<std::byte>(1 + i % 250);
    w.write(block, blank);
    const kv_copy pieces{block + 100, from.data() + 100, 60, 200, 5};
    w.copies().load({&pieces, 1});
    wait_for(w.copies().record());
    auto want = blank;
    for (std::size_t i = 0; i < 5; ++i)
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(100 + 200 * i), 60,
                  want.begin() + static_cast<std::ptrdiff_t>(100 + 200 * i));
    CHECK(w.read(block, size) == want);
    std::vector<std::byte> back(size, std::byte{9}), expected = back;
    const kv_copy out{block + 300, back.data() + 300, 60, 200, 2};
    w.copies().store({&out, 1});
    wait_for(w.copies().record());
    for (std::size_t i : {300u, 500u})
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(i), 60,
                  expected.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(back == expected);
  }
}

TEST_CASE("pieces lie as far apart on either side as the copy says of it") {
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world w(*d);
    const auto block = w.blocks({1, 1, 64, 16, kv_dtype::f16}, 16).front();
    const std::size_t size = 4096;
    const auto at = [](std::size_t i) { return static_cast<std::ptrdiff_t>(i); };
    // 48 bytes apart by 16: what a kernel may carry; 20 apart by 24: what it may not.
    for (const auto& [piece, there, here] : {std::array<std::size_t, 3>{16, 16, 48}, {20, 24, 100}}) {
      CAPTURE(piece);
      std::vector<std::byte> page(size), back(size, std::byte{0}), want(size, std::byte{0});
      for (std::size_t i = 0; i < size; ++i) page[i] = static_cast<std::byte>(1 + i % 250);
      w.write(block, want);
      const kv_copy in{block + 32, page.data() + 64, piece, there, 20, here};
      w.copies().load({&in, 1});
      const kv_copy out{block + 32, back.data() + 64, piece, there, 20, here};
      w.copies().store({&out, 1});
      wait_for(w.copies().record());
      for (std::size_t i = 0; i < 20; ++i)
        std::copy_n(page.begin() + at(64 + i * here), piece, want.begin() + at(32 + i * there));
      CHECK(w.read(block, size) == want);
      std::ranges::fill(want, std::byte{0});
      for (std::size_t i = 0; i < 20; ++i)
        std::copy_n(page.begin() + at(64 + i * here), piece, want.begin() + at(64 + i * here));
      CHECK(back == want);
    }
  }
}

TEST_CASE("events order queues: a copy behind its computation, a computation behind its copy") {
  const kv_layout layout{1, 1, 64, 16, kv_dtype::f32};
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    device_world w(*d);
    const auto loads = d->make_copy_queue(), stores = d->make_copy_queue();
    const auto blocks = w.blocks(layout, 16);
    random_source r(9);
    auto k = matrix::random(r, 16, 64);
    const auto keys = w.put(k), out = w.room(16, 64);
    std::vector<std::byte> image(layout.block_bytes());
    const kv_copy whole{blocks[0], image.data(), image.size(), 0, 1};
    // With one key and the same value at position 0, attention returns that value: what the device holds.
    const attention_seq write{0, 16, 16, blocks}, first{0, 1, 1, std::span{blocks}.first(1)};
    for (int round = 0; round < 20; ++round) {
      const float mark = static_cast<float>(round) + 1;
      {
        const device_turn turn(w.queue());
        w.queue().kv_write(layout, 0, keys, keys, {&write, 1});
      }
      stores->wait(w.queue().record());
      stores->store({&whole, 1});
      wait_for(stores->record());
      float seen;
      std::memcpy(&seen, image.data(), sizeof seen);
      REQUIRE(seen == k.values[0]);
      for (std::size_t i = 0; i < 64; ++i)
        std::memcpy(image.data() + layout.offset(0, 0, true, 0) + 4 * i, &mark, sizeof mark);
      loads->load({&whole, 1});
      w.queue().wait(loads->record());
      {
        const device_turn turn(w.queue());
        w.queue().paged_attention(layout, 0, {1, 1}, {keys.data, 1, 64, 64}, {&first, 1},
                                  {out.data, 1, 64, 64});
      }
      auto got = w.get({out.data, 1, 64, 64});
      REQUIRE(std::fabs(got.values[5] - mark) <= 1e-5f * mark);
    }
  }
}

TEST_CASE("memory of a device that is not the host's cannot be touched from the host") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    const auto memory = unwrap(d->allocate(4096));
    const bool readable = ::write(ends[1], memory->data(), 8) == 8;
    CHECK(readable == d->info().host_memory);
    if (!readable) CHECK(errno == EFAULT);
    const auto none = d->allocate(~std::size_t{0} / 2);
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error() == ec::out_of_space);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("memory that was given back is given out again, whole") {
  for (const auto& kind : device_kinds()) {
    CAPTURE(kind.name);
    const auto d = kind.make();
    const auto most = d->info().memory_bytes / 2;
    for (int round = 0; round < 3; ++round) {
      auto small = unwrap(d->allocate(1000));
      auto other = unwrap(d->allocate(5000));
      small.reset();
      other.reset();
      CHECK(unwrap(d->allocate(most))->size_bytes() == most);
    }
  }
}

TEST_CASE("bytes take the time of their link, each way for itself") {
  using namespace std::chrono;
  timed_link link({1'000'000, milliseconds(3)});
  const auto began = steady_clock::now();
  link.cross(timed_link::direction::to_device, 5000);
  CHECK(steady_clock::now() - began >= milliseconds(8));
  link.cross(timed_link::direction::to_device, 1000);
  CHECK(steady_clock::now() - began >= milliseconds(9));
}
