// What the CUDA device promises beyond the conformance suite, on the machine of tests/support/simt.

#include "gpu/cuda/cuda_device.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "gpu/checked_copies.hpp"
#include "gpu/device_failure.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "tests/conformance/device_world.hpp"
#include "tests/gpu/cuda/counting_accelerator.hpp"
#include "tests/support/simt/simt_accelerator.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

std::unique_ptr<device> gpu_of(unsigned processors) {
  return cuda::make_device(simt::make_simt_accelerator(processors), 1);
}

/// A prompt's end and one token far into another context.
matrix attend(device& d, const kv_layout& layout, std::uint32_t heads) {
  constexpr std::uint32_t longest = 600, shorter = 290, chunk = 20;
  random_source r(11);
  auto k = matrix::random(r, longest + shorter, layout.n_kv_heads * layout.head_dim);
  auto v = matrix::random(r, longest + shorter, layout.n_kv_heads * layout.head_dim);
  auto q = matrix::random(r, chunk + 1, heads * layout.head_dim);
  for (auto& f : q.values) f *= 4;
  device_world w(d);
  const auto a = w.blocks(layout, longest), b = w.blocks(layout, shorter);
  const auto keys = w.put(k), values = w.put(v), queries = w.put(q), out = w.room(chunk + 1, q.cols_);
  const std::array writes{attention_seq{0, longest, longest, a}, attention_seq{longest, shorter, shorter, b}};
  const std::array reads{attention_seq{0, chunk, longest, a}, attention_seq{chunk, 1, shorter, b}};
  const device_turn turn(w.queue());
  w.queue().kv_write(layout, 0, keys, values, writes);
  const auto* sinks = w.put({2, -1, 0, 30, -90, 1});
  w.queue().paged_attention(layout, 0, {heads, 0.125f, 0, 0, sinks}, queries, reads, out);
  return w.get(out);
}

}  // namespace

TEST_CASE(
    "the rows of a batch leave by one launch on a bounded part of the device, whole layers by copy engines") {
  counting_accelerator::counts seen;
  for (const unsigned processors : {1u, 2u, 7u}) {
    const auto gpu = cuda::make_device(std::make_unique<counting_accelerator>(seen), 1, processors);
    const auto memory = unwrap(gpu->allocate(1 << 20));
    const device_bytes block{reinterpret_cast<std::byte*>(memory->data())};
    const std::shared_ptr<std::byte> host(static_cast<std::byte*>(std::aligned_alloc(64, 1 << 20)),
                                          &std::free);
    const auto copies = gpu->make_copy_queue();
    std::vector<kv_copy> rows;
    for (std::size_t i = 0; i < 40; ++i)
      rows.push_back({block + i * 4096, host.get() + i * 4096, 128, 512, 8});
    copies->load(rows);
    CHECK(seen.copies == 40);  // memory that kernels do not reach
    REQUIRE(gpu->pin({host.get(), 1 << 20}, host).has_value());
    seen = {};
    copies->store(rows);
    CHECK(seen.launches == 1);
    CHECK(seen.processors == processors);
    CHECK(seen.writes == 1);
    CHECK(seen.copies == 0);
    seen = {};
    const std::array layers{kv_copy{block, host.get(), 128 << 10, 0, 1},
                            kv_copy{block + (256 << 10), host.get() + (256 << 10), 128 << 10, 0, 1}};
    copies->load(layers);
    CHECK(seen.launches == 0);
    CHECK(seen.copies == 2);
    seen = {};
  }
}

TEST_CASE(
    "blocks come to pages of every order with the host's checksums in one launch on a bounded part of the "
    "device") {
  // Rests of every kind: less than a chunk of XXH3, whole ones, one stripe more, more than a tile of chunks;
  // and rows that are no stripes.
  constexpr auto f16 = kv_dtype::f16;
  for (const auto& shape : std::initializer_list<kv_layout>{{1, 1, 32, 5, f16, true},
                                                            {1, 1, 32, 16, f16, true},
                                                            {1, 1, 32, 17, f16, true},
                                                            {2, 1, 32, 16, f16},
                                                            {3, 2, 32, 44, f16},
                                                            {5, 2, 32, 32, f16},
                                                            {3, 4, 16, 44, kv_dtype::f32},
                                                            {2, 3, 20, 16, f16},
                                                            {7, 3, 12, 8, f16}}) {
    for (const auto order :
         {page_order::page_first_direct, page_order::page_first, page_order::layer_first}) {
      for (const unsigned processors : {1u, 2u, 16u}) {
        auto layout = shape;
        layout.pages = order;
        const auto bytes = layout.block_bytes();
        CAPTURE(to_string(layout));
        CAPTURE(processors);
        REQUIRE(page_is_checkable(layout));
        constexpr std::uint32_t count = 5;
        counting_accelerator::counts seen;
        const auto gpu = cuda::make_device(std::make_unique<counting_accelerator>(seen), 1, processors);
        const auto memory = unwrap(gpu->allocate(count * bytes));
        // Pages that are filled row by row, and behind them those under test.
        const auto half = layout.pieces().bytes_for(count);
        const std::shared_ptr<std::byte> host(static_cast<std::byte*>(std::aligned_alloc(64, 2 * half)),
                                              &std::free);
        random_source r(static_cast<std::uint32_t>(bytes));
        const auto values = matrix::random(r, 1, count * bytes / 4);
        const auto copies = gpu->make_copy_queue();
        const std::array all{
            kv_copy{device_bytes{reinterpret_cast<std::byte*>(memory->data())},
                    const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.values.data())),
                    count * bytes, 0, 1}};
        copies->load(all);
        auto* const checked = dynamic_cast<checked_copies*>(copies.get());
        REQUIRE(checked != nullptr);
        std::vector<device_bytes> blocks;
        std::vector<std::byte*> expected, pages;
        std::vector<kv_copy> rows;
        for (std::uint32_t i = 0; i < count; ++i) {
          blocks.push_back({reinterpret_cast<std::byte*>(memory->data()) + (count - 1 - i) * bytes});
          expected.push_back(host.get() + layout.pieces().offset(i));
          pages.push_back(expected.back() + half);
          for (std::uint32_t layer = 0; layer < layout.n_layers; ++layer)
            append_rows(layout, blocks[i], expected[i], layer, 0, layout.block_tokens, rows);
        }
        copies->store(rows);
        wait_for(copies->record());
        std::vector<std::uint64_t> sums(count);
        CHECK_FALSE(checked->store_checked(blocks, pages, layout, sums));  // memory that kernels do not reach
        REQUIRE(gpu->pin({host.get(), 2 * half}, host).has_value());
        seen = {};
        REQUIRE(checked->store_checked(blocks, pages, layout, sums));
        wait_for(copies->record());
        CHECK(seen.launches == 1);
        CHECK(seen.copies == 0);
        CHECK(seen.processors == std::min<unsigned>(processors, count));
        for (std::uint32_t i = 0; i < count; ++i) {
          layout.pieces().each(0, bytes, [&](std::size_t at, std::size_t length) {
            CHECK(std::memcmp(pages[i] + at, expected[i] + at, length) == 0);
          });
          CHECK(sums[i] == checksum64(expected[i], layout.pieces()));
        }
      }
    }
  }
}

TEST_CASE(
    "a matrix that is larger than the memory it travels through arrives whole, and leaves none pinned") {
  counting_accelerator::counts seen;
  const auto gpu = cuda::make_device(std::make_unique<counting_accelerator>(seen), 2);
  constexpr std::size_t rows = 9000, cols = 1024;  // 36 MB
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto table = unwrap(gpu->load_weight(ggml_type::f32, rows, cols, std::as_bytes(std::span{values})));
  CHECK(seen.uploads == 3);
  CHECK(seen.pinned == 2);
  device_world w(*gpu);
  CHECK(seen.pinned == 0);
  const std::vector<std::int32_t> tokens{0, 4095, 4096, 8191, 8192, 8999};
  const auto out = w.room(tokens.size(), cols);
  w.queue().embed(*table, tokens, out);
  auto got = w.get(out);
  for (std::size_t t = 0; t < tokens.size(); ++t)
    for (const std::size_t c : {std::size_t{0}, cols - 1})
      CHECK(got.view().row(t)[c] == static_cast<float>(static_cast<std::size_t>(tokens[t]) * cols + c));
}

TEST_CASE("a long context comes to the same bits whether its splits are computed in turn or side by side") {
  for (const std::uint32_t head_dim : {32u, 64u, 96u, 128u, 256u, 576u}) {
    CAPTURE(head_dim);
    const kv_layout layout{1, 2, head_dim, 32, kv_dtype::f16};
    const auto many = gpu_of(1000), one = gpu_of(1);
    auto apart = attend(*many, layout, 6), in_turn = attend(*one, layout, 6);
    CHECK(apart.values == in_turn.values);
    const auto exact = reference();
    auto want = attend(*exact, layout, 6);
    CHECK(worst_difference(apart, want) <= 1e-3);
  }
}

TEST_CASE("rows of activations of any size keep their digits") {
  random_source r(12);
  const auto data = random_weights(r, ggml_type::f32, 24, 96);
  auto x = matrix::random(r, 5, 96);
  const std::array<float, 5> sizes{1e-30f, 1e-6f, 1, 1e6f, 1e30f};
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t i = 0; i < 96; ++i) x.view().row(t)[i] *= sizes[t];
  const auto product = [&](device& d) {
    device_world w(d);
    const auto weight = unwrap(d.load_weight(ggml_type::f32, 24, 96, data));
    const auto in = w.put(x), out = w.room(5, 24);
    const linear_job job{weight.get(), nullptr, out};
    {
      const device_turn turn(w.queue());
      w.queue().linear(in, {&job, 1});
    }
    auto got = w.get(out);
    for (std::size_t t = 0; t < 5; ++t)
      for (std::size_t i = 0; i < 24; ++i) got.view().row(t)[i] /= sizes[t];
    return got;
  };
  const auto exact = reference(), gpu = gpu_of(4);
  auto want = product(*exact), got = product(*gpu);
  CHECK(worst_difference(got, want) <= 5e-3);
}

TEST_CASE("weights of a shape that is no shape are refused as every device refuses them") {
  const auto gpu = gpu_of(4);
  const std::vector<std::byte> bytes(36);
  CHECK(gpu->load_weight(static_cast<ggml_type>(99), 1, 32, bytes).error() == ec::unsupported);
  CHECK(gpu->load_weight(ggml_type::q4_0, 2, 33, bytes).error() == ec::invalid_argument);
  CHECK(gpu->load_weight(ggml_type::q4_0, 3, 32, bytes).error() == ec::invalid_argument);
  CHECK(gpu->load_weight(ggml_type::q4_0, 2, 32, bytes).has_value());
}

TEST_CASE("a device without room says so when it loads, and fails when it computes") {
  const auto small = cuda::make_device(simt::make_simt_accelerator(4, 64 << 10), 1);
  random_source r(13);
  const auto data = random_weights(r, ggml_type::f16, 256, 256);
  const auto loaded = small->load_weight(ggml_type::f16, 256, 256, data);
  REQUIRE(!loaded);
  CHECK(loaded.error() == ec::out_of_space);
  const auto some = unwrap(small->load_weight(ggml_type::f16, 32, 64, std::span{data}.first(4096)));
  const auto x = unwrap(small->allocate(40 << 10));
  const auto queue = small->make_queue(0);
  const linear_job job{some.get(), nullptr, {x->data(), 160, 32, 64}};
  CHECK_THROWS_AS(queue->linear({x->data(), 160, 64, 64}, {&job, 1}), device_failure);
}

TEST_CASE("heads that no kernel takes are refused with their size") {
  const auto gpu = gpu_of(4);
  device_world w(*gpu);
  const kv_layout layout{1, 1, 648, 16, kv_dtype::f16};
  const auto x = w.room(1, 648);
  const attention_seq none{0, 0, 0, {}};
  CHECK_THROWS_WITH_AS(w.queue().paged_attention(layout, 0, {1, 1}, x, {&none, 1}, x),
                       "attention heads of 648 dimensions: this device takes multiples of 8 up to 640",
                       device_failure);
}

TEST_CASE("without a driver, or without the GPU that is asked for, the device says why") {
  const auto none = make_cuda_device({4000, 1});
  REQUIRE(!none);
  CHECK(none.error().detail.find("CUDA") != std::string::npos);
}
