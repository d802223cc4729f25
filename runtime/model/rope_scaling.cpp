#include "runtime/model/rope_scaling.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

namespace mooncaf {

std::vector<float> plain_inv_freq(std::uint32_t head_dim, double base) {
  std::vector<float> out(head_dim / 2);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(std::pow(base, -2.0 * static_cast<double>(i) / head_dim));
  return out;
}

rope_table yarn_table(std::uint32_t head_dim, double base, const yarn_params& p) {
  // Pair i turns original_context · base^(-2i/d) / 2π times over the original context; solved for i.
  const auto pair_with_turns = [&](double turns) {
    return head_dim * std::log(p.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const auto first = pair_with_turns(p.beta_fast), last = pair_with_turns(p.beta_slow);
  const double low = std::max(0.0, p.truncate ? std::floor(first) : first);
  double high = std::min(head_dim - 1.0, p.truncate ? std::ceil(last) : last);
  if (low == high) high += 0.001;

  rope_table table;
  table.inv_freq.resize(head_dim / 2);
  for (std::size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double keep = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double freq = std::pow(base, -2.0 * static_cast<double>(i) / head_dim);
    table.inv_freq[i] = static_cast<float>(freq * keep + freq / p.factor * (1 - keep));
  }
  table.attention_scale =
      static_cast<float>(p.attention_factor * (0.1 * std::log(std::max(1.0, p.factor)) + 1));
  return table;
}

void slow_as_llama3(std::span<float> inv_freq, const llama3_params& p) {
  for (auto& f : inv_freq) {
    const double turns = p.original_context * f / (2 * std::numbers::pi);
    const double keep = std::clamp((turns - p.low_turns) / (p.high_turns - p.low_turns), 0.0, 1.0);
    f = static_cast<float>(f * keep + f / p.factor * (1 - keep));
  }
}

namespace {

tl::unexpected<error> bad_value(const gguf_file& file, const std::string& key, double value,
                                const char* wanted) {
  return fail(ec::corrupt,
              file.name() + ": metadata '" + key + "' is " + std::to_string(value) + ", not " + wanted);
}

/// A number in [low, high].
result<double> number_within(const gguf_file& file, const std::string& key, double fallback, double low,
                             double high, const char* wanted) {
  auto value = file.number(key, fallback);
  if (value && !(*value >= low && *value <= high)) return bad_value(file, key, *value, wanted);
  return value;
}

result<rope_table> yarn_from_gguf(const gguf_file& file, const std::string& prefix, std::uint32_t head_dim,
                                  double base, double factor, std::uint32_t context_length) {
  yarn_params p;
  p.factor = factor;
  const struct {
    const char* key;
    double* into;
    double fallback, low, high;
  } fields[] = {
      {"original_context_length", &p.original_context, context_length / factor, 1, 1e9},
      {"yarn_beta_fast", &p.beta_fast, 32, 1e-3, 1e6},
      {"yarn_beta_slow", &p.beta_slow, 1, 1e-3, 1e6},
      {"attn_factor", &p.attention_factor, 1, 1e-3, 1e3},
  };
  for (const auto& f : fields) {
    auto value =
        number_within(file, prefix + "scaling." + f.key, f.fallback, f.low, f.high, "a sane YaRN setting");
    if (!value) return fail(std::move(value.error()));
    *f.into = *value;
  }
  return yarn_table(head_dim, base, p);
}

/// Divides each frequency by its entry of this tensor, where the file has one.
result<void> apply_divisors(const gguf_file& file, const char* name, std::vector<float>& inv_freq) {
  const auto* t = file.tensor(name);
  if (t == nullptr) return {};
  if (t->type != ggml_type::f32 || t->n_dims != 1 || t->cols() != inv_freq.size())
    return fail(ec::corrupt,
                file.name() + ": tensor '" + name + "' is not F32 [" + std::to_string(inv_freq.size()) + "]");
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    float divisor = 1;
    std::memcpy(&divisor, t->data.data() + i * sizeof divisor, sizeof divisor);
    if (!(divisor > 0) || !std::isfinite(divisor))
      return fail(ec::corrupt, file.name() + ": tensor '" + name + "' has entry " + std::to_string(i) +
                                   " = " + std::to_string(divisor) + ", not a positive number");
    inv_freq[i] /= divisor;
  }
  return {};
}

}  // namespace

// Llama 3 and LongRoPE have no kind of their own in GGUF: a tensor of divisors stands for them.
result<rope_table> rope_from_gguf(const gguf_file& file, std::string_view arch, std::uint32_t head_dim,
                                  std::uint32_t context_length) {
  const auto prefix = std::string(arch) + ".rope.";
  auto rope_dim = file.unsigned_integer(prefix + "dimension_count", head_dim);
  if (!rope_dim) return fail(std::move(rope_dim.error()));
  if (*rope_dim < 2 || *rope_dim > head_dim || *rope_dim % 2 != 0)
    return fail(ec::corrupt, file.name() + ": '" + prefix + "dimension_count' is " +
                                 std::to_string(*rope_dim) + ", not an even part of a head of " +
                                 std::to_string(head_dim));
  const auto dims = static_cast<std::uint32_t>(*rope_dim);
  auto base = number_within(file, prefix + "freq_base", 10000, 1.001, 1e12, "a base between 1 and 1e12");
  if (!base) return fail(std::move(base.error()));
  auto kind = file.text(prefix + "scaling.type", "linear");
  if (!kind) return fail(std::move(kind.error()));
  // Older files name the linear factor `scale_linear`.
  const bool old_name = !file.has(prefix + "scaling.factor") && file.has(prefix + "scale_linear");
  auto factor = number_within(file, prefix + (old_name ? "scale_linear" : "scaling.factor"), 1, 0, 1e6,
                              "a factor between 0 and 1e6");
  if (!factor) return fail(std::move(factor.error()));
  const double stretch = *factor == 0 ? 1 : *factor;  // 0 stands for "not set"

  rope_table table;
  if (*kind == "yarn") {
    auto yarn = yarn_from_gguf(file, prefix, dims, *base, stretch, context_length);
    if (!yarn) return yarn;
    table = std::move(*yarn);
  } else if (*kind == "linear" || *kind == "none") {
    table.inv_freq = plain_inv_freq(dims, *base);
    if (*kind == "linear")
      for (auto& f : table.inv_freq) f = static_cast<float>(f / stretch);
  } else {
    return fail(ec::unsupported, file.name() + ": rope scaling of type '" + std::string(kind->substr(0, 40)) +
                                     "' is not offered; none, linear, yarn and rope_freqs.weight are");
  }
  if (auto done = apply_divisors(file, "rope_freqs.weight", table.inv_freq); !done)
    return fail(std::move(done.error()));
  constexpr const char* short_factors = "rope_factors_short.weight";
  if (file.tensor(short_factors) == nullptr) return table;
  if (auto done = apply_divisors(file, short_factors, table.inv_freq); !done)
    return fail(std::move(done.error()));
  auto original = number_within(file, prefix + "scaling.original_context_length", context_length, 1, 1e9,
                                "a number of tokens");
  auto scale = number_within(file, prefix + "scaling.attn_factor", 1, 1e-3, 1e3, "a sane factor");
  if (!original || !scale) return fail(std::move((original ? scale : original).error()));
  table.context_length = static_cast<std::uint32_t>(*original);
  table.attention_scale = static_cast<float>(*scale);
  return table;
}

}  // namespace mooncaf
