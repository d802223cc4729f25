// Any bytes are a model file to somebody: parsing ends in an error or in views that lie inside the bytes.

#include <cstdlib>

#include "runtime/model/gguf.hpp"
#include "runtime/model/model_config.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span{data, size});
  const auto file = parse_gguf(bytes, "fuzz.gguf");
  if (!file) {
    if (file.error().detail.find("fuzz.gguf") == std::string::npos) std::abort();
    return 0;
  }
  for (const auto& t : file->tensors()) {
    const auto begin = t.data.data() - bytes.data();
    if (begin < 0 || static_cast<std::size_t>(begin) + t.data.size() > size) std::abort();
    if (t.data.size() != t.rows() * row_bytes(t.type, t.cols())) std::abort();
    if (file->tensor(t.name) != &t) std::abort();
  }
  if (const auto config = config_from_gguf(*file))
    if (config->rope_inv_freq.size() * 2 > config->head_dim || config->n_heads % config->n_kv_heads != 0)
      std::abort();
  return 0;
}
