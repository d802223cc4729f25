// Named and spelled-out shapes of models with random weights.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/model_config.hpp"
#include "runtime/model/rope_scaling.hpp"

namespace mooncaf {

namespace {

constexpr std::string_view prefix = "dummy:";

/// A shape before derived fields are filled in.
struct draft {
  model_config config;
  double rope_base = 10000;
};

/// Shapes as their makers published them, so that a dummy costs what the real model would.
std::optional<draft> named_shape(std::string_view name) {
  draft d;
  auto& c = d.config;
  c.rms_eps = 1e-5f;
  const auto shape = [&](std::uint32_t layers, std::uint32_t dim, std::uint32_t heads, std::uint32_t kv_heads,
                         std::uint32_t ffn, std::uint32_t vocab, std::uint32_t context) {
    c.n_layers = layers, c.dim = dim, c.n_heads = heads, c.n_kv_heads = kv_heads, c.ffn_dim = ffn;
    c.vocab_size = vocab, c.context_length = context;
  };
  if (name == "llama3-8b") {
    shape(32, 4096, 32, 8, 14336, 128256, 8192);
    d.rope_base = 500000;
  } else if (name == "llama3-70b") {
    shape(80, 8192, 64, 8, 28672, 128256, 8192);
    d.rope_base = 500000;
  } else if (name == "smollm2-135m") {
    shape(30, 576, 9, 3, 1536, 49152, 8192);
    d.rope_base = 100000;
    c.tied_embeddings = true;
  } else if (name == "qwen2.5-0.5b") {
    shape(24, 896, 14, 2, 4864, 151936, 32768);
    d.rope_base = 1000000;
    c.arch = model_arch::qwen2;
    c.rope_neox = true;
    c.rms_eps = 1e-6f;
    c.tied_embeddings = true;
  } else if (name == "deepseek-v2-lite") {
    shape(27, 2048, 16, 1, 1408, 102400, 163840);
    c.arch = model_arch::deepseek2;
    c.rms_eps = 1e-6f;
    c.latent = {.rank = 512, .query_rank = 0, .plain_dim = 128, .rope_dim = 64, .value_dim = 128};
    c.n_experts = 64, c.experts_per_token = 6, c.normalise_experts = false;
    c.dense_layers = 1, c.dense_ffn_dim = 10944, c.shared_ffn_dim = 2 * 1408;
  } else if (name == "gpt-oss-20b") {
    shape(24, 2880, 64, 8, 2880, 201088, 131072);
    c.arch = model_arch::gpt_oss;
    c.rope_neox = true;
    c.head_dim = 64;
    c.n_experts = 32, c.experts_per_token = 4;
    c.sinks = c.ffn_biases = true;
    c.glu_limit = 7;
    d.rope_base = 150000;
  } else {
    return std::nullopt;
  }
  return d;
}

/// Sets the fields that follow from the sizes of latent attention.
result<void> finish_latent(model_config& c) {
  if (c.head_dim != 0 || c.n_kv_heads != 1)
    return fail(ec::invalid_argument, "dummy model: head_dim= and kv_heads= are fixed by latent attention");
  c.head_dim = c.latent.rank + c.latent.rope_dim;
  c.attention_scale = 1 / std::sqrt(static_cast<float>(c.latent.query_dim()));
  c.dense_layers = std::min(c.dense_layers, c.n_layers);
  return {};
}

/// Columns of the model's matrices, which must be whole blocks of the type.
std::vector<std::pair<std::string_view, std::uint32_t>> columns_of(const model_config& c) {
  const bool latent = c.latent.rank != 0;
  std::vector<std::pair<std::string_view, std::uint32_t>> out{
      {"dim", c.dim},
      {"heads * head_dim", latent ? c.n_heads * c.latent.value_dim : c.q_dim()},
      {"ffn", c.ffn_dim}};
  if (latent)
    out.insert(out.end(), {{"the latent", c.latent.rank}, {"the first layers' ffn", c.dense_ffn_dim}});
  return out;
}

std::optional<ggml_type> type_named(std::string_view name) {
  for (const auto t : {ggml_type::f32, ggml_type::f16, ggml_type::bf16, ggml_type::q8_0, ggml_type::q4_0,
                       ggml_type::q4_1, ggml_type::q4_k, ggml_type::q5_k, ggml_type::q6_k}) {
    const auto known = to_string(t);
    bool same = known.size() == name.size();
    for (std::size_t i = 0; same && i < name.size(); ++i) {
      const char upper = name[i] >= 'a' && name[i] <= 'z' ? static_cast<char>(name[i] - 'a' + 'A') : name[i];
      same = upper == known[i];
    }
    if (same) return t;
  }
  return std::nullopt;
}

/// Applies one `key=value`.
result<void> apply(model_config& c, std::string_view key, std::string_view value) {
  if (key == "type") {
    const auto type = type_named(value);
    if (!type)
      return fail(ec::invalid_argument,
                  "dummy model: type '" + std::string(value) +
                      "' is not one of f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k");
    c.dummy_type = *type;
    return {};
  }
  const struct {
    std::string_view key;
    std::uint32_t* field;
    std::uint32_t high;
  } fields[] = {{"layers", &c.n_layers, 1024},     {"dim", &c.dim, 1 << 18},
                {"heads", &c.n_heads, 1024},       {"kv_heads", &c.n_kv_heads, 1024},
                {"head_dim", &c.head_dim, 1024},   {"ffn", &c.ffn_dim, 1 << 20},
                {"vocab", &c.vocab_size, 1 << 24}, {"ctx", &c.context_length, 1 << 28}};
  std::uint32_t number = 0;
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = failed == std::errc{} && end == value.data() + value.size();
  if (key == "tied" && whole && number <= 1) {
    c.tied_embeddings = number == 1;
    return {};
  }
  for (const auto& f : fields) {
    if (key != f.key) continue;
    if (!whole || number < 1 || number > f.high)
      return fail(ec::invalid_argument, "dummy model: " + std::string(key) + "=" + std::string(value) +
                                            " is not a number in [1, " + std::to_string(f.high) + "]");
    *f.field = number;
    return {};
  }
  return fail(
      ec::invalid_argument,
      "dummy model: '" + std::string(key) + "=" + std::string(value) +
          "' is not understood; keys are layers, dim, heads, kv_heads, head_dim, ffn, vocab, ctx, type "
          "and tied=0|1");
}

/// Sets the fields that follow from others, and checks that all fit together.
result<model_config> finish(draft d) {
  auto& c = d.config;
  const struct {
    const char* key;
    std::uint32_t value;
  } needed[] = {{"layers", c.n_layers},
                {"dim", c.dim},
                {"heads", c.n_heads},
                {"ffn", c.ffn_dim},
                {"vocab", c.vocab_size}};
  for (const auto& [key, value] : needed)
    if (value == 0) return fail(ec::invalid_argument, std::string("dummy model: ") + key + "= is missing");
  if (c.latent.rank != 0)
    if (auto done = finish_latent(c); !done) return fail(std::move(done.error()));
  if (c.n_kv_heads == 0) c.n_kv_heads = c.n_heads;
  if (c.head_dim == 0) c.head_dim = c.dim / c.n_heads;
  if (c.n_heads % c.n_kv_heads != 0)
    return fail(ec::invalid_argument, "dummy model: kv_heads=" + std::to_string(c.n_kv_heads) +
                                          " does not divide heads=" + std::to_string(c.n_heads));
  if (c.head_dim < 2 || c.head_dim % 2 != 0)
    return fail(ec::invalid_argument, "dummy model: head size " + std::to_string(c.head_dim) +
                                          " (dim / heads) is not even and positive");
  for (const auto& [what, cols] : columns_of(c))
    if (cols % block_elements(c.dummy_type) != 0)
      return fail(ec::invalid_argument, "dummy model: " + std::string(what) + " = " + std::to_string(cols) +
                                            " is not a multiple of " +
                                            std::to_string(block_elements(c.dummy_type)) + ", which type " +
                                            std::string(to_string(c.dummy_type)) + " needs");
  if (c.arch == model_arch::gpt_oss)
    for (std::uint32_t i = 0; i < c.n_layers; ++i) c.windows.push_back(i % 2 == 0 ? 128 : 0);
  c.rope_inv_freq = plain_inv_freq(c.latent.rank != 0 ? c.latent.rope_dim : c.head_dim, d.rope_base);
  return std::move(c);
}

}  // namespace

bool is_dummy_spec(std::string_view spec) noexcept { return spec.starts_with(prefix); }

result<model_config> dummy_shape(std::string_view spec) {
  if (!is_dummy_spec(spec))
    return fail(ec::invalid_argument, "'" + std::string(spec) + "' does not begin with \"dummy:\"");
  draft d;
  d.config.context_length = 8192;
  bool first = true;
  for (auto rest = spec.substr(prefix.size()); !rest.empty() || first; first = false) {
    const auto comma = rest.find(',');
    const auto part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const auto equals = part.find('=');
    if (equals != std::string_view::npos) {
      if (auto done = apply(d.config, part.substr(0, equals), part.substr(equals + 1)); !done)
        return fail(std::move(done.error()));
      continue;
    }
    auto named = first ? named_shape(part) : std::nullopt;
    if (!named)
      return fail(ec::invalid_argument, "dummy model: '" + std::string(part) +
                                            "' is none of llama3-8b, llama3-70b, smollm2-135m, qwen2.5-0.5b, "
                                            "deepseek-v2-lite, gpt-oss-20b and not "
                                            "of the form key=value");
    d = std::move(*named);
  }
  d.config.name = std::string(spec);
  return finish(std::move(d));
}

}  // namespace mooncaf
