#include "runtime/model/hf_config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "runtime/model/hf_families.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/model/rope_scaling.hpp"

namespace mooncaf {

using nlohmann::json;

namespace {

/// A family by the name that `model_type` has.
struct family {
  const char* name;
  model_arch arch;
};
constexpr family families[] = {
    {"llama", model_arch::llama},
    {"mistral", model_arch::llama},
    {"ministral", model_arch::llama},
    {"mixtral", model_arch::llama},
    {"qwen2", model_arch::qwen2},
    {"qwen3", model_arch::qwen3},
    {"qwen2_moe", model_arch::qwen2moe},
    {"qwen3_moe", model_arch::qwen3moe},
    {"gemma2", model_arch::gemma2},
    {"gemma3_text", model_arch::gemma3},
    {"phi3", model_arch::phi3},
    {"deepseek_v2", model_arch::deepseek2},
    {"deepseek_v3", model_arch::deepseek2},
    {"gpt_oss", model_arch::gpt_oss},
};

result<family> family_of(const std::string& type, const std::string& name) {
  std::string known;
  for (const auto& f : families) {
    if (type == f.name) return f;
    known += (known.empty() ? "" : ", ") + std::string(f.name);
  }
  return fail(ec::unsupported,
              name + ": model_type '" + type.substr(0, 40) + "' is not offered; " + known + " are");
}

bool is_gemma(model_arch arch) { return arch == model_arch::gemma2 || arch == model_arch::gemma3; }

/// Factors of LongRoPE, one for each pair.
std::vector<double> factors_of(json_reader& read, const char* key, std::size_t pairs) {
  std::vector<double> out;
  const auto* list = read.find(key);
  if (list != nullptr && list->is_array() && list->size() == pairs) {
    for (const auto& f : *list)
      if (f.is_number() && f.get<double>() > 0) out.push_back(f.get<double>());
  }
  if (out.size() == pairs) return out;
  read.note({ec::corrupt, "rope scaling: '" + std::string(key) + "' is not a list of " +
                              std::to_string(pairs) + " factors"});
  return std::vector<double>(pairs, 1);
}

/// The fields of rotary embedding: `rope_parameters`, or `rope_scaling` and the fields beside it in older
/// files.
struct rope_settings {
  json scaling = json::object();
  double base = 10000;
  std::uint32_t dims = 0;  ///< of a head, that are rotated
  double context = 0;      ///< `max_position_embeddings`
  double original = 0;     ///< `original_max_position_embeddings` of the file's outer level; 0: none
};

/// Each kind of scaling has its own fields under the same key, so each branch reads and checks its own.
result<rope_table> rope_from_hf(const rope_settings& s, const std::string& name) {
  json_reader read(s.scaling, name + ": rope scaling: ");
  const auto kind = read.text("rope_type", read.text("type", "default"));
  rope_table table;
  table.inv_freq = plain_inv_freq(s.dims, s.base);
  if (kind == "linear") {
    const auto factor = read.number("factor", 1e-3, 1e6);
    for (auto& f : table.inv_freq) f = static_cast<float>(f / factor);
  } else if (kind == "llama3") {
    const llama3_params p{read.number("factor", 1e-3, 1e6), read.number("low_freq_factor", 1e-3, 1e6),
                          read.number("high_freq_factor", 1e-3, 1e6),
                          read.number("original_max_position_embeddings", 1, 1e9, s.context)};
    read.require(p.low_turns < p.high_turns, ec::corrupt,
                 "'low_freq_factor' is not below 'high_freq_factor'");
    slow_as_llama3(table.inv_freq, p);
  } else if (kind == "yarn") {
    yarn_params p;
    p.factor = read.number("factor", 1, 1e6);
    p.original_context = read.number("original_max_position_embeddings", 1, 1e9, s.context);
    p.beta_fast = read.number("beta_fast", 1e-3, 1e6, 32);
    p.beta_slow = read.number("beta_slow", 1e-3, 1e6, 1);
    p.truncate = read.boolean("truncate", true);
    table = yarn_table(s.dims, s.base, p);
    const auto usual = [&](double m) { return p.factor <= 1 ? 1 : 0.1 * m * std::log(p.factor) + 1; };
    const auto mscale = read.number("mscale", 0, 1e3, 0), all = read.number("mscale_all_dim", 0, 1e3, 0);
    const auto fallback = mscale != 0 && all != 0 ? usual(mscale) / usual(all) : usual(1);
    table.attention_scale = static_cast<float>(read.number("attention_factor", 1e-3, 1e3, fallback));
  } else if (kind == "longrope" || kind == "su") {
    // Frequencies within the original context; `config_from_hf` ends the context there.
    const auto factors = factors_of(read, "short_factor", table.inv_freq.size());
    for (std::size_t i = 0; i < factors.size(); ++i)
      table.inv_freq[i] =
          static_cast<float>(std::pow(s.base, -2.0 * static_cast<double>(i) / s.dims) / factors[i]);
    const auto original = read.number("original_max_position_embeddings", 2, 1e9, s.original);
    const auto stretch = std::max(1.0, s.context / original);
    table.attention_scale = static_cast<float>(
        read.number("attention_factor", 1e-3, 1e3, std::sqrt(1 + std::log(stretch) / std::log(original))));
  } else if (kind == "dynamic") {
    // A stretch that begins behind `max_position_embeddings`, where what is served ends: see
    // runtime/model/README.md.
    read.number("factor", 1, 1e6);
  } else if (kind != "default") {
    read.note(
        {ec::unsupported, name + ": rope scaling of type '" + kind.substr(0, 40) +
                              "' is not offered; default, linear, dynamic, llama3, yarn and longrope are"});
  }
  if (read.first_error()) return fail(std::move(*read.first_error()));
  return table;
}

/// Reads the fields of one file into a shape.
class hf_reader {
 public:
  hf_reader(const json& file, const std::string& name, family f)
      : file_(file), read_(file, name + ": "), name_(name), family_(f) {
    c_.arch = f.arch;
  }

  result<model_config> run() {
    sizes();
    layers();
    experts();
    if (is_gemma(c_.arch)) gemma();
    if (c_.arch == model_arch::deepseek2) read_deepseek(read_, family_.name, c_);
    if (c_.arch == model_arch::gpt_oss) read_gpt_oss(read_, c_);
    if (read_.first_error()) return fail(std::move(*read_.first_error()));
    if (auto done = ropes(); !done) return fail(std::move(done.error()));
    if (read_.first_error()) return fail(std::move(*read_.first_error()));
    return std::move(c_);
  }

 private:
  /// Sizes that all families have, with each family's defaults for the fields that its files may leave out.
  void sizes() {
    // Files of Gemma 3 with vision leave out the fields that most of its sizes have in common.
    const bool sparse = c_.arch == model_arch::gemma3;
    const auto usual = [sparse](std::uint64_t value) {
      return sparse ? std::optional<std::uint64_t>(value) : std::nullopt;
    };
    c_.n_layers = read_.integer("num_hidden_layers", 1, 1024);
    c_.dim = read_.integer("hidden_size", 1, 1 << 18);
    c_.n_heads = read_.integer("num_attention_heads", 1, 1024, usual(8));
    c_.n_kv_heads = read_.integer("num_key_value_heads", 1, 1024, sparse ? 4 : c_.n_heads);
    c_.head_dim =
        read_.integer("head_dim", 2, 1024, is_gemma(c_.arch) ? 256 : std::max(2u, c_.dim / c_.n_heads));
    c_.ffn_dim = read_.integer("intermediate_size", 1, 1 << 20);
    c_.vocab_size = read_.integer("vocab_size", 1, 1 << 24, usual(262'208));
    c_.context_length = read_.integer("max_position_embeddings", 1, 1 << 28, usual(131'072));
    c_.rms_eps = static_cast<float>(read_.number("rms_norm_eps", 0, 1, 1e-6));
    c_.tied_embeddings = read_.boolean("tie_word_embeddings", is_gemma(c_.arch));
    c_.rope_neox = true;
    c_.qk_norm =
        c_.arch == model_arch::qwen3 || c_.arch == model_arch::qwen3moe || c_.arch == model_arch::gemma3;
    read_.require(c_.n_heads % c_.n_kv_heads == 0, ec::corrupt,
                  std::to_string(c_.n_heads) + " query heads do not share " + std::to_string(c_.n_kv_heads) +
                      " KV heads evenly");
    read_.require(c_.head_dim % 2 == 0, ec::corrupt, "head size " + std::to_string(c_.head_dim) + " is odd");
    c_.ffn_biases = read_.boolean("mlp_bias", false);
    read_.require(!c_.ffn_biases || std::string_view(family_.name) == "llama", ec::unsupported,
                  "biases of the feed-forward part ('mlp_bias') are offered in llama alone");
    const auto activation = read_.text(is_gemma(c_.arch) ? "hidden_activation" : "hidden_act",
                                       is_gemma(c_.arch) ? "gelu_pytorch_tanh" : "silu");
    c_.gelu = activation == "gelu_pytorch_tanh";
    read_.require(
        c_.gelu || activation == "silu", ec::unsupported,
        "activation '" + activation.substr(0, 40) + "' is not offered; silu and gelu_pytorch_tanh are");
  }

  /// Which layers see a window, by the list that newer files have, or by the family's habit.
  void layers() {
    const std::string kind = family_.name;
    const bool used = read_.boolean("use_sliding_window", !kind.starts_with("qwen"));
    // Old files of some families are silent about a window of 4,096; a null says that there is none.
    const bool usual = !file_.contains("sliding_window") && (is_gemma(c_.arch) || kind == "mistral" ||
                                                             kind == "ministral" || kind.starts_with("qwen"));
    const auto window = used ? read_.integer("sliding_window", 1, 1 << 28, usual ? 4096 : 0) : 0;
    if (window == 0) return;
    c_.windows.assign(c_.n_layers, window);
    // The mixtures have one kind of layer: fields that divide layers come from files of other Qwens, and mean
    // nothing.
    if (kind == "qwen3_moe") return;
    const auto* types = read_.find("layer_types");
    if (types != nullptr) {
      read_.require(types->is_array() && types->size() == c_.n_layers, ec::corrupt,
                    "'layer_types' is not a list of " + std::to_string(c_.n_layers));
      for (std::size_t i = 0; types->is_array() && i < std::min<std::size_t>(types->size(), c_.n_layers);
           ++i) {
        if ((*types)[i] == "full_attention") c_.windows[i] = 0;
        else
          read_.require((*types)[i] == "sliding_attention", ec::unsupported,
                        "'layer_types' has an entry that is neither full_attention nor sliding_attention");
      }
      return;
    }
    if (kind == "qwen2_moe") {
      // Files without a list: every other one of the first layers.
      const auto end = read_.integer("max_window_layers", 0, 1024, 28);
      for (std::uint32_t i = 0; i < c_.n_layers; ++i)
        if (i % 2 != 0 || i >= end) c_.windows[i] = 0;
      return;
    }
    const auto first = kind.starts_with("qwen") ? read_.integer("max_window_layers", 0, 1024, 28) : 0;
    const auto pattern = c_.arch == model_arch::gemma2 || c_.arch == model_arch::gpt_oss ? 2u
                         : c_.arch == model_arch::gemma3 ? read_.integer("sliding_window_pattern", 1, 1024, 6)
                                                         : 0u;
    for (std::uint32_t i = 0; i < c_.n_layers; ++i)
      if (i < first || (pattern != 0 && (i + 1) % pattern == 0)) c_.windows[i] = 0;
  }

  void experts() {
    const std::string kind = family_.name;
    if (kind == "mixtral") {
      c_.n_experts = read_.integer("num_local_experts", 1, 1 << 12);
    } else if (kind == "qwen2_moe" || kind == "qwen3_moe") {
      // Files had the first name before version 5 of transformers.
      c_.n_experts =
          read_.integer(read_.has("num_experts") ? "num_experts" : "num_local_experts", 1, 1 << 12);
      c_.ffn_dim = read_.integer("moe_intermediate_size", 1, 1 << 20);
      c_.normalise_experts = read_.boolean("norm_topk_prob", false);
      if (kind == "qwen2_moe") {
        c_.shared_gated = true;
        c_.shared_ffn_dim = read_.integer("shared_expert_intermediate_size", 1, 1 << 20, 5632);
        read_.require(read_.boolean("qkv_bias", true), ec::unsupported,
                      "attention without biases ('qkv_bias') is not offered in this family");
      }
      const auto* dense = read_.find("mlp_only_layers");
      read_.require(
          read_.integer("decoder_sparse_step", 0, 1024, 1) == 1 && (dense == nullptr || dense->empty()),
          ec::unsupported, "mixtures in some layers alone are not offered");
    } else {
      return;
    }
    c_.experts_per_token = read_.integer("num_experts_per_tok", 1, c_.n_experts);
  }

  void gemma() {
    c_.post_norms = true;
    c_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(c_.dim)));
    c_.attention_scale =
        static_cast<float>(1 / std::sqrt(read_.number("query_pre_attn_scalar", 1e-3, 1e6, 256)));
    c_.attention_softcap = static_cast<float>(read_.number("attn_logit_softcapping", 1e-3, 1e6, 0));
    c_.logit_softcap = static_cast<float>(read_.number("final_logit_softcapping", 1e-3, 1e6, 0));
    read_.require(!read_.boolean("use_bidirectional_attention", false), ec::unsupported,
                  "attention in both directions is not offered");
  }

  /// Finds the rotary settings in whichever of three places a file has them, and makes the frequencies.
  result<void> ropes() {
    rope_settings s;
    s.context = c_.context_length;
    s.original = read_.integer("original_max_position_embeddings", 0, 1 << 28, 0);
    s.base = read_.number("rope_theta", 1.001, 1e12, c_.arch == model_arch::gemma3 ? 1e6 : 10000);
    double partial = read_.number("partial_rotary_factor", 1e-3, 1, 1);
    const auto* parameters = read_.find("rope_parameters");
    const json* local = nullptr;
    if (parameters != nullptr && parameters->contains("full_attention")) {
      if (parameters->contains("sliding_attention")) local = &(*parameters)["sliding_attention"];
      parameters = &(*parameters)["full_attention"];
    }
    if (parameters == nullptr) parameters = read_.find("rope_scaling");
    if (parameters != nullptr) {
      s.scaling = *parameters;
      json_reader inner(*parameters, name_ + ": rope_parameters: ");
      s.base = inner.number("rope_theta", 1.001, 1e12, s.base);
      partial = inner.number("partial_rotary_factor", 1e-3, 1, partial);
      if (inner.first_error()) return fail(std::move(*inner.first_error()));
    }
    const auto head = c_.latent.rank != 0 ? c_.latent.rope_dim : c_.head_dim;
    s.dims = static_cast<std::uint32_t>(head * partial) / 2 * 2;
    if (s.dims == 0) return fail(ec::corrupt, name_ + ": 'partial_rotary_factor' leaves nothing to rotate");
    const auto kind =
        json_reader(s.scaling, "").text("rope_type", json_reader(s.scaling, "").text("type", ""));
    if (s.original == 0 && (kind == "longrope" || kind == "su"))
      s.original = json_reader(s.scaling, "")
                       .integer("original_max_position_embeddings", 0, 1 << 28, c_.context_length);
    auto table = rope_from_hf(s, name_);
    if (!table) return fail(std::move(table.error()));
    c_.rope_inv_freq = std::move(table->inv_freq);
    c_.rope_attention_scale = table->attention_scale;
    // Behind its original context such a model is another one, whose KV of the same text differs: what is
    // served is the first.
    if ((kind == "longrope" || kind == "su") && s.original >= 1)
      c_.context_length = std::min(c_.context_length, static_cast<std::uint32_t>(s.original));
    if (c_.arch == model_arch::gemma3) return local_rope(local, s.dims);
    return {};
  }

  /// Gemma 3 turns slower in layers that see everything.
  result<void> local_rope(const json* parameters, std::uint32_t dims) {
    auto base = read_.number("rope_local_base_freq", 1.001, 1e12, 10000);
    if (parameters != nullptr) base = json_reader(*parameters, "").number("rope_theta", 1.001, 1e12, base);
    c_.local_inv_freq = plain_inv_freq(dims, base);
    return {};
  }

  const json& file_;
  json_reader read_;
  const std::string& name_;
  family family_;
  model_config c_;
};

}  // namespace

result<model_config> config_from_hf(const json& file, const std::string& name) {
  const auto text = file.find("text_config");
  if (text != file.end() && text->is_object()) return config_from_hf(*text, name);
  json_reader read(file, name + ": ");
  const auto type = read.text("model_type", "");
  if (read.first_error()) return fail(std::move(*read.first_error()));
  const auto found = family_of(type, name);
  if (!found) return fail(found.error());
  return hf_reader(file, name, *found).run();
}

}  // namespace mooncaf
