#include "runtime/model/model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "gpu/host/dequantize.hpp"
#include "runtime/model/tensor_rows.hpp"
#include "tests/runtime/model/gguf_builder.hpp"
#include "tests/runtime/model/model_fixture.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

std::string read_file(const std::string& name) {
  std::ifstream in(std::string(MOONCAF_TEST_DATA) + "/model/" + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

result<std::shared_ptr<const model>> load_bytes(device& dev, const std::string& bytes) {
  const auto file = unwrap(parse_gguf(as_bytes_of(bytes), "m.gguf"));
  return model::load(dev, gguf_source(file));
}

result<model_identity> identify_bytes(const std::string& bytes, const std::string& name) {
  const auto file = unwrap(parse_gguf(as_bytes_of(bytes), name));
  return model::identify(gguf_source(file));
}

/// Replaces a text of the file by another of the same length.
std::string with(std::string bytes, std::string_view from, std::string_view to) {
  const auto at = bytes.find(from);
  REQUIRE(from.size() == to.size());
  REQUIRE(at != std::string::npos);
  return bytes.replace(at, from.size(), to);
}

/// A mixture whose routers are stored in 8 bits; or, with `expanded`, as the f32 numbers that those stand
/// for.
class packed_router final : public model_source {
 public:
  packed_router(std::shared_ptr<const model_source> inner, bool expanded)
      : inner_(std::move(inner)), expanded_(expanded) {}
  const std::string& name() const noexcept override { return inner_->name(); }
  result<model_config> config() const override { return inner_->config(); }
  std::string name_of(std::string_view gguf_name) const override { return inner_->name_of(gguf_name); }
  result<std::optional<source_tensor>> find(std::string_view name) const override {
    auto found = inner_->find(name);
    if (!name.ends_with("ffn_gate_inp.weight")) return found;
    const auto plain = as_f32(found->value());
    std::byte* to = nullptr;
    const auto packed = made_tensor(ggml_type::q8_0, plain.rows, plain.cols, to);
    for (std::size_t at = 0; at < plain.data.size(); at += 32 * sizeof(float)) {
      float values[32];
      std::memcpy(values, plain.data.data() + at, sizeof values);
      const auto scale = float_to_half(
          std::abs(*std::ranges::max_element(values, {}, [](float v) { return std::abs(v); })) / 127);
      std::memcpy(to, &scale, 2);
      for (std::size_t i = 0; i < 32; ++i)
        to[2 + i] = static_cast<std::byte>(std::lround(values[i] / half_to_float(scale)));
      to += 34;
    }
    return expanded_ ? as_f32(packed) : packed;
  }

 private:
  std::shared_ptr<const model_source> inner_;
  bool expanded_;
};

}  // namespace

TEST_CASE("a router computes with f32 numbers, however the file stores them") {
  const auto fast = make_host_device({});
  const auto path = std::string(MOONCAF_TEST_DATA) + "/model/hf-mixtral";
  const auto folder = unwrap(hf_source::open(path, map_files_of<mapped_file>(path)));
  const auto ids = random_tokens(60, 96, 8);
  const auto logits = [&](bool expanded) {
    const auto m = unwrap(model::load(*fast, packed_router(folder, expanded), folder));
    runner_options options;
    options.layout = m->layout(16, kv_dtype::f16);
    const kv_space kv(options.layout, ids.size());
    return feed(*unwrap(model_runner::make(m, *fast, options)), kv, ids, 64);
  };
  CHECK(logits(false) == logits(true));
}

TEST_CASE("fingerprints tell models apart and are the same everywhere") {
  const auto exact = make_host_device({.exact = true});
  const auto fast = make_host_device({});
  const auto bytes = read_file("tiny-llama.gguf");
  const auto reference = unwrap(load_bytes(*exact, bytes))->fingerprint();
  CHECK(unwrap(load_bytes(*fast, bytes))->fingerprint() == reference);
  // Checked in: two builds or hosts that disagree about it could never share a block.
  CHECK(to_string(reference) == "51b233b417abb677c7751947812856f9");
  auto damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  const auto other_rope = read_file("tiny-yarn.gguf");
  CHECK(unwrap(load_bytes(*exact, other_rope))->fingerprint() != reference);
  CHECK(unwrap(load_bytes(*exact, damaged))->fingerprint() != reference);
}

TEST_CASE("a process that computes nothing knows the fingerprint of those that do") {
  const auto dev = make_host_device({.exact = true});
  for (const auto* name : {"tiny-llama.gguf", "tiny-qwen2.gguf", "tiny-yarn.gguf"}) {
    CAPTURE(name);
    const auto bytes = read_file(name);
    const auto identity = unwrap(identify_bytes(bytes, name));
    const auto loaded = unwrap(load_bytes(*dev, bytes));
    CHECK(identity.fingerprint == loaded->fingerprint());
    CHECK(identity.config == loaded->config());
  }
  for (const auto* type : {"f32", "f16", "q4_0", "q4_1", "q8_0", "q4_k", "q6_k"}) {
    CAPTURE(type);
    const auto config = unwrap(dummy_shape(
        std::string("dummy:layers=2,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000,type=") + type));
    const auto identity = unwrap(model::identify_dummy(config, 1));
    CHECK(identity.fingerprint == unwrap(model::dummy(*dev, config, 1))->fingerprint());
    CHECK(identity.fingerprint != unwrap(model::identify_dummy(config, 2)).fingerprint);
  }
  const auto wrong = with(read_file("tiny-llama.gguf"), "output_norm.weight", "output_norn.weight");
  CHECK_FALSE(identify_bytes(wrong, "m.gguf").has_value());
}

TEST_CASE("a file with a missing or misshapen tensor is refused by name") {
  const auto dev = make_host_device({.exact = true});
  const auto bytes = read_file("tiny-qwen2.gguf");
  const auto refused = [&](const std::string& damaged, std::string_view part) {
    const auto m = load_bytes(*dev, damaged);
    REQUIRE_FALSE(m.has_value());
    INFO(to_string(m.error()));
    CHECK(m.error() == ec::corrupt);
    CHECK(m.error().detail.find(part) != std::string::npos);
    CHECK(m.error().detail.starts_with("m.gguf: "));
  };
  refused(with(bytes, "blk.1.ffn_down.weight", "blk.1.ffn_dawn.weight"),
          "'blk.1.ffn_down.weight' is missing");
  refused(with(bytes, "blk.0.attn_q.bias", "blk.0.attn_q.bios"), "'blk.0.attn_q.bias' is missing");
  refused(with(bytes, "output_norm.weight", "output_norn.weight"), "'output_norm.weight' is missing");
  refused(with(bytes, "token_embd.weight", "token_embt.weight"), "'token_embd.weight' is missing");
  refused(with(with(bytes, "blk.0.ffn_gate.weight", "blk.0.ffn_gato.weight"), "blk.0.attn_k.weight",
               "blk.0.attn_x.weight"),
          "'blk.0.attn_k.weight' is missing");
  std::string swapped = with(bytes, "blk.0.attn_q.weight", "blk.0.attn_?.weight");
  swapped = with(swapped, "blk.0.attn_k.weight", "blk.0.attn_q.weight");
  swapped = with(swapped, "blk.0.attn_?.weight", "blk.0.attn_k.weight");
  refused(swapped, "the metadata asks for [64, 64]");
}

TEST_CASE("a model file damaged at random is refused or loads") {
  const auto dev = make_host_device({.exact = true});
  const auto bytes = read_file("tiny-linear.gguf");
  const std::uint32_t seed = 9;
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t header = 6000;  // metadata and directory
  for (int round = 0; round < 2000; ++round) {
    auto damaged = bytes;
    for (auto n = 1 + random() % 3; n > 0; --n) damaged[random() % header] = static_cast<char>(random());
    if (const auto file = parse_gguf(as_bytes_of(damaged), "m.gguf"))
      (void)model::load(*dev, gguf_source(*file)).has_value();
  }
}

TEST_CASE("dummy models are the same for the same seed and of their quantised size") {
  const auto dev = make_host_device({});
  const auto config =
      unwrap(dummy_shape("dummy:layers=2,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000,type=q4_0"));
  const auto a = unwrap(model::dummy(*dev, config, 1));
  CHECK(a->fingerprint() == unwrap(model::dummy(*dev, config, 1))->fingerprint());
  CHECK(a->fingerprint() != unwrap(model::dummy(*dev, config, 2))->fingerprint());
  const std::uint64_t layer = 256 * (2 * 256 + 2 * 128) + 3 * 256 * 512;
  CHECK(config.dummy_bytes() ==
        (2 * layer + 2 * 1000 * 256) / 32 * 18);  // embedding and output are both there
}

TEST_CASE("a dummy that cannot fit is refused before it takes memory") {
  const auto dev = make_host_device({});
  REQUIRE(dev->info().memory_bytes > 0);  // else the check below would fill the machine
  const auto config = unwrap(dummy_shape("dummy:llama3-70b,layers=1024,type=f32"));
  const auto m = model::dummy(*dev, config, 1);
  REQUIRE_FALSE(m.has_value());
  CHECK(m.error() == ec::out_of_space);
}

TEST_CASE("dummy models of every type keep activations tame") {
  const auto dev = make_host_device({});
  for (const auto* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_k", "q6_k"}) {
    const auto config = unwrap(dummy_shape(
        "dummy:layers=2,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000,type=" + std::string(type)));
    const auto m = unwrap(model::dummy(*dev, config, 3));
    runner_options options;
    options.layout = m->layout(32, kv_dtype::f16);
    const auto runner = unwrap(model_runner::make(m, *dev, options));
    const kv_space kv(options.layout, 40);
    const auto logits = feed(*runner, kv, random_tokens(40, 1000, 1), 40);
    double square = 0;
    for (const float l : logits) square += static_cast<double>(l) * static_cast<double>(l);
    const double rms = std::sqrt(square / static_cast<double>(logits.size()));
    CAPTURE(type);
    CHECK(rms > 0.5);  // a normalised vector through a matrix of scale 1/sqrt(dim) has entries of size 1
    CHECK(rms < 2);
  }
}

TEST_CASE("a dummy Qwen brings its biases") {
  const auto dev = make_host_device({});
  const auto config = unwrap(dummy_shape("dummy:qwen2.5-0.5b,layers=1,vocab=500"));
  CHECK(config.rope_neox);
  const auto m = unwrap(model::dummy(*dev, config, 3));
  CHECK(m->layer(0).q_bias != nullptr);
  CHECK(m->layer(0).attention_out_bias == nullptr);
  CHECK(&m->output() == &m->embedding());
}
