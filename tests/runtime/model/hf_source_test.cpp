#include "runtime/model/hf_source.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <map>

using namespace mooncaf;
using json = nlohmann::json;

namespace {

json small_config() {
  return {{"model_type", "llama"},         {"num_hidden_layers", 1}, {"hidden_size", 4},
          {"num_attention_heads", 2},      {"vocab_size", 3},        {"intermediate_size", 8},
          {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5}};
}

/// A file of one F32 tensor of zeros.
std::string tensor_file(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  const auto directory =
      json{{name, {{"dtype", "F32"}, {"shape", {rows, cols}}, {"data_offsets", {0, 4 * rows * cols}}}}}
          .dump();
  const std::uint64_t length = directory.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + directory + std::string(4 * rows * cols, '\0');
}

using files = std::map<std::string, std::string>;

result<std::shared_ptr<const hf_source>> open(const files& folder) {
  return hf_source::open("m", [&](const std::string& name) -> result<owned_bytes> {
    const auto found = folder.find(name);
    if (found == folder.end()) return fail(ec::not_found, "m/" + name);
    return owned_bytes{std::as_bytes(std::span{found->second.data(), found->second.size()}), {}};
  });
}

files folder_of(const json& config) {
  return {{"config.json", config.dump()},
          {"model.safetensors", tensor_file("model.embed_tokens.weight", 3, 4)}};
}

void refused(const files& folder, ec code, std::string_view part) {
  const auto source = open(folder);
  REQUIRE_FALSE(source.has_value());
  INFO(to_string(source.error()));
  CHECK(source.error() == code);
  CHECK(source.error().detail.find(part) != std::string::npos);
}

void refused_config(const char* key, const json& value, ec code, std::string_view part) {
  auto config = small_config();
  config[key] = value;
  refused(folder_of(config), code, part);
}

}  // namespace

TEST_CASE("tensors are found by GGUF's names, over all parts") {
  auto folder = folder_of(small_config());
  const auto whole = open(folder);
  REQUIRE(whole.has_value());
  const auto found = (*whole)->find("token_embd.weight");
  REQUIRE((found.has_value() && found->has_value()));
  CHECK((*found)->rows == 3);
  CHECK((*found)->cols == 4);
  CHECK_FALSE((*whole)->find("blk.0.attn_q.weight")->has_value());
  CHECK((*whole)->name_of("blk.0.attn_q.weight") == "model.layers.0.self_attn.q_proj.weight");

  folder.erase("model.safetensors");
  folder["a.safetensors"] = tensor_file("model.embed_tokens.weight", 3, 4);
  folder["b.safetensors"] = tensor_file("model.layers.0.self_attn.q_proj.weight", 4, 4);
  folder["model.safetensors.index.json"] =
      R"({"weight_map": {"model.embed_tokens.weight": "a.safetensors",
                         "model.layers.0.self_attn.q_proj.weight": "b.safetensors"}})";
  const auto parts = open(folder);
  REQUIRE(parts.has_value());
  CHECK((*parts)->find("blk.0.attn_q.weight")->has_value());
}

TEST_CASE("a folder that cannot be used is refused with file and field") {
  refused(files{}, ec::not_found, "m/config.json");
  refused(files{{"config.json", small_config().dump()}}, ec::not_found,
          "m: holds neither model.safetensors nor model.safetensors.index.json");
  auto folder = folder_of(small_config());
  folder["model.safetensors.index.json"] = R"({"weight_map": {"a": "../secret"}})";
  refused(folder, ec::corrupt, "'../secret', which is not in the folder");
  folder["model.safetensors.index.json"] = "{}";
  refused(folder, ec::corrupt, "'weight_map' is missing");
  folder = folder_of(small_config());
  folder["model.safetensors"] = tensor_file("lm_head.weight", 3, 4);
  refused(folder, ec::corrupt, "tensor 'model.embed_tokens.weight' is missing");
}

TEST_CASE("DeepSeek's variants that no released model has are refused with the field") {
  auto config = small_config();
  config.update({{"model_type", "deepseek_v3"},
                 {"kv_lora_rank", 6},
                 {"qk_nope_head_dim", 4},
                 {"qk_rope_head_dim", 2},
                 {"v_head_dim", 4},
                 {"n_routed_experts", 8},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 8},
                 {"n_group", 4},
                 {"topk_group", 2},
                 {"first_k_dense_replace", 1}});
  const auto whole = open(folder_of(config));
  REQUIRE(whole.has_value());
  CHECK((*whole)->config()->head_dim == 8);
  CHECK((*whole)->name_of("blk.1.exp_probs_b.bias") == "model.layers.1.mlp.gate.e_score_correction_bias");
  const auto with = [&](const char* key, const json& value, ec code, std::string_view part) {
    auto changed = config;
    changed[key] = value;
    refused(folder_of(changed), code, part);
  };
  with("kv_lora_rank", nullptr, ec::corrupt, "'kv_lora_rank' is missing");
  with("kv_lora_rank", 7, ec::corrupt, "odd");
  with("attention_bias", true, ec::unsupported, "'attention_bias'");
  with("topk_method", "greedy", ec::unsupported, "'topk_method' is 'greedy'");
  with("scoring_func", "softmax", ec::unsupported, "'scoring_func' is 'softmax'");
  with("moe_layer_freq", 2, ec::unsupported, "'moe_layer_freq'");
  with("num_experts_per_tok", 5, ec::corrupt, "do not fill their groups");
  with("n_group", 3, ec::corrupt, "do not fill their groups");
  with("topk_group", 5, ec::corrupt, "'topk_group' is 5");
  config.erase("first_k_dense_replace");
  CHECK(open(folder_of(config)).value()->config()->dense_layers == 1);  // no more than there are
  config.update({{"model_type", "deepseek_v2"}, {"topk_method", "group_limited_greedy"}});
  CHECK(open(folder_of(config)).has_value());
  with("norm_topk_prob", true, ec::unsupported, "'norm_topk_prob'");
}

TEST_CASE("gpt-oss keeps experts together, and what does not fit is refused by the tensor's name") {
  auto config = small_config();
  config.update({{"model_type", "gpt_oss"},
                 {"num_local_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"quantization_config", {{"quant_method", "mxfp4"}}}});
  const std::string experts = "model.layers.0.mlp.experts.";
  const auto with = [&](const json& tensors) {
    json directory{
        {"model.embed_tokens.weight", {{"dtype", "F32"}, {"shape", {3, 4}}, {"data_offsets", {0, 48}}}}};
    std::size_t at = 48;
    for (const auto& [name, t] : tensors.items()) {
      std::size_t bytes = t["dtype"] == "U8" ? 1 : 2;
      for (const std::size_t n : t["shape"]) bytes *= n;
      directory[name] = {{"dtype", t["dtype"]}, {"shape", t["shape"]}, {"data_offsets", {at, at + bytes}}};
      at += bytes;
    }
    const auto text = directory.dump();
    const std::uint64_t length = text.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    file += text + std::string(at, '\x7f');
    // Whoever opens a folder gives bytes that live as long as it does.
    static std::map<std::string, std::string> kept;
    kept = {{"config.json", config.dump()}, {"model.safetensors", file}};
    return open(kept).value();
  };
  const auto whole = with({{experts + "gate_up_proj_blocks", {{"dtype", "U8"}, {"shape", {2, 6, 1, 16}}}},
                           {experts + "gate_up_proj_scales", {{"dtype", "U8"}, {"shape", {2, 6, 1}}}},
                           {experts + "down_proj_bias", {{"dtype", "BF16"}, {"shape", {2, 4}}}}});
  CHECK(whole->config()->sinks);
  CHECK(whole->name_of("blk.3.attn_sinks.weight") == "model.layers.3.self_attn.sinks");
  CHECK(whole->name_of("blk.0.ffn_up.1.bias") == experts + "gate_up_proj_bias");
  const auto gate = whole->find("blk.0.ffn_gate.1.weight")->value();
  CHECK((gate.type == ggml_type::mxfp4 && gate.rows == 3 && gate.cols == 32));
  CHECK(whole->find("blk.0.ffn_down.1.bias")->value().cols == 4);
  CHECK_FALSE(whole->find("blk.1.ffn_gate.0.weight")->has_value());
  const auto fails = [&](const json& tensors, const char* name, std::string_view part) {
    const auto found = with(tensors)->find(name);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().detail.find(part) != std::string::npos);
  };
  fails({{experts + "gate_up_proj_blocks", {{"dtype", "U8"}, {"shape", {2, 6, 1, 16}}}},
         {experts + "gate_up_proj_scales", {{"dtype", "U8"}, {"shape", {2, 5, 1}}}}},
        "blk.0.ffn_gate.0.weight", "gate_up_proj_blocks' has no fitting scales");
  fails({{experts + "gate_up_proj", {{"dtype", "BF16"}, {"shape", {2, 4, 5}}}}}, "blk.0.ffn_up.0.weight",
        "gate_up_proj' has a shape that does not fit");
  fails({{experts + "down_proj", {{"dtype", "BF16"}, {"shape", {1, 4, 4}}}}}, "blk.0.ffn_down.1.weight",
        "does not fit");
  fails({{experts + "down_proj", {{"dtype", "BF16"}, {"shape", {1, 4, 0}}}}}, "blk.0.ffn_down.0.weight",
        "does not fit");
}

TEST_CASE(
    "mixtures of Qwen have their windows where transformers has them, and either name for their number of "
    "experts") {
  auto config = small_config();
  config.update({{"model_type", "qwen3_moe"},
                 {"num_hidden_layers", 3},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 8},
                 {"max_window_layers", 2},
                 {"sliding_window", 7},
                 {"use_sliding_window", true}});
  const auto with = [&](const json& more) {
    auto changed = config;
    changed.update(more);
    return open(folder_of(changed)).value()->config().value();
  };
  CHECK(with(json::object()).n_experts == 4);
  CHECK(with({{"num_experts", 3}}).n_experts == 3);  // of files from before version 5
  CHECK(with(json::object()).windows == std::vector<std::uint32_t>{7, 7, 7});
  CHECK(with({{"use_sliding_window", false}}).windows.empty());
  CHECK(with({{"model_type", "qwen3"}}).windows == std::vector<std::uint32_t>{0, 0, 7});
  // Mixtures of Qwen2: every other one of the first `max_window_layers`, where no list says which.
  CHECK(with({{"model_type", "qwen2_moe"}}).windows == std::vector<std::uint32_t>{7, 0, 0});
  CHECK(with({{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 6}}).shared_ffn_dim == 6);
  config.erase("sliding_window");
  CHECK(with(json::object()).windows == std::vector<std::uint32_t>{4096, 4096, 4096});
  config.erase("num_local_experts");
  refused(folder_of(config), ec::corrupt, "experts' is missing");
}

TEST_CASE(
    "dynamic rope turns as if it were none within the context, and biases of Llama's feed-forward part are "
    "read") {
  auto config = small_config();
  const auto plain = open(folder_of(config)).value()->config().value();
  CHECK_FALSE(plain.ffn_biases);
  config.update({{"mlp_bias", true}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}});
  const auto source = open(folder_of(config)).value();
  CHECK(source->config()->ffn_biases);
  CHECK(source->config()->rope_inv_freq == plain.rope_inv_freq);
  CHECK(source->config()->context_length == 64);
  CHECK(source->name_of("blk.0.ffn_up.bias") == "model.layers.0.mlp.up_proj.bias");
  config["model_type"] = "mistral";
  refused(folder_of(config), ec::unsupported, "'mlp_bias') are offered in llama alone");
}

TEST_CASE("a shape that is contradictory or not offered is refused with its field") {
  refused_config("model_type", "mamba", ec::unsupported, "'mamba' is not offered; llama, mistral");
  refused_config("hidden_size", "wide", ec::corrupt, "m/config.json: 'hidden_size' is \"wide\"");
  refused_config("num_key_value_heads", 3, ec::corrupt, "2 query heads do not share 3 KV heads");
  refused_config("num_hidden_layers", nullptr, ec::corrupt, "'num_hidden_layers' is missing");
  refused_config("hidden_act", "relu", ec::unsupported, "activation 'relu'");
  refused_config("sliding_window", -1, ec::corrupt, "'sliding_window' is -1");
  refused_config("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 0}}, ec::corrupt, "'factor' is 0");
  refused_config("rope_scaling", {{"rope_type", "ntk"}, {"factor", 2}}, ec::unsupported, "'ntk'");
  refused_config("rope_scaling", {{"rope_type", "longrope"}, {"short_factor", {1, 2, 3}}}, ec::corrupt,
                 "'short_factor' is not a list of 1");
  const auto packed = [](const json& how, std::string_view part) {
    refused_config("quantization_config", how, ec::unsupported, part);
  };
  packed({{"quant_method", "bitsandbytes"}}, "'bitsandbytes' is not offered; gptq, awq, fp8 and mxfp4 are");
  packed({{"quant_method", "gptq"}, {"bits", 3}}, "'bits' other than 4");
  packed({{"quant_method", "awq"}, {"version", "gemv"}}, "gemm is offered");
  packed({{"quant_method", "fp8"}}, "'weight_block_size'");
  packed({{"quant_method", "mxfp4"}}, "mxfp4 is offered for gpt_oss");
}
