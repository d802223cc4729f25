#pragma once
// A low-rank adapter of a model, as PEFT keeps it: the change of some matrices of each layer.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/result.hpp"
#include "runtime/model/hf_source.hpp"
#include "runtime/model/model_config.hpp"

namespace mooncaf {

/// The matrices of a layer that an adapter may change.
enum class lora_site : std::uint8_t { q, k, v, attention_out, gate, up, down };
inline constexpr std::size_t lora_sites = 7;

/// x·Wᵀ becomes x·Wᵀ + scale·(x·Aᵀ)·Bᵀ.
/// @thread Immutable after loading. The device must outlive it.
class lora_adapter {
 public:
  struct pair {
    std::unique_ptr<weight> a;  ///< [rank, in]; null: this matrix is not changed
    std::unique_ptr<weight> b;  ///< [out, rank]
  };

  /// Reads `adapter_config.json` and `adapter_model.safetensors` of a folder.
  /// @param dev   null: the files are read and checked, and the adapter only identified.
  /// @param name  of the folder, for error texts.
  /// @error `ec::unsupported` names what is not offered (DoRA, modules_to_save, a module, …);
  /// `ec::corrupt` the file, field or tensor that is wrong.
  static result<std::shared_ptr<const lora_adapter>> load(device* dev, const model_config& config,
                                                          const std::string& name, const folder_reader& read);

  const pair& at(std::uint32_t layer, lora_site site) const noexcept {
    return pairs_[layer * lora_sites + static_cast<std::size_t>(site)];
  }
  float scale() const noexcept { return scale_; }
  std::uint32_t rank() const noexcept { return rank_; }
  /// Hash of all bytes that decide the adapter's results.
  hash128 fingerprint() const noexcept { return fingerprint_; }

 private:
  friend class lora_reader;
  lora_adapter() = default;

  std::vector<pair> pairs_;  ///< [layers, sites]; empty without a device
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<std::vector<std::byte>> own_;  ///< rows in another order than the file's
  float scale_ = 0;
  std::uint32_t rank_ = 0;
  hash128 fingerprint_;
};

}  // namespace mooncaf
