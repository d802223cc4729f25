// A dummy model's shape comes from the command line: any text gives an error or a shape that fits together.

#include <cstdlib>

#include "runtime/model/model_config.hpp"

using namespace mooncaf;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string spec = "dummy:" + std::string(reinterpret_cast<const char*>(data), size);
  const auto config = dummy_shape(spec);
  if (!config) return 0;
  const auto rotated = config->latent.rank != 0 ? config->latent.rope_dim : config->head_dim;
  if (config->rope_inv_freq.size() * 2 != rotated || config->n_heads % config->n_kv_heads != 0 ||
      config->dim % block_elements(config->dummy_type) != 0)
    std::abort();
  return 0;
}
