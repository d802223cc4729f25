#include "runtime/model/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/model/rope_scaling.hpp"

namespace mooncaf {

std::string_view to_string(model_arch arch) noexcept {
  switch (arch) {
    case model_arch::llama:
      return "llama";
    case model_arch::qwen2:
      return "qwen2";
    case model_arch::qwen3:
      return "qwen3";
    case model_arch::qwen2moe:
      return "qwen2moe";
    case model_arch::qwen3moe:
      return "qwen3moe";
    case model_arch::gemma2:
      return "gemma2";
    case model_arch::gemma3:
      return "gemma3";
    case model_arch::phi3:
      return "phi3";
    case model_arch::deepseek2:
      return "deepseek2";
    case model_arch::gpt_oss:
      return "gpt-oss";
  }
  return "unknown";
}

float model_config::score_scale() const noexcept {
  return attention_scale != 0 ? attention_scale : 1 / std::sqrt(static_cast<float>(head_dim));
}

std::uint64_t model_config::parameter_count() const noexcept {
  const auto& l = latent;
  const std::uint64_t heads = n_heads, width = dim;
  auto attention = width * (2 * q_dim() + 2 * kv_dim());
  if (l.rank != 0) {
    const auto queries = heads * l.query_dim();
    attention = (l.query_rank == 0 ? width * queries : l.query_rank * (width + queries)) + width * head_dim +
                heads * l.rank * (l.plain_dim + l.value_dim) + heads * l.value_dim * width;
  }
  const auto experts = std::uint64_t{ffn_dim} * std::max(n_experts, 1u) + shared_ffn_dim;
  const auto mixture = 3 * width * experts + width * n_experts, dense = 3 * width * dense_ffn_dim;
  return n_layers * attention + dense_layers * dense + (n_layers - dense_layers) * mixture +
         vocab_size * width * (tied_embeddings ? 1 : 2);
}

std::uint64_t model_config::dummy_bytes() const noexcept {
  return parameter_count() / block_elements(dummy_type) * block_bytes(dummy_type);
}

model_config config_of_layers(const model_config& whole, layer_range layers) {
  auto part = whole;
  part.n_layers = layers.count;
  if (!whole.windows.empty())
    part.windows.assign(whole.windows.begin() + layers.first, whole.windows.begin() + layers.end());
  part.dense_layers = std::min(whole.dense_layers - std::min(whole.dense_layers, layers.first), layers.count);
  return part;
}

model_config config_of_share(const model_config& whole, tensor_part part) {
  auto own = whole;
  own.n_heads = static_cast<std::uint32_t>(part.share(whole.n_heads).count);
  own.n_kv_heads = static_cast<std::uint32_t>(part.kv_heads(whole.n_kv_heads).count);
  return own;
}

kv_layout layout_of_share(const kv_layout& whole, tensor_part part) noexcept {
  auto own = whole;
  own.n_kv_heads = static_cast<std::uint32_t>(part.kv_heads(whole.n_kv_heads).count);
  own.block_heads = whole.n_kv_heads;
  return own;
}

result<void> check_tensor(const model_config& c, std::uint32_t ranks, bool whole_experts) {
  const auto refused = [&](const std::string& what) {
    return fail(ec::invalid_argument, "tensor: " + std::to_string(ranks) + " ranks cannot share " + what);
  };
  if (c.n_heads % ranks != 0)
    return refused("the model's " + std::to_string(c.n_heads) + " attention heads; allowed: its divisors");
  if (c.n_kv_heads % ranks != 0 && ranks % c.n_kv_heads != 0)
    return refused("the model's " + std::to_string(c.n_kv_heads) +
                   " KV heads; allowed: its divisors and multiples");
  if (whole_experts && c.n_experts < ranks)
    return fail(ec::invalid_argument, "expert: " + std::to_string(ranks) +
                                          " ranks cannot divide the model's " + std::to_string(c.n_experts) +
                                          " experts");
  return {};
}

kv_layout layout_of(const model_config& c, std::uint32_t block_tokens, kv_dtype dtype) noexcept {
  return {.n_layers = c.n_layers,
          .n_kv_heads = c.n_kv_heads,
          .head_dim = c.head_dim,
          .block_tokens = block_tokens,
          .dtype = dtype,
          .shared = c.latent.rank != 0};
}

namespace {

/// Reads the shape keys of one architecture; the first error sticks, so that reads can be listed one after
/// another.
class shape_reader {
 public:
  shape_reader(const gguf_file& file, std::string arch) : file_(file), prefix_(std::move(arch) + ".") {}

  /// @param fallback  for an absent key; without one an absent key is an error.
  std::uint32_t integer(const std::string& key, std::uint64_t low, std::uint64_t high,
                        std::optional<std::uint64_t> fallback = {}) {
    auto value =
        fallback ? file_.unsigned_integer(prefix_ + key, *fallback) : file_.unsigned_integer(prefix_ + key);
    if (!value) {
      // The accessor's code may be another, but without a required key the file is unusable.
      note({ec::corrupt, std::move(value.error().detail)});
      return static_cast<std::uint32_t>(low);
    }
    if (*value < low || *value > high) {
      note({ec::corrupt, file_.name() + ": metadata '" + prefix_ + key + "' is " + std::to_string(*value) +
                             ", not in [" + std::to_string(low) + ", " + std::to_string(high) + "]"});
      return static_cast<std::uint32_t>(low);
    }
    return static_cast<std::uint32_t>(*value);
  }

  /// @param fallback  for an absent key.
  double number(const std::string& key, double low, double high, double fallback) {
    auto value = file_.number(prefix_ + key, fallback);
    if (!value) note({ec::corrupt, std::move(value.error().detail)});
    else if (!(*value >= low && *value <= high))
      note({ec::corrupt, file_.name() + ": metadata '" + prefix_ + key + "' is " + std::to_string(*value) +
                             ", not in [" + std::to_string(low) + ", " + std::to_string(high) + "]"});
    return value.value_or(fallback);
  }

  float epsilon() {
    const auto key = prefix_ + "attention.layer_norm_rms_epsilon";
    auto value = file_.number(key);
    if (!value) {
      note({ec::corrupt, std::move(value.error().detail)});
      return 0;
    }
    if (!(*value >= 0 && *value <= 1))
      note({ec::corrupt,
            file_.name() + ": metadata '" + key + "' is " + std::to_string(*value) + ", not in [0, 1]"});
    return static_cast<float>(*value);
  }

  void require(bool condition, ec code, const std::string& what) {
    if (!condition) note({code, file_.name() + ": " + what});
  }
  void note(error e) {
    if (!error_) error_ = std::move(e);
  }
  std::optional<error>& first_error() noexcept { return error_; }

 private:
  const gguf_file& file_;
  std::string prefix_;
  std::optional<error> error_;
};

result<model_arch> arch_of(const gguf_file& file) {
  auto name = file.text("general.architecture");
  if (!name) return fail(ec::corrupt, std::move(name.error().detail));
  std::string known;
  for (const auto arch : {model_arch::llama, model_arch::qwen2, model_arch::qwen2moe, model_arch::qwen3,
                          model_arch::qwen3moe, model_arch::gemma2, model_arch::gemma3, model_arch::phi3}) {
    if (*name == to_string(arch)) return arch;
    known += (known.empty() ? "" : ", ") + std::string(to_string(arch));
  }
  return fail(ec::unsupported, file.name() + ": architecture '" + std::string(name->substr(0, 40)) +
                                   "' is not offered; " + known + " are");
}

/// The embedding's rows are the vocabulary: some files pad it beyond the token list.
result<std::uint32_t> vocab_of(const gguf_file& file, std::uint32_t dim) {
  const auto* table = file.tensor("token_embd.weight");
  if (table == nullptr) return fail(ec::corrupt, file.name() + ": tensor 'token_embd.weight' is missing");
  if (table->n_dims != 2 || table->cols() != dim || table->rows() > (1u << 24))
    return fail(ec::corrupt, file.name() + ": tensor 'token_embd.weight' is [" +
                                 std::to_string(table->rows()) + ", " + std::to_string(table->cols()) +
                                 "], not [vocabulary up to 2^24, " + std::to_string(dim) + "]");
  return static_cast<std::uint32_t>(table->rows());
}

bool is_qwen_mixture(model_arch arch) { return arch == model_arch::qwen2moe || arch == model_arch::qwen3moe; }

/// A mixture's experts; `ffn_dim` becomes that of one of them.
void read_experts(shape_reader& read, model_config& c) {
  c.n_experts = read.integer("expert_count", 0, 1 << 12, 0);
  if (c.n_experts == 0) {
    read.require(!is_qwen_mixture(c.arch), ec::corrupt,
                 "metadata '" + std::string(to_string(c.arch)) + ".expert_count' is missing");
    return;
  }
  read.require(c.arch == model_arch::llama || is_qwen_mixture(c.arch), ec::unsupported,
               "experts are offered in the architectures llama, qwen2moe and qwen3moe");
  c.experts_per_token = read.integer("expert_used_count", 1, c.n_experts);
  c.ffn_dim = read.integer("expert_feed_forward_length", 1, 1 << 20, c.ffn_dim);
  if (c.arch != model_arch::qwen2moe) return;
  c.normalise_experts = false;
  c.shared_gated = true;
  c.shared_ffn_dim = read.integer("expert_shared_feed_forward_length", 1, 1 << 20);
}

/// Which layers see a window: all of them, or by the family's pattern.
void read_windows(shape_reader& read, model_config& c) {
  if (c.arch == model_arch::qwen2 || c.arch == model_arch::qwen3 || is_qwen_mixture(c.arch)) return;
  const auto window =
      read.integer("attention.sliding_window", 0, 1 << 28, c.arch == model_arch::gemma2 ? 4096 : 0);
  if (window == 0) return;
  const auto pattern = c.arch == model_arch::gemma2 ? 2u
                       : c.arch == model_arch::gemma3
                           ? read.integer("attention.sliding_window_pattern", 1, 1024, 6)
                           : 0u;
  c.windows.assign(c.n_layers, window);
  for (std::uint32_t i = 0; pattern != 0 && i < c.n_layers; ++i)
    if ((i + 1) % pattern == 0) c.windows[i] = 0;
}

void read_gemma(shape_reader& read, model_config& c) {
  c.gelu = c.post_norms = true;
  c.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c.dim)));
  // Files do not hold the divisor of scores. It is the size of a head but in the largest model of each
  // generation, which its number of layers gives away.
  const bool largest = c.n_layers == (c.arch == model_arch::gemma2 ? 46u : 62u);
  c.attention_scale = 1 / std::sqrt(static_cast<float>(largest ? c.dim / c.n_heads : c.head_dim));
  if (c.arch == model_arch::gemma3) {
    c.local_inv_freq = plain_inv_freq(c.head_dim, read.number("rope.freq_base_swa", 1.001, 1e12, 10000));
    return;
  }
  c.attention_softcap = static_cast<float>(read.number("attn_logit_softcapping", 1e-3, 1e6, 50));
  c.logit_softcap = static_cast<float>(read.number("final_logit_softcapping", 1e-3, 1e6, 30));
}

}  // namespace

// Tensors decide where keys are silent: files do not say whether they have norms of queries, biases or an
// output matrix.
result<model_config> config_from_gguf(const gguf_file& file) {
  if (const auto parts = file.unsigned_integer("split.count", 0); parts.value_or(0) > 1)
    return fail(ec::unsupported, file.name() + ": is one of " + std::to_string(*parts) +
                                     " parts of a model; join them into one file first (gguf-split --merge)");
  auto arch = arch_of(file);
  if (!arch) return fail(std::move(arch.error()));
  shape_reader read(file, std::string(to_string(*arch)));
  model_config c;
  c.arch = *arch;
  c.name = std::string(file.text("general.name", "").value_or(""));
  c.n_layers = read.integer("block_count", 1, 1024);
  c.dim = read.integer("embedding_length", 1, 1 << 18);
  c.n_heads = read.integer("attention.head_count", 1, 1024);
  c.n_kv_heads = read.integer("attention.head_count_kv", 1, 1024, c.n_heads);
  c.head_dim = read.integer("attention.key_length", 2, 1024, c.dim / c.n_heads);
  const auto value_dim = read.integer("attention.value_length", 1, 1024, c.head_dim);
  c.ffn_dim = read.integer("feed_forward_length", 1, 1 << 20);
  c.context_length = read.integer("context_length", 1, 1 << 28);
  c.rms_eps = read.epsilon();
  c.rope_neox =
      c.arch != model_arch::llama;  // converters permute Llama's q and k rows so that pairs are neighbours
  c.qk_norm = file.tensor("blk.0.attn_q_norm.weight") != nullptr;
  c.tied_embeddings = file.tensor("output.weight") == nullptr;
  c.ffn_biases = c.arch == model_arch::llama && file.tensor("blk.0.ffn_gate.bias") != nullptr;
  read_experts(read, c);
  read_windows(read, c);
  if (c.arch == model_arch::gemma2 || c.arch == model_arch::gemma3) read_gemma(read, c);
  read.require(c.n_heads % c.n_kv_heads == 0, ec::corrupt,
               std::to_string(c.n_heads) + " query heads do not share " + std::to_string(c.n_kv_heads) +
                   " KV heads evenly");
  read.require(c.head_dim % 2 == 0, ec::corrupt, "head size " + std::to_string(c.head_dim) + " is odd");
  read.require(value_dim == c.head_dim, ec::unsupported,
               "keys and values of different sizes are not offered");
  const bool normed =
      c.arch == model_arch::qwen3 || c.arch == model_arch::qwen3moe || c.arch == model_arch::gemma3;
  read.require(!normed || c.qk_norm, ec::corrupt, "tensor 'blk.0.attn_q_norm.weight' is missing");
  if (read.first_error()) return fail(std::move(*read.first_error()));

  auto vocab = vocab_of(file, c.dim);
  if (!vocab) return fail(std::move(vocab.error()));
  c.vocab_size = *vocab;
  auto rope = rope_from_gguf(file, to_string(c.arch), c.head_dim, c.context_length);
  if (!rope) return fail(std::move(rope.error()));
  c.rope_inv_freq = std::move(rope->inv_freq);
  c.rope_attention_scale = rope->attention_scale;
  if (rope->context_length != 0) c.context_length = std::min(c.context_length, rope->context_length);
  return c;
}

}  // namespace mooncaf
