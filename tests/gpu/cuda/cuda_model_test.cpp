// A whole model on the CUDA device, by way of tests/support/simt: its logits, its tokens, and that nothing
// depends on what shares a pass.

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "gpu/cuda/cuda_device.hpp"
#include "tests/runtime/model/model_fixture.hpp"
#include "tests/support/simt/simt_accelerator.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

struct set_up {
  std::unique_ptr<device> dev;
  std::shared_ptr<const model> m;
  runner_options options;

  set_up(std::unique_ptr<device> d, std::string_view spec) : dev(std::move(d)) {
    m = unwrap(model::dummy(*dev, unwrap(dummy_shape(spec)), 1));
    options.layout = m->layout(16, kv_dtype::f16);
    options.max_logit_rows = 4;
    if (!dev->info().host_memory)
      options.device_blocks =
          unwrap(device_kv::make(*dev, options.layout, 12 * options.layout.block_bytes(), 96));
  }
  static set_up exact(std::string_view spec) {
    return {make_host_device({.threads = 1, .exact = true}), spec};
  }
  static set_up cuda(std::string_view spec) {
    return {mooncaf::cuda::make_device(simt::make_simt_accelerator(), 1), spec};
  }
  std::unique_ptr<model_runner> runner() const { return unwrap(model_runner::make(m, *dev, options)); }
};

constexpr std::string_view specs[] = {
    "dummy:layers=2,dim=128,heads=4,kv_heads=2,ffn=192,vocab=300,type=q4_1",
    "dummy:layers=2,dim=256,heads=4,kv_heads=4,head_dim=64,ffn=256,vocab=200,type=q6_k",
};

/// Tokens that follow greedily, and the logits of the first.
std::pair<std::vector<std::size_t>, std::vector<float>> greedy(const set_up& s,
                                                               std::span<const std::int32_t> prompt) {
  const auto runner = s.runner();
  const kv_space kv(s.options.layout, prompt.size() + 8);
  auto logits = feed(*runner, kv, prompt, 512);
  const auto first = logits;
  std::vector<std::size_t> tokens{argmax(logits)};
  for (std::uint32_t i = 0; i < 7; ++i) {
    const auto last = static_cast<std::int32_t>(tokens.back());
    logits = feed(*runner, kv, {&last, 1}, 1, static_cast<std::uint32_t>(prompt.size()) + i);
    tokens.push_back(argmax(logits));
  }
  return {tokens, first};
}

double relative_error(std::span<const float> got, std::span<const float> want) {
  double norm = 0, error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    norm += want[i] * want[i];
    error += std::pow(got[i] - want[i], 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("logits are near the exact device's, and the same tokens follow") {
  for (const auto spec : specs) {
    CAPTURE(spec);
    const auto want_from = set_up::exact(spec), got_from = set_up::cuda(spec);
    const auto prompt = random_tokens(40, 200, 3);
    const auto [want_tokens, want] = greedy(want_from, prompt);
    const auto [got_tokens, got] = greedy(got_from, prompt);
    CHECK(got_tokens == want_tokens);
    CHECK(relative_error(got, want) < 5e-3);
  }
}

TEST_CASE("chunks and neighbours change no bit of a model's logits") {
  const auto s = set_up::cuda(specs[0]);
  const auto runner = s.runner();
  const auto ids = random_tokens(45, 300, 4), other = random_tokens(9, 300, 5);
  const kv_space whole(s.options.layout, ids.size());
  const auto expected = feed(*runner, whole, ids, ids.size());
  for (const std::size_t chunk : {1u, 7u, 16u, 32u}) {
    CAPTURE(chunk);
    const kv_space kv(s.options.layout, ids.size());
    CHECK(feed(*runner, kv, ids, chunk) == expected);
    for (std::size_t b = 0; b < kv.blocks().size(); ++b)
      CHECK(std::ranges::equal(kv.block(b, s.options.layout), whole.block(b, s.options.layout)));
  }
  const kv_space mine(s.options.layout, ids.size()), theirs(s.options.layout, other.size());
  feed(*runner, mine, std::span(ids).first(44), 512);
  std::vector<float> logits(300);
  const std::array items{batch_item{other, 0, theirs.blocks(), false},
                         batch_item{std::span(ids).last(1), 44, mine.blocks(), true}};
  REQUIRE(runner->forward(items, logits).has_value());
  CHECK(logits == expected);
}

TEST_CASE("tokens and checksums come from the device: what its logits and blocks say") {
  const auto s = set_up::cuda(specs[0]);
  const auto runner = s.runner();
  REQUIRE(runner->chooses());
  REQUIRE(runner->checks());
  const auto ids = random_tokens(33, 300, 6);
  const kv_space whole(s.options.layout, ids.size()), again(s.options.layout, ids.size());
  const auto logits = feed(*runner, whole, ids, ids.size());
  const token_choice greedy;
  chosen_token token;
  std::vector<std::uint64_t> sums(2);
  batch_item item{ids, 0, again.blocks()};
  item.choose = &greedy;
  item.chosen = &token;
  item.checksums = sums;
  REQUIRE(runner->forward({&item, 1}, {}).has_value());
  CHECK(token.id == static_cast<std::int32_t>(argmax(logits)));
  for (std::size_t b = 0; b < 2; ++b) CHECK(sums[b] == checksum64(again.block(b, s.options.layout)));
}

TEST_CASE("DeepSeek's latents, heads of 576 dimensions, come to the exact device's logits and tokens") {
  constexpr std::string_view spec =
      "dummy:deepseek-v2-lite,layers=2,dim=64,heads=2,ffn=32,vocab=200,ctx=96,type=f16";
  const auto want_from = set_up::exact(spec), got_from = set_up::cuda(spec);
  const auto prompt = random_tokens(12, 200, 7);
  const auto [want_tokens, want] = greedy(want_from, prompt);
  const auto [got_tokens, got] = greedy(got_from, prompt);
  CHECK(got_tokens == want_tokens);
  CHECK(relative_error(got, want) < 5e-3);
}

TEST_CASE("a model whose heads no kernel takes is refused by name before it is loaded") {
  const auto dev = mooncaf::cuda::make_device(simt::make_simt_accelerator(), 1);
  const auto m = model::dummy(
      *dev, unwrap(dummy_shape("dummy:layers=1,dim=64,heads=1,kv_heads=1,head_dim=704,ffn=64,vocab=99")), 1);
  REQUIRE_FALSE(m.has_value());
  CHECK(m.error() == ec::unsupported);
  CHECK(m.error().detail.find(
            "heads of 704 dimensions are not offered on this device, which takes up to 640") !=
        std::string::npos);
}
