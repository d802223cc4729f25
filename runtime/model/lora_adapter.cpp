#include "runtime/model/lora_adapter.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "runtime/model/json_file.hpp"
#include "runtime/model/safetensors.hpp"

namespace mooncaf {

using nlohmann::json;

namespace {

constexpr const char* adapter_config = "adapter_config.json";
constexpr const char* weights_file = "adapter_model.safetensors";
constexpr std::uint64_t rank_max = 1024;

/// Rows [first, first + rows) of a module of the file, which are a matrix of `model`'s layers.
struct site_part {
  lora_site site;
  std::size_t rows;
};

/// The families whose layers are made of the matrices above.
bool is_offered(model_arch arch) {
  switch (arch) {
    case model_arch::llama:
    case model_arch::qwen2:
    case model_arch::qwen3:
    case model_arch::qwen2moe:
    case model_arch::qwen3moe:
    case model_arch::gemma2:
    case model_arch::gemma3:
    case model_arch::phi3:
      return true;
    default:
      return false;
  }
}

/// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight", taken apart.
struct tensor_place {
  std::uint32_t layer = 0;
  std::string_view module;  ///< "self_attn.q_proj"
  bool is_b = false;
};

std::optional<tensor_place> place_of(std::string_view name) {
  constexpr std::string_view layers = ".layers.", a = ".lora_A.weight", b = ".lora_B.weight";
  const auto begin = name.find(layers);
  if (!name.starts_with("base_model.model.") || begin == std::string_view::npos) return std::nullopt;
  name.remove_prefix(begin + layers.size());
  tensor_place out;
  const auto number = std::from_chars(name.data(), name.data() + name.size(), out.layer);
  name.remove_prefix(static_cast<std::size_t>(number.ptr - name.data()));
  if (number.ec != std::errc{} || !name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  out.is_b = name.ends_with(b);
  if (!out.is_b && !name.ends_with(a)) return std::nullopt;
  out.module = name.substr(0, name.size() - a.size());
  return out;
}

}  // namespace

class lora_reader {
 public:
  lora_reader(device* dev, const model_config& config, const std::string& name)
      : device_(dev), config_(config), label_(name) {}

  result<std::shared_ptr<const lora_adapter>> run(const folder_reader& read) {
    const auto text = read(adapter_config);
    if (!text) return fail(text.error());
    if (auto done = settings(text->text()); !done) return fail(std::move(done.error()));
    const auto bytes = read(weights_file);
    if (!bytes) return fail(bytes.error());
    const auto file = parse_safetensors(bytes->bytes, label_ + "/" + weights_file);
    if (!file) return fail(file.error());
    made_->owners_.push_back(bytes->owner);
    made_->pairs_.resize(config_.n_layers * lora_sites);
    if (file->tensors().empty()) return fail(ec::corrupt, label_ + "/" + weights_file + ": holds no tensor");
    for (const auto& t : file->tensors())
      if (auto done = tensor(t, *file); !done) return fail(std::move(done.error()));
    made_->fingerprint_ =
        hash_text128(to_string(hash_bytes128(bytes->bytes)) + "|" + std::to_string(made_->scale_));
    return std::shared_ptr<const lora_adapter>(std::move(made_));
  }

 private:
  tl::unexpected<error> refuse(const std::string& what) const {
    return fail(ec::unsupported, label_ + ": " + what + " is not offered");
  }

  /// Reads adapter_config.json. Fields that change the arithmetic in other ways than rank and scale are
  /// refused.
  result<void> settings(std::string_view text) {
    const auto label = label_ + "/" + adapter_config;
    const auto file = parse_json_object(text, label);
    if (!file) return fail(file.error());
    if (!is_offered(config_.arch)) return refuse("an adapter of a model of this family");
    json_reader in(*file, label + ": ");
    if (const auto type = in.text("peft_type", ""); type != "LORA")
      return refuse("an adapter of peft_type '" + type.substr(0, 40) + "'");
    for (const auto* flag : {"use_dora", "use_qalora", "lora_bias", "fan_in_fan_out"})
      if (in.boolean(flag, false)) return refuse(std::string("'") + flag + "'");
    if (const auto bias = in.text("bias", "none"); bias != "none")
      return refuse("'bias' of '" + bias.substr(0, 40) + "'");
    for (const auto* field :
         {"modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication", "trainable_token_indices",
          "target_parameters", "alora_invocation_tokens", "use_bdlora", "arrow_config", "kasa_config",
          "monteclora_config", "velora_config"}) {
      const auto* value = in.find(field);
      if (value != nullptr && *value != false && !value->empty())
        return refuse(std::string("'") + field + "'");
    }
    // These change the model's own weights as well.
    if (const auto* start = in.find("init_lora_weights"); start != nullptr && start->is_string()) {
      const auto way = start->get<std::string>();
      if (way != "gaussian" && way != "orthogonal" && way != "eva")
        return refuse("'init_lora_weights' of '" + way.substr(0, 40) + "'");
    }
    made_->rank_ = in.integer("r", 1, rank_max);
    const auto alpha = in.number("lora_alpha", 0, 1e6);
    const bool root = in.boolean("use_rslora", false);
    if (in.first_error()) return fail(*in.first_error());
    made_->scale_ = static_cast<float>(alpha / (root ? std::sqrt(made_->rank_) : made_->rank_));
    return {};
  }

  /// The matrices that a module of the file stands for; empty: none.
  std::vector<site_part> parts_of(std::string_view module) const {
    const std::size_t q = config_.q_dim(), kv = config_.kv_dim(), wide = config_.ffn_dim;
    const bool fused = config_.arch == model_arch::phi3, dense = config_.n_experts == 0;
    if (fused && module == "self_attn.qkv_proj")
      return {{lora_site::q, q}, {lora_site::k, kv}, {lora_site::v, kv}};
    if (!fused && module == "self_attn.q_proj") return {{lora_site::q, q}};
    if (!fused && module == "self_attn.k_proj") return {{lora_site::k, kv}};
    if (!fused && module == "self_attn.v_proj") return {{lora_site::v, kv}};
    if (module == "self_attn.o_proj") return {{lora_site::attention_out, config_.dim}};
    if (fused && module == "mlp.gate_up_proj") return {{lora_site::gate, wide}, {lora_site::up, wide}};
    if (!fused && dense && module == "mlp.gate_proj") return {{lora_site::gate, wide}};
    if (!fused && dense && module == "mlp.up_proj") return {{lora_site::up, wide}};
    if (dense && module == "mlp.down_proj") return {{lora_site::down, config_.dim}};
    return {};
  }

  std::size_t inputs_of(lora_site site) const {
    if (site == lora_site::attention_out) return config_.q_dim();
    return site == lora_site::down ? config_.ffn_dim : config_.dim;
  }

  /// Loads one factor of a pair, whose other factor must be in the file, too. A module that is fused in the
  /// file becomes several sites.
  result<void> tensor(const safetensors_tensor& t, const safetensors_file& file) {
    const auto name = "tensor '" + t.name.substr(0, 200) + "'";
    const auto place = place_of(t.name);
    const auto parts = place ? parts_of(place->module) : std::vector<site_part>{};
    if (parts.empty()) return refuse(name + ", of a module that is not adapted here,");
    if (place->layer >= config_.n_layers)
      return fail(ec::corrupt, label_ + ": " + name + " is of a layer that the model does not have");
    const auto type = plain_type(t.dtype);
    if (!type) return refuse(name + " of type " + t.dtype + " (BF16, F16 and F32 are)");
    std::size_t rows = 0;
    for (const auto& part : parts) rows += part.rows;
    const std::vector<std::uint64_t> wanted =
        place->is_b ? std::vector<std::uint64_t>{rows, made_->rank_}
                    : std::vector<std::uint64_t>{made_->rank_, inputs_of(parts.front().site)};
    if (t.shape != wanted)
      return fail(ec::corrupt, label_ + ": " + name + " is not [" + std::to_string(wanted[0]) + ", " +
                                   std::to_string(wanted[1]) + "]");
    auto other = t.name;
    other.replace(other.rfind(place->is_b ? "_B." : "_A."), 3, place->is_b ? "_A." : "_B.");
    if (file.tensor(other) == nullptr)
      return fail(ec::corrupt, label_ + ": " + name + " has no counterpart '" + other + "'");
    if (device_ == nullptr) return {};
    std::size_t first = 0;
    for (const auto& part : parts) {
      auto& pair = made_->pairs_[place->layer * lora_sites + static_cast<std::size_t>(part.site)];
      const auto row = row_bytes(*type, wanted[1]);
      const auto data =
          place->is_b ? in_order(t.data.subspan(first * row, part.rows * row), row, part.site) : t.data;
      auto loaded = device_->load_weight(*type, place->is_b ? part.rows : wanted[0], wanted[1], data);
      if (!loaded) return fail(loaded.error().code, label_ + ": " + name + ": " + loaded.error().detail);
      (place->is_b ? pair.b : pair.a) = std::move(*loaded);
      first += part.rows;
    }
    return {};
  }

  /// The rows of a B as the model has them: where rotary pairs lie side by side (GGUF files of architecture
  /// llama), queries and keys are in another order than in the files of adapters.
  std::span<const std::byte> in_order(std::span<const std::byte> rows, std::size_t row, lora_site site) {
    if (config_.rope_neox || (site != lora_site::q && site != lora_site::k)) return rows;
    auto& out = made_->own_.emplace_back(rows.size());
    const std::size_t head = config_.head_dim, half = head / 2;
    for (std::size_t i = 0; i < rows.size() / row; ++i) {
      const auto in_head = i % head, from = i - in_head + in_head % 2 * half + in_head / 2;
      std::memcpy(out.data() + i * row, rows.data() + from * row, row);
    }
    return out;
  }

  device* device_;
  const model_config& config_;
  const std::string& label_;
  std::unique_ptr<lora_adapter> made_{new lora_adapter};
};

result<std::shared_ptr<const lora_adapter>> lora_adapter::load(device* dev, const model_config& config,
                                                               const std::string& name,
                                                               const folder_reader& read) {
  return lora_reader(dev, config, name).run(read);
}

}  // namespace mooncaf
