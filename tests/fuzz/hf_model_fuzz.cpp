// Any bytes are a safetensors file, or a config.json, to somebody: parsing ends in an error or in what lies
// inside the bytes.

#include <cstdlib>

#include "runtime/model/hf_config.hpp"
#include "runtime/model/hf_gpt_oss.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/model/safetensors.hpp"

using namespace mooncaf;

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
