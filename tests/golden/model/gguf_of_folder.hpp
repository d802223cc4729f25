#pragma once
// The weights of a Hugging Face folder as a GGUF file, with the names and keys that converters write.

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/model/hf_source.hpp"
#include "tests/runtime/model/gguf_builder.hpp"
#include "tests/runtime/model/model_fixture.hpp"

namespace mooncaf::testing {

/// The folder, with what GGUF files cannot say set to what they imply: scores are divided by the head's size.
inline std::shared_ptr<const hf_source> open_rewritten(const std::string& path) {
  const auto map = map_files_of<mapped_file>(path);
  return unwrap(hf_source::open(path, [map](const std::string& name) -> result<owned_bytes> {
    auto bytes = map(name);
    if (!bytes || name != "config.json") return bytes;
    auto config = nlohmann::json::parse(bytes->text());
    if (config.contains("query_pre_attn_scalar")) config["query_pre_attn_scalar"] = config["head_dim"];
    const auto text = std::make_shared<const std::string>(config.dump());
    return owned_bytes{std::as_bytes(std::span{text->data(), text->size()}), text};
  }));
}

/// Writes one model. Matrices are BF16 in these folders, and stay so.
class gguf_of_folder {
 public:
  explicit gguf_of_folder(const hf_source& from) : from_(from), c_(unwrap(from.config())) {}

  std::string run() {
    const std::string arch(to_string(c_.arch));
    out_.text("general.architecture", arch);
    const auto u32 = [&](const char* key, std::uint32_t v) { out_.u32(arch + "." + key, v); };
    const auto f32 = [&](const char* key, float v) { out_.f32(arch + "." + key, v); };
    u32("block_count", c_.n_layers);
    u32("embedding_length", c_.dim);
    u32("attention.head_count", c_.n_heads);
    u32("attention.head_count_kv", c_.n_kv_heads);
    u32("attention.key_length", c_.head_dim);
    u32("attention.value_length", c_.head_dim);
    u32("feed_forward_length", c_.ffn_dim);
    u32("context_length", c_.context_length);
    f32("attention.layer_norm_rms_epsilon", c_.rms_eps);
    u32("rope.dimension_count", static_cast<std::uint32_t>(2 * c_.rope_inv_freq.size()));
    if (!c_.windows.empty()) u32("attention.sliding_window", c_.windows.front());
    if (c_.n_experts != 0 && c_.arch == model_arch::llama) f32("rope.freq_base", 1e6f);
    if (c_.n_experts != 0) {
      u32("expert_count", c_.n_experts);
      u32("expert_used_count", c_.experts_per_token);
      u32("expert_feed_forward_length", c_.ffn_dim);
    }
    if (c_.arch == model_arch::gemma2) {
      f32("attn_logit_softcapping", c_.attention_softcap);
      f32("final_logit_softcapping", c_.logit_softcap);
    }
    if (c_.arch == model_arch::gemma3) {
      f32("rope.freq_base", 1e6f);
      f32("rope.scaling.factor", 8);
      u32("attention.sliding_window_pattern", 3);
    }
    if (c_.rope_attention_scale != 1) long_rope();
    put("token_embd.weight");
    put("output_norm.weight");
    put("output.weight");
    for (std::uint32_t i = 0; i < c_.n_layers; ++i) layer("blk." + std::to_string(i) + ".");
    return out_.bytes();
  }

 private:
  void long_rope() {
    std::string factors;
    for (const float f : {1.0f, 1.3f, 2.0f, 3.0f}) gguf_builder::put(factors, f);
    out_.tensor("rope_factors_short.weight", {4}, ggml_type::f32, factors);
    out_.u32("phi3.rope.scaling.original_context_length", 256);
    out_.f32("phi3.rope.scaling.attn_factor", c_.rope_attention_scale);
  }

  void layer(const std::string& p) {
    for (const auto* part : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_q_norm",
                             "attn_k_norm", "attn_output", "post_attention_norm", "ffn_norm", "ffn_gate",
                             "ffn_up", "ffn_down", "post_ffw_norm", "ffn_gate_inp"})
      put(p + part + ".weight");
    for (const auto* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      if (c_.n_experts == 0) break;
      std::string all;
      std::uint64_t rows = 0, cols = 0;
      for (std::uint32_t e = 0; e < c_.n_experts; ++e) {
        const auto t = *unwrap(from_.find(p + part + "." + std::to_string(e) + ".weight"));
        all.append(reinterpret_cast<const char*>(t.data.data()), t.data.size());
        rows = t.rows, cols = t.cols;
      }
      out_.tensor(p + part + "_exps.weight", {cols, rows, c_.n_experts}, ggml_type::bf16, all);
    }
  }

  void put(const std::string& name) {
    const auto t = unwrap(from_.find(name));
    if (!t) return;
    const std::string bytes(reinterpret_cast<const char*>(t->data.data()), t->data.size());
    const bool rotated = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
    if (t->rows == 1) out_.tensor(name, {t->cols}, ggml_type::f32, gains(*t));
    else
      out_.tensor(name, {t->cols, t->rows}, t->type,
                  rotated && c_.arch == model_arch::llama ? pairs_together(bytes, t->rows) : bytes);
  }

  std::string gains(const source_tensor& t) const {
    std::string out;
    for (std::size_t i = 0; i < t.cols; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, t.data.data() + 2 * i, 2);
      gguf_builder::put(out, std::bit_cast<float>(std::uint32_t{half} << 16) + t.added);
    }
    return out;
  }

  /// Rows i and i + head_dim / 2 of a head become neighbours.
  std::string pairs_together(const std::string& bytes, std::size_t rows) const {
    const auto row = bytes.size() / rows, half = std::size_t{c_.head_dim} / 2;
    std::string out;
    for (std::size_t head = 0; head < rows; head += c_.head_dim)
      for (std::size_t i = 0; i < half; ++i)
        for (const auto from : {head + i, head + i + half}) out += bytes.substr(from * row, row);
    return out;
  }

  const hf_source& from_;
  model_config c_;
  gguf_builder out_;
};

inline std::string to_gguf(const hf_source& folder) { return gguf_of_folder(folder).run(); }

}  // namespace mooncaf::testing
