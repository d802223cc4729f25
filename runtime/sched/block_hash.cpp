#include "runtime/sched/block_hash.hpp"

#include <string>

namespace mooncaf {

hash128 root_key(hash128 model, const kv_layout& layout, std::string_view cache_salt) {
  // The salt goes last and behind a separator, so that no salt can imitate another model's text.
  return hash_text128(to_string(model) + "|" + to_string(layout) + "|" + std::string{cache_salt});
}

hash128 adapted_root(hash128 model, hash128 adapter) {
  return adapter == hash128{} ? model : hash_text128(to_string(model) + "+" + to_string(adapter));
}

block_key next_key(const block_key& parent, std::span<const std::int32_t> tokens) noexcept {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, &parent, sizeof parent);
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  const auto h = XXH3_128bits_digest(&state);
  return {h.high64, h.low64};
}

std::vector<block_key> block_keys(std::span<const std::int32_t> tokens, std::uint32_t block_tokens,
                                  const block_key& root) {
  std::vector<block_key> keys;
  keys.reserve(tokens.size() / block_tokens);
  auto parent = root;
  for (; tokens.size() >= block_tokens; tokens = tokens.subspan(block_tokens)) {
    parent = next_key(parent, tokens.first(block_tokens));
    keys.push_back(parent);
  }
  return keys;
}

}  // namespace mooncaf
