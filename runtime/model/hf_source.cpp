#include "runtime/model/hf_source.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/json_file.hpp"

namespace mooncaf {

namespace {

constexpr const char* config_file = "config.json";
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

/// Where a model has its language part.
constexpr const char* prefixes[] = {"model.", "language_model.model.", "model.language_model."};

struct renamed {
  std::string_view gguf, hf;
};
constexpr renamed usual_names[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
};
/// Gemma norms on both sides.
constexpr renamed gemma_names[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr renamed deepseek_names[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
constexpr renamed qwen2_moe_names[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr renamed gpt_oss_names[] = {{"ffn_gate_inp", "mlp.router"}};
constexpr renamed phi_names[] = {{"ffn_up", "mlp.gate_up_proj"}};

std::string_view find_name(std::span<const renamed> names, std::string_view gguf) {
  const auto found = std::ranges::find(names, gguf, &renamed::gguf);
  return found == names.end() ? std::string_view{} : found->hf;
}

/// "ffn_gate.3" of an expert, as Mixtral's files and all others name it.
std::string expert_name(std::string_view part, std::string_view expert, bool mixtral) {
  const auto number = std::string(expert);
  if (mixtral) {
    const auto* w = part == "ffn_gate" ? "w1" : part == "ffn_down" ? "w2" : "w3";
    return "block_sparse_moe.experts." + number + "." + w;
  }
  return "mlp.experts." + number + "." + std::string(find_name(usual_names, part).substr(4));
}

}  // namespace

result<void> hf_source::add_file(const std::string& file, const folder_reader& read) {
  if (file.empty() || file.find('/') != std::string::npos || file.starts_with('.'))
    return fail(ec::corrupt, name_ + "/" + index_file + ": names the file '" + file.substr(0, 100) +
                                 "', which is not in the folder");
  auto bytes = read(file);
  if (!bytes) return fail(std::move(bytes.error()));
  auto parsed = parse_safetensors(bytes->bytes, name_ + "/" + file);
  if (!parsed) return fail(std::move(parsed.error()));
  owners_.push_back(std::move(bytes->owner));
  files_.push_back(std::move(*parsed));
  return {};
}

result<void> hf_source::add_files(const folder_reader& read) {
  const auto index = read(index_file);
  if (!index && index.error() != ec::not_found) return fail(index.error());
  if (!index) {
    auto added = add_file(single_file, read);
    if (!added && added.error() == ec::not_found)
      return fail(ec::not_found, name_ + ": holds neither " + single_file + " nor " + index_file);
    return added;
  }
  const auto label = name_ + "/" + index_file;
  const auto parsed = parse_json_object(index->text(), label);
  if (!parsed) return fail(parsed.error());
  const auto map = parsed->find("weight_map");
  if (map == parsed->end() || !map->is_object())
    return fail(ec::corrupt, label + ": 'weight_map' is missing");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) return fail(ec::corrupt, label + ": 'weight_map' has an entry that is no string");
    names.insert(file.get<std::string>());
  }
  for (const auto& file : names)
    if (auto added = add_file(file, read); !added) return added;
  return {};
}

result<std::shared_ptr<const hf_source>> hf_source::open(std::string name, const folder_reader& read) {
  std::shared_ptr<hf_source> made(new hf_source);
  made->name_ = std::move(name);
  while (made->name_.size() > 1 && made->name_.ends_with('/')) made->name_.pop_back();
  const auto text = read(config_file);
  if (!text) return fail(text.error());
  const auto label = made->name_ + "/" + config_file;
  const auto file = parse_json_object(text->text(), label);
  if (!file) return fail(file.error());
  const auto packing = packing_from_hf(*file, label);
  if (!packing) return fail(packing.error());
  made->packing_ = *packing;
  auto config = config_from_hf(*file, label);
  if (!config) return fail(std::move(config.error()));
  made->config_ = std::move(*config);
  if (packing->kind == hf_packing::form::mxfp4 && made->config_.arch != model_arch::gpt_oss)
    return fail(ec::unsupported, label + ": quantization_config: mxfp4 is offered for gpt_oss");
  made->config_.name = made->name_.substr(made->name_.find_last_of('/') + 1);
  if (auto added = made->add_files(read); !added) return fail(std::move(added.error()));
  for (const auto* prefix : prefixes)
    if (made->prefix_.empty() && made->own(std::string(prefix) + "embed_tokens.weight") != nullptr)
      made->prefix_ = prefix;
  if (made->prefix_.empty())
    return fail(ec::corrupt, made->name_ + ": tensor 'model.embed_tokens.weight' is missing");
  return std::shared_ptr<const hf_source>(std::move(made));
}

/// The expert's part that "blk.LAYER.PART.EXPERT.KIND" is, in a folder that keeps experts together.
std::optional<expert_part> hf_source::expert_of(std::string_view gguf_name) const {
  if (config_.arch != model_arch::gpt_oss || !gguf_name.starts_with("blk.")) return std::nullopt;
  std::vector<std::string_view> words;
  for (auto rest = gguf_name; !rest.empty();) {
    const auto dot = rest.find('.');
    words.push_back(rest.substr(0, dot));
    rest = dot == std::string_view::npos ? std::string_view{} : rest.substr(dot + 1);
  }
  if (words.size() != 5) return std::nullopt;
  std::size_t expert = 0;
  std::from_chars(words[3].data(), words[3].data() + words[3].size(), expert);
  return expert_part{prefix_ + "layers." + std::string(words[1]) + ".mlp.experts.", words[2], expert,
                     words[4] == "bias"};
}

std::string hf_source::name_of(std::string_view gguf_name) const {
  if (gguf_name == "token_embd.weight") return prefix_ + "embed_tokens.weight";
  if (gguf_name == "output_norm.weight") return prefix_ + "norm.weight";
  if (gguf_name == "output.weight")
    return prefix_.substr(0, prefix_.size() - std::string_view("model.").size()) + "lm_head.weight";
  // blk.LAYER.PART.weight, or blk.LAYER.PART.EXPERT.weight
  if (!gguf_name.starts_with("blk.")) return {};
  const auto layer_end = gguf_name.find('.', 4), kind_begin = gguf_name.rfind('.');
  if (layer_end == std::string_view::npos || kind_begin <= layer_end) return {};
  const auto layer = prefix_ + "layers." + std::string(gguf_name.substr(4, layer_end - 4)) + ".";
  const auto kind = gguf_name.substr(kind_begin);
  auto part = gguf_name.substr(layer_end + 1, kind_begin - layer_end - 1);
  const bool mixtral = config_.n_experts != 0 && config_.arch == model_arch::llama;
  if (const auto together = expert_of(gguf_name)) return mooncaf::name_of(*together);
  if (const auto dot = part.find('.'); dot != std::string_view::npos)
    return layer + expert_name(part.substr(0, dot), part.substr(dot + 1), mixtral) + std::string(kind);
  if (part == "attn_sinks") return layer + "self_attn.sinks";
  if (part == "exp_probs_b") return layer + "mlp.gate.e_score_correction_bias";
  std::string_view found;
  if (config_.post_norms) found = find_name(gemma_names, part);
  else if (config_.arch == model_arch::phi3) found = find_name(phi_names, part);
  else if (config_.arch == model_arch::gpt_oss) found = find_name(gpt_oss_names, part);
  else if (config_.arch == model_arch::deepseek2) found = find_name(deepseek_names, part);
  else if (config_.arch == model_arch::qwen2moe) found = find_name(qwen2_moe_names, part);
  else if (mixtral && part == "ffn_gate_inp") found = "block_sparse_moe.gate";
  if (found.empty()) found = find_name(usual_names, part);
  return found.empty() ? std::string{} : layer + std::string(found) + std::string(kind);
}

/// The tensor that the files call `name`; null if there is none.
const safetensors_tensor* hf_source::own(const std::string& name) const {
  for (const auto& file : files_)
    if (const auto* found = file.tensor(name)) return found;
  return nullptr;
}

/// The matrix of a module that is packed; nothing if it is not.
result<std::optional<source_tensor>> hf_source::unpacked(const std::string& module) const {
  const std::scoped_lock lock(unpacking_);
  if (const auto known = unpacked_.find(module); known != unpacked_.end()) return known->second.tensor;
  auto made = unpack_matrix(packing_, module, [this](const std::string& name) { return own(name); });
  if (!made) return fail(std::move(made.error()));
  if (!*made) return std::nullopt;
  return unpacked_.emplace(module, std::move(**made)).first->second.tensor;
}

result<std::optional<source_tensor>> hf_source::find(std::string_view name) const {
  if (const auto together = expert_of(name))
    return read_expert(*together, [this](const std::string& own_name) { return own(own_name); });
  const auto ours = name_of(name);
  constexpr std::string_view kind = ".weight";
  if (packing_.kind != hf_packing::form::none && ours.ends_with(kind)) {
    auto found = unpacked(ours.substr(0, ours.size() - kind.size()));
    if (!found || *found) return found;
  }
  const auto* t = own(ours);
  if (t == nullptr) return std::nullopt;
  const auto type = plain_type(t->dtype);
  if (!type)
    return fail(ec::unsupported,
                "tensor '" + t->name + "' is of type " + t->dtype + "; BF16, F16 and F32 are read");
  if (t->shape.empty() || t->shape.size() > 2)
    return fail(ec::corrupt,
                "tensor '" + t->name + "' has " + std::to_string(t->shape.size()) + " dimensions");
  source_tensor out{*type, t->shape.size() == 1 ? 1 : t->shape[0], t->shape.back(), t->data, 0};
  if (config_.post_norms && name.ends_with("norm.weight")) out.added = 1;
  return out;
}

}  // namespace mooncaf
