// Small random models of every family, as Hugging Face folders, against transformers' logits.

#include <doctest/doctest.h>

#include "gpu/cuda/cuda_device.hpp"
#include "gpu/linked/linked_device.hpp"
#include "tests/golden/model/gguf_of_folder.hpp"
#include "tests/golden/model/logit_distance.hpp"
#include "tests/support/simt/simt_accelerator.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

const std::string data_folder = std::string(MOONCAF_TEST_DATA) + "/model/";

std::vector<golden_case> cases() { return read_golden(std::string(MOONCAF_GOLDEN) + "/hf.txt"); }

golden_distance distance_on(device& dev, const golden_case& golden, kv_dtype dtype) {
  return distance_to(dev, load_folder(dev, data_folder + golden.name), golden, dtype);
}

}  // namespace

TEST_CASE("every family gives transformers' logits and greedy tokens") {
  const auto exact = make_host_device({.exact = true});
  CHECK(cases().size() == 20);
  for (const auto& golden : cases()) {
    CAPTURE(golden.name);
    const auto d = distance_on(*exact, golden, kv_dtype::f32);
    CHECK(d.worst < 1e-3);
    CHECK(d.same_greedy);
  }
}

TEST_CASE("the fast device stays close to them") {
  // Plain weights: what is rounded are queries, contexts and KV, to 16 bits. Four-bit ones are multiplied
  // with activations in 8 bits (tiny_models_test.cpp).
  const auto fast = make_host_device({});
  for (const auto& golden : cases()) {
    CAPTURE(golden.name);
    const auto d = distance_on(*fast, golden, kv_dtype::f16);
    const bool packed = golden.name == "hf-gptq" || golden.name == "hf-awq";
    CHECK(d.worst < (packed ? 0.3 : 0.05));
    CHECK((d.same_greedy || packed));
  }
}

TEST_CASE("the kernels of the CUDA device stay close, too") {
  const auto gpu = cuda::make_device(simt::make_simt_accelerator(), 1);
  for (const auto& golden : cases()) {
    CAPTURE(golden.name);
    CHECK(distance_on(*gpu, golden, kv_dtype::f16).worst < 0.05);
  }
}

TEST_CASE("a folder and a GGUF file of the same weights give the same bits") {
  const auto exact = make_host_device({.exact = true});
  const auto folder = load_folder(*exact, data_folder + "hf-qwen3");
  const auto file = load_model(*exact, data_folder + "tiny-qwen3.gguf");
  const auto ids = random_tokens(70, 96, 5);
  runner_options options;
  options.layout = folder->layout(16, kv_dtype::f32);
  const kv_space a(options.layout, ids.size()), b(options.layout, ids.size());
  CHECK(feed(*unwrap(model_runner::make(folder, *exact, options)), a, ids, 512) ==
        feed(*unwrap(model_runner::make(file, *exact, options)), b, ids, 512));
}

TEST_CASE("the same weights as a GGUF file of the family's architecture give the same logits") {
  const auto exact = make_host_device({.exact = true});
  const auto ids = random_tokens(120, 96, 5);
  for (const std::string name :
       {"hf-mistral", "hf-mixtral", "hf-qwen3moe", "hf-gemma2", "hf-gemma3", "hf-phi3", "hf-phi4"}) {
    CAPTURE(name);
    const auto folder = open_rewritten(data_folder + name);
    const auto bytes = to_gguf(*folder);
    const auto file = unwrap(parse_gguf(as_bytes_of(bytes), name));
    const auto a = unwrap(model::load(*exact, *folder)), b = unwrap(model::load(*exact, gguf_source(file)));
    runner_options options;
    options.layout = a->layout(16, kv_dtype::f32);
    const kv_space left(options.layout, ids.size()), right(options.layout, ids.size());
    const auto want = feed(*unwrap(model_runner::make(a, *exact, options)), left, ids, 512);
    const auto got = feed(*unwrap(model_runner::make(b, *exact, options)), right, ids, 512);
    // Files keep factors as f32, and architecture llama rotary pairs side by side: sums differ in last
    // digits.
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(got[i] - want[i]) < 1e-5f);
  }
}

TEST_CASE("chunks, neighbours and reused prefixes change no bit of any family") {
  const auto host = make_host_device({});
  const auto linked =
      unwrap(make_linked_device({{}, {std::size_t{4} << 30, std::chrono::microseconds(20)}, 2}));
  const auto ids = random_tokens(150, 96, 3), other = random_tokens(61, 96, 4);
  for (const auto& golden : cases()) {
    CAPTURE(golden.name);
    const auto m = load_folder(*host, data_folder + golden.name);
    runner_options options;
    options.layout = m->layout(16, kv_dtype::f16);
    options.max_logit_rows = 2;
    const auto runner = unwrap(model_runner::make(m, *host, options));
    const kv_space whole(options.layout, ids.size());
    const auto expected = feed(*runner, whole, ids, ids.size());
    for (const std::size_t chunk : {1u, 33u, 64u}) {
      CAPTURE(chunk);
      const kv_space kv(options.layout, ids.size());
      CHECK(feed(*runner, kv, ids, chunk) == expected);
    }
    // Somebody else's prefill beside the last token, whose prefix comes from a cache.
    kv_space kv(options.layout, ids.size());
    const kv_space beside(options.layout, other.size());
    for (std::size_t b = 0; b < 9; ++b) kv.copy_block(b, whole, options.layout);
    std::vector<float> logits(2 * 96);
    const std::array items{batch_item{other, 0, beside.blocks(), true},
                           batch_item{std::span(ids).subspan(144), 144, kv.blocks(), true}};
    REQUIRE(runner->forward(items, logits).has_value());
    CHECK(std::ranges::equal(std::span(logits).subspan(96), expected));
    // A device with memory of its own.
    const auto far = load_folder(*linked, data_folder + golden.name);
    options.device_blocks =
        unwrap(device_kv::make(*linked, options.layout, 10 * options.layout.block_bytes(), 150));
    const kv_space space(options.layout, ids.size());
    CHECK(feed(*unwrap(model_runner::make(far, *linked, options)), space, ids, 50) == expected);
  }
}
