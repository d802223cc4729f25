#pragma once
// Which layers of a model a stage of a pipeline group has.

#include <cstdint>
#include <string>

namespace mooncaf {

/// Layers [first, first + count) of a model.
struct layer_range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  constexpr std::uint32_t end() const noexcept { return first + count; }
  constexpr bool has(std::uint32_t layer) const noexcept { return layer >= first && layer < end(); }
  friend constexpr bool operator==(const layer_range&, const layer_range&) noexcept = default;
  /// As people count them: "1 to 10".
  friend std::string to_string(const layer_range& r) {
    return std::to_string(r.first + 1) + " to " + std::to_string(r.end());
  }
};

/// The layers of stage `stage` of `stages`: as equal as they can be, and the last stages have one less, since
/// the last of all computes the logits, too. @pre 1 ≤ stages ≤ layers, stage < stages.
constexpr layer_range stage_layers(std::uint32_t layers, std::uint32_t stages, std::uint32_t stage) noexcept {
  const auto each = layers / stages, longer = layers % stages;
  return {stage * each + (stage < longer ? stage : longer), each + (stage < longer ? 1 : 0)};
}

}  // namespace mooncaf
