#include "runtime/model/model_config.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "runtime/model/rope_scaling.hpp"
#include "tests/runtime/model/gguf_builder.hpp"

using namespace mooncaf;
using namespace mooncaf::testing;

namespace {

/// The shape keys of a small Llama; `change` may add keys, `without` leaves one out.
result<model_config> read(const std::function<void(gguf_builder&)>& change = {},
                          std::string_view without = "", const std::string& arch = "llama",
                          bool embedding = true) {
  gguf_builder b;
  const auto key = [&](const char* name) { return arch + "." + name; };
  const auto u32 = [&](const char* name, std::uint32_t v) {
    if (name != without) b.u32(key(name), v);
  };
  if (without != "general.architecture") b.text("general.architecture", arch);
  u32("block_count", 2);
  u32("embedding_length", 8);
  u32("attention.head_count", 4);
  u32("attention.head_count_kv", 2);
  u32("feed_forward_length", 16);
  u32("context_length", 64);
  if (without != "attention.layer_norm_rms_epsilon") b.f32(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  if (change) change(b);
  if (embedding) b.tensor("token_embd.weight", {8, 3}, ggml_type::f32, std::string(96, '\0'));
  const auto bytes = b.bytes();
  auto file = parse_gguf(as_bytes_of(bytes), "m.gguf");
  REQUIRE(file.has_value());
  return config_from_gguf(*file);
}

void refused(const result<model_config>& config, ec code, std::string_view part) {
  REQUIRE_FALSE(config.has_value());
  INFO(to_string(config.error()));
  CHECK(config.error() == code);
  CHECK(config.error().detail.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a Llama file's shape is read with its defaults") {
  const auto c = read();
  REQUIRE(c.has_value());
  CHECK(c->n_layers == 2);
  CHECK(c->head_dim == 2);
  CHECK(c->vocab_size == 3);
  CHECK(c->rms_eps == 1e-6f);
  CHECK(c->tied_embeddings);
  CHECK_FALSE(c->rope_neox);
  CHECK_FALSE(c->qk_norm);
  CHECK(c->rope_inv_freq == std::vector<float>{1.0f});
  CHECK(c->rope_attention_scale == 1);
  CHECK(read({}, "attention.head_count_kv")->n_kv_heads == 4);
  CHECK(read({}, "", "qwen2")->rope_neox);
  const auto layout = layout_of(*c, 64, kv_dtype::f16);
  CHECK(layout.n_layers == 2);
  CHECK(layout.block_bytes() == 2u * 2 * 2 * 64 * 2 * 2);
}

TEST_CASE("missing and contradictory shape keys are refused by name") {
  for (const auto* key : {"block_count", "embedding_length", "attention.head_count", "feed_forward_length",
                          "context_length", "attention.layer_norm_rms_epsilon", "general.architecture"})
    refused(read({}, key), ec::corrupt, key);
  refused(read({}, "", "llama", false), ec::corrupt, "token_embd.weight");
  refused(read({}, "", "deepseek2"), ec::unsupported, "'deepseek2' is not offered; llama, qwen2,");
  refused(read({}, "", "gpt-oss"), ec::unsupported, "'gpt-oss' is not offered; llama, qwen2,");
  refused(read({}, "", "gpt2"), ec::unsupported, "'gpt2' is not offered; llama, qwen2,");
  const auto with = [](const char* key, std::uint32_t value, std::string_view without = "") {
    return read([=](gguf_builder& b) { b.u32(std::string("llama.") + key, value); }, without);
  };
  refused(with("block_count", 0, "block_count"), ec::corrupt, "'llama.block_count' is 0, not in [1, 1024]");
  refused(with("attention.head_count_kv", 3, "attention.head_count_kv"), ec::corrupt, "evenly");
  refused(with("attention.key_length", 3), ec::corrupt, "odd");
  refused(with("attention.value_length", 4), ec::unsupported, "different sizes");
  refused(with("expert_count", 8), ec::corrupt, "expert_used_count");
  refused(with("embedding_length", 16, "embedding_length"), ec::corrupt, "token_embd.weight");
  refused(with("rope.dimension_count", 1), ec::corrupt, "not an even part of a head of 2");
  refused(read([](gguf_builder& b) { b.f32("llama.rope.freq_base", std::nanf("")); }), ec::corrupt,
          "freq_base");
  refused(read([](gguf_builder& b) { b.f32("llama.rope.freq_base", 0); }), ec::corrupt, "freq_base");
  refused(read([](gguf_builder& b) { b.text("llama.rope.scaling.type", "longrope"); }), ec::unsupported,
          "longrope");
  refused(read([](gguf_builder& b) { b.text("llama.expert_count", "8"); }), ec::corrupt, "expert_count");
  refused(read([](gguf_builder& b) { b.tensor("rope_freqs.weight", {1}, ggml_type::f32, f32_bytes({0})); }),
          ec::corrupt, "rope_freqs.weight");
  refused(read({}, "", "qwen3"), ec::corrupt, "attn_q_norm");
  refused(read([](gguf_builder& b) { b.scalar("split.count", gguf_type::u16, std::uint16_t{3}); }),
          ec::unsupported, "one of 3 parts");
}

TEST_CASE("linear scaling and Llama 3 divisors slow the pairs") {
  const auto linear = read([](gguf_builder& b) { b.f32("llama.rope.scaling.factor", 4); });
  CHECK(linear->rope_inv_freq == std::vector<float>{0.25f});
  const auto old_name = read([](gguf_builder& b) { b.f32("llama.rope.scale_linear", 2); });
  CHECK(old_name->rope_inv_freq == std::vector<float>{0.5f});
  const auto divided =
      read([](gguf_builder& b) { b.tensor("rope_freqs.weight", {1}, ggml_type::f32, f32_bytes({8})); });
  CHECK(divided->rope_inv_freq == std::vector<float>{0.125f});
}

TEST_CASE("YaRN keeps fast pairs, slows slow pairs in full and grows sin and cos") {
  yarn_params p;
  p.factor = 4;
  p.original_context = 4096;
  const auto table = yarn_table(128, 10000, p);
  const auto plain = plain_inv_freq(128, 10000);
  REQUIRE(table.inv_freq.size() == 64);
  CHECK(table.inv_freq[0] == plain[0]);
  CHECK(table.inv_freq[10] == plain[10]);
  CHECK(table.inv_freq[63] == doctest::Approx(plain[63] / 4).epsilon(1e-6));
  for (std::size_t i = 0; i < 64; ++i) {
    CHECK(table.inv_freq[i] <= plain[i]);
    CHECK(table.inv_freq[i] >= plain[i] / 4 * 0.99999f);
  }
  CHECK(table.attention_scale == doctest::Approx(1 + 0.1 * std::log(4.0)));
}

TEST_CASE("dummy shapes: names, spelled-out shapes and overrides") {
  const auto big = dummy_shape("dummy:llama3-8b");
  REQUIRE(big.has_value());
  CHECK(big->n_layers == 32);
  CHECK(big->head_dim == 128);
  CHECK(big->rope_inv_freq.size() == 64);
  CHECK(big->parameter_count() == doctest::Approx(8.03e9).epsilon(0.01));
  CHECK(dummy_shape("dummy:llama3-70b")->n_layers == 80);
  CHECK(dummy_shape("dummy:smollm2-135m")->parameter_count() == doctest::Approx(135e6).epsilon(0.01));
  CHECK(dummy_shape("dummy:qwen2.5-0.5b")->arch == model_arch::qwen2);
  const auto latent = dummy_shape("dummy:deepseek-v2-lite");
  REQUIRE(latent.has_value());
  // 1,152 bytes of KV per token and layer.
  CHECK(latent->parameter_count() == doctest::Approx(15.7e9).epsilon(0.01));
  CHECK(layout_of(*latent, 64, kv_dtype::f16).bytes_per_token() == 27 * 1152);
  CHECK(dummy_shape("dummy:deepseek-v2-lite,layers=1")->dense_layers == 1);
  const auto oss = dummy_shape("dummy:gpt-oss-20b");
  REQUIRE(oss.has_value());
  CHECK(oss->parameter_count() == doctest::Approx(20.9e9).epsilon(0.01));
  CHECK((oss->window(0) == 128 && oss->window(1) == 0 && oss->windows.size() == 24));
  const auto own =
      dummy_shape("dummy:layers=4,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000,type=Q8_0,ctx=99");
  REQUIRE(own.has_value());
  CHECK(own->n_kv_heads == 2);
  CHECK(own->head_dim == 64);
  CHECK(own->dummy_type == ggml_type::q8_0);
  CHECK(own->context_length == 99);
  CHECK(own->name == "dummy:layers=4,dim=256,heads=4,kv_heads=2,ffn=512,vocab=1000,type=Q8_0,ctx=99");
  const auto changed = dummy_shape("dummy:llama3-8b,layers=4,type=f16");
  CHECK(changed->n_layers == 4);
  CHECK(changed->dummy_type == ggml_type::f16);
}

TEST_CASE("a dummy shape that makes no sense is refused with the part") {
  const struct {
    const char* spec;
    const char* part;
  } cases[] = {
      {"llama3-8b", "does not begin"},
      {"dummy:", "is none of"},
      {"dummy:gpt", "'gpt' is none of"},
      {"dummy:layers=4", "dim= is missing"},
      {"dummy:layers=0,dim=64,heads=2,ffn=64,vocab=10", "layers=0"},
      {"dummy:layers=x", "layers=x"},
      {"dummy:layers=99999999999", "layers=99999999999"},
      {"dummy:llama3-8b,type=q3_k", "'q3_k'"},
      {"dummy:llama3-8b,color=red", "'color=red'"},
      {"dummy:llama3-8b,smollm2-135m", "'smollm2-135m'"},
      {"dummy:layers=1,dim=100,heads=2,ffn=64,vocab=10", "dim = 100 is not a multiple of 32"},
      {"dummy:layers=1,dim=64,heads=3,kv_heads=2,ffn=64,vocab=10", "does not divide"},
      {"dummy:layers=1,dim=64,heads=64,ffn=64,vocab=10", "head size 1"},
      {"dummy:smollm2-135m,type=q4_k", "q4_k"},
      {"dummy:deepseek-v2-lite,type=q4_k", "q4_k"},
      {"dummy:deepseek-v2-lite,head_dim=64", "fixed by latent attention"},
  };
  for (const auto& c : cases) {
    const auto config = dummy_shape(c.spec);
    CAPTURE(c.spec);
    REQUIRE_FALSE(config.has_value());
    INFO(to_string(config.error()));
    CHECK(config.error() == ec::invalid_argument);
    std::string detail = config.error().detail;
    for (auto& ch : detail) ch = ch == 'Q' ? 'q' : ch == 'K' ? 'k' : ch;
    CHECK(detail.find(c.part) != std::string::npos);
  }
}
