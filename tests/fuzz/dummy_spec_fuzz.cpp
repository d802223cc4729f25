// A dummy model's shape comes from the command line: any text gives an error or a shape that fits together.

#include <cstdlib>

#include "runtime/model/model_config.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string spec = "dummy:" + std::string(reinterpret_cast<const char*>(data), size);
  const auto config = dummy_shape(spec);
  if (!config) return 0;
  if (config->rope_inv_freq.size() * 2 != config->head_dim || config->n_heads % config->n_kv_heads != 0 ||
      config->dim % block_elements(config->dummy_type) != 0)
    std::abort();
  return 0;
}
