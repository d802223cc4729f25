// Small random models, one per feature of the Llama family, against Hugging Face's logits.

#include <doctest/doctest.h>

#include "gpu/cuda/cuda_device.hpp"
#include "tests/golden/model/logit_distance.hpp"
#include "tests/support/simt/simt_accelerator.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

const std::string data_folder = std::string(MOONCAF_TEST_DATA) + "/model/";

double worst_distance(device& dev, const golden_case& golden, kv_dtype dtype) {
  return distance_to(dev, load_model(dev, data_folder + golden.name + ".gguf"), golden, dtype).worst;
}

}  // namespace

TEST_CASE("every variant of the Llama family gives Hugging Face's logits") {
  const auto exact = make_host_device({.exact = true});
  const auto cases = read_golden(std::string(MOONCAF_GOLDEN) + "/tiny.txt");
  CHECK(cases.size() == 6);
  for (const auto& golden : cases) {
    CAPTURE(golden.name);
    CHECK(worst_distance(*exact, golden, kv_dtype::f32) < 1e-3);
  }
}

TEST_CASE("the fast device stays close to them") {
  // Activations go to int8 blocks against quantised weights: 1/254 of the block's largest entry per factor.
  // Attention rounds queries and contexts to 16 bits. These models have only 64 columns to average over, so
  // a good tenth of the logits' spread (about 2) is what the worst of thousands of logits may be off by.
  const auto fast = make_host_device({});
  for (const auto& golden : read_golden(std::string(MOONCAF_GOLDEN) + "/tiny.txt")) {
    CAPTURE(golden.name);
    CHECK(worst_distance(*fast, golden, kv_dtype::f16) < 0.3);
  }
}

TEST_CASE("the kernels of the CUDA device stay closer") {
  // Activations and weights are rounded to 11 bits each, and nothing else is.
  const auto gpu = cuda::make_device(simt::make_simt_accelerator(), 1);
  for (const auto& golden : read_golden(std::string(MOONCAF_GOLDEN) + "/tiny.txt")) {
    CAPTURE(golden.name);
    CHECK(worst_distance(*gpu, golden, kv_dtype::f16) < 0.04);
  }
}

TEST_CASE("every quantisation unpacks to the values of the reference implementation") {
  const auto exact = make_host_device({.exact = true});
  const auto mapped = unwrap(mapped_file::open(data_folder + "quantised_rows.gguf"));
  const auto file = unwrap(parse_gguf(mapped.bytes(), "quantised_rows.gguf"));
  std::size_t types = 0;
  for (const auto& rows : file.tensors()) {
    if (!rows.name.ends_with(".rows")) continue;
    ++types;
    const std::string kind(rows.name.substr(0, rows.name.find('.')));
    CAPTURE(kind);
    CHECK(kind == to_string(rows.type));
    const auto* values = file.tensor(kind + ".values");
    REQUIRE(values != nullptr);
    const auto w = unwrap(exact->load_weight(rows.type, rows.rows(), rows.cols(), rows.data));
    const auto out = unwrap(exact->allocate(values->data.size()));
    const auto queue = exact->make_queue(0);
    const device_turn turn(*queue);
    const std::vector<std::int32_t> ids{0, 1};
    queue->embed(*w, ids, {out->data(), 2, rows.cols(), rows.cols()});
    std::vector<float> ours(2 * rows.cols());
    queue->download(out->data(), ours);
    queue->synchronize();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      float expected = 0;
      std::memcpy(&expected, values->data.data() + i * sizeof expected, sizeof expected);
      CAPTURE(i);
      CHECK(ours[i] == doctest::Approx(expected).epsilon(1e-6));
    }
  }
  CHECK(types == 9);
}
