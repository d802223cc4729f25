#include "runtime/model/hf_families.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace mooncaf {

namespace {

/// V2 and V3 share the fields and differ in defaults and in how groups are weighed; variants that no released
/// model has are refused.
void read_deepseek_experts(json_reader& read, bool third, model_config& c) {
  c.n_experts = read.integer("n_routed_experts", 1, 1 << 12);
  c.experts_per_token = read.integer("num_experts_per_tok", 1, c.n_experts);
  c.dense_ffn_dim = c.ffn_dim;
  c.ffn_dim = read.integer("moe_intermediate_size", 1, 1 << 20);
  c.shared_ffn_dim = read.integer("n_shared_experts", 0, 64, 0) * c.ffn_dim;
  c.dense_layers = read.integer("first_k_dense_replace", 0, c.n_layers, third ? std::min(3u, c.n_layers) : 0);
  c.normalise_experts = read.boolean("norm_topk_prob", third);
  const auto method = read.text("topk_method", third ? "noaux_tc" : "greedy");
  const auto scores = read.text("scoring_func", third ? "sigmoid" : "softmax");
  auto& r = c.routing;
  r.sigmoid = r.group_of_two = third;
  r.scale = static_cast<float>(read.number("routed_scaling_factor", 1e-6, 1e6, 1));
  if (method != "greedy") {
    r.groups = read.integer("n_group", 1, c.n_experts, 1);
    r.best_groups = read.integer("topk_group", 1, r.groups, r.groups);
  }
  read.require(scores == (third ? "sigmoid" : "softmax"), ec::unsupported,
               "'scoring_func' is '" + scores.substr(0, 40) + "', which this family is not offered with");
  read.require(third ? method == "noaux_tc" : method == "greedy" || method == "group_limited_greedy",
               ec::unsupported,
               "'topk_method' is '" + method.substr(0, 40) + "', which this family is not offered with");
  // DeepSeek's own code leaves out the scaling factor there, transformers keeps it and leaves out the norm.
  read.require(third || !c.normalise_experts, ec::unsupported,
               "'norm_topk_prob' is not offered in deepseek_v2");
  read.require(read.integer("moe_layer_freq", 1, 1024, 1) == 1, ec::unsupported,
               "'moe_layer_freq' other than 1 is not offered");
  read.require(c.n_experts % r.groups == 0 && c.experts_per_token <= c.n_experts / r.groups * r.best_groups &&
                   (!r.group_of_two || c.n_experts / r.groups >= 2),
               ec::corrupt, "experts do not fill their groups");
}

}  // namespace

void read_deepseek(json_reader& read, std::string_view type, model_config& c) {
  const bool third = type == "deepseek_v3";
  auto& l = c.latent;
  l.rank = read.integer("kv_lora_rank", 2, 1 << 14);
  l.query_rank = read.integer("q_lora_rank", 0, 1 << 16, 0);
  l.plain_dim = read.integer("qk_nope_head_dim", 1, 1024);
  l.rope_dim = read.integer("qk_rope_head_dim", 2, 1024);
  l.value_dim = read.integer("v_head_dim", 1, 1024);
  c.n_kv_heads = 1;
  c.head_dim = l.rank + l.rope_dim;
  c.rope_neox = !read.boolean("rope_interleave", true);
  read.require(c.head_dim % 2 == 0 && l.rope_dim % 2 == 0, ec::corrupt,
               "'kv_lora_rank' or 'qk_rope_head_dim' is odd");
  read.require(!read.boolean("attention_bias", false), ec::unsupported,
               "biases of attention ('attention_bias') are not offered in this family");
  double scale = 1 / std::sqrt(static_cast<double>(l.query_dim()));
  // YaRN's growth of scores, which others have in sines and cosines, stands here in part or in whole.
  const auto* scaling = read.find("rope_scaling");
  if (scaling == nullptr) scaling = read.find("rope_parameters");
  if (scaling != nullptr) {
    json_reader inner(*scaling, "rope_scaling: ");
    const auto all = inner.number("mscale_all_dim", 0, 1e3, 0), factor = inner.number("factor", 1e-3, 1e6, 1);
    const auto growth = factor > 1 ? 0.1 * all * std::log(factor) + 1 : 1;
    if (all != 0) scale *= growth * growth;
    if (inner.first_error()) read.note(std::move(*inner.first_error()));
  }
  c.attention_scale = static_cast<float>(scale);
  read_deepseek_experts(read, third, c);
}

void read_gpt_oss(json_reader& read, model_config& c) {
  c.sinks = c.ffn_biases = true;
  c.n_experts = read.integer("num_local_experts", 1, 1 << 12);
  c.experts_per_token = read.integer("num_experts_per_tok", 1, c.n_experts);
  c.glu_limit = static_cast<float>(read.number("swiglu_limit", 1e-3, 1e6, 7));
  read.require(read.boolean("attention_bias", true), ec::unsupported,
               "attention without biases ('attention_bias') is not offered in this family");
}

}  // namespace mooncaf
