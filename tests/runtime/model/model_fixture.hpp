#pragma once
// What tests of the forward pass share: files, KV memory, and a loop that feeds a prompt in chunks.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/host/host_device.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/model/gguf_source.hpp"
#include "runtime/model/hf_source.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/model_runner.hpp"
#include "storage/mapped_file.hpp"
#include "tests/support/unwrap.hpp"

namespace mooncaf::testing {

/// Maps a GGUF file and loads it; the model keeps the mapping alive.
inline std::shared_ptr<const model> load_model(device& dev, const std::string& path) {
  auto mapped = std::make_shared<const mapped_file>(unwrap(mapped_file::open(path)));
  const auto file = unwrap(parse_gguf(mapped->bytes(), path));
  return unwrap(model::load(dev, gguf_source(file), mapped));
}

/// Loads a Hugging Face folder.
inline std::shared_ptr<const model> load_folder(device& dev, const std::string& path) {
  const auto source = unwrap(hf_source::open(path, map_files_of<mapped_file>(path)));
  return unwrap(model::load(dev, *source, source));
}

/// KV blocks for one sequence, each its own allocation so that a sanitizer sees a write past the end. Filled
/// with a pattern that is a NaN in both element types: reading what nobody wrote shows.
class kv_space {
 public:
  kv_space(const kv_layout& layout, std::size_t tokens) {
    const auto shape = layout.pieces();
    const auto bytes = shape.stride() * (shape.count - 1) + shape.bytes;  // its pieces, and what is between
    for (std::size_t i = 0; i < layout.blocks_for(tokens); ++i) {
      memory_.emplace_back(new (std::align_val_t{64}) std::byte[bytes]);
      std::memset(memory_.back().get(), 0xFF, bytes);
      blocks_.push_back(memory_.back().get());
    }
  }
  std::span<std::byte* const> blocks() const noexcept { return blocks_; }
  std::span<const std::byte> block(std::size_t i, const kv_layout& layout) const noexcept {
    return {blocks_[i], layout.block_bytes()};
  }
  void copy_block(std::size_t i, const kv_space& from, const kv_layout& layout) {
    std::memcpy(blocks_[i], from.blocks_[i], layout.block_bytes());
  }

 private:
  struct aligned_delete {
    void operator()(std::byte* p) const noexcept { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::vector<std::unique_ptr<std::byte[], aligned_delete>> memory_;
  std::vector<std::byte*> blocks_;
};

inline bool same_kv(const kv_space& a, const kv_space& b, const kv_layout& layout) {
  for (std::size_t i = 0; i < a.blocks().size(); ++i)
    if (!std::ranges::equal(a.block(i, layout), b.block(i, layout))) return false;
  return true;
}

/// Feeds `tokens` from position `start` in chunks and returns the logits of the last one.
inline std::vector<float> feed(forward_pass& runner, const kv_space& kv, std::span<const std::int32_t> tokens,
                               std::size_t chunk, std::uint32_t start = 0,
                               const lora_adapter* adapter = nullptr) {
  std::vector<float> logits(runner.vocab_size());
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    const auto n = std::min(chunk, tokens.size() - at);
    const bool last = at + n == tokens.size();
    batch_item item{tokens.subspan(at, n), start + static_cast<std::uint32_t>(at), kv.blocks(), last};
    item.adapter = adapter;
    auto done = runner.forward({&item, 1}, last ? std::span<float>(logits) : std::span<float>{});
    if (!done) throw std::runtime_error(to_string(done.error()));
  }
  return logits;
}

inline std::vector<std::int32_t> random_tokens(std::size_t n, std::uint32_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(n);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % vocab);
  return ids;
}

inline std::size_t argmax(std::span<const float> v) {
  return static_cast<std::size_t>(std::max_element(v.begin(), v.end()) - v.begin());
}

}  // namespace mooncaf::testing
