// Any bytes are a safetensors file, or a config.json, to somebody: parsing ends in an error or in what lies
// inside the bytes.

#include <cstdlib>

#include "runtime/model/generation_defaults.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_gpt_oss.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/model/lora_adapter.hpp"
#include "runtime/model/safetensors.hpp"

using namespace mooncaf;

namespace {

constexpr std::string_view adapter_config = R"({"peft_type":"LORA","r":2,"lora_alpha":4})";

/// As an adapter's settings, or as its tensors: an error, or an adapter with a factor.
void read_adapter(std::span<const std::byte> bytes) {
  model_config shape;
  shape.n_layers = shape.n_heads = shape.n_kv_heads = 2;
  shape.dim = shape.ffn_dim = 8;
  shape.head_dim = 4;
  const auto fixed = std::as_bytes(std::span{adapter_config});
  for (const bool as_settings : {false, true}) {
    const auto made =
        lora_adapter::load(nullptr, shape, "fuzz", [&](const std::string& name) -> result<owned_bytes> {
          return owned_bytes{as_settings == (name == "adapter_config.json") ? bytes : fixed, nullptr};
        });
    if (made ? (*made)->rank() == 0 : !made.error().detail.starts_with("fuzz")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span{data, size});
  const auto file = parse_safetensors(bytes, "fuzz");
  if (!file && !file.error().detail.starts_with("fuzz: ")) std::abort();
  if (file) {
    for (const auto& t : file->tensors()) {
      if (!t.data.empty() &&
          (t.data.data() < bytes.data() || t.data.data() + t.data.size() > bytes.data() + size))
        std::abort();
      if (file->tensor(t.name) != &t) std::abort();
    }
    const auto find = [&](const std::string& name) { return file->tensor(name); };
    for (const auto* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      for (const bool bias : {false, true}) {
        const auto found = read_expert({"e.", part, 1, bias}, find);
        if (found && *found &&
            (*found)->data.size() != (*found)->rows * row_bytes((*found)->type, (*found)->cols))
          std::abort();
      }
    }
  }
  read_adapter(bytes);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto defaults = generation_defaults_from_hf(text, "fuzz");
  if (defaults && !(defaults->top_p > 0 && defaults->top_p <= 1 && defaults->temperature >= 0)) std::abort();
  const auto config = parse_json_object({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config) return 0;
  const auto shape = config_from_hf(*config, "fuzz");
  if (!shape) return 0;
  if (shape->rope_inv_freq.size() * 2 > shape->head_dim || shape->n_heads % shape->n_kv_heads != 0 ||
      (!shape->windows.empty() && shape->windows.size() != shape->n_layers) ||
      shape->experts_per_token > shape->n_experts || shape->dense_layers > shape->n_layers ||
      (shape->n_experts != 0 && shape->n_experts % shape->routing.groups != 0))
    std::abort();
  return 0;
}
