#pragma once
// Bytes of blocks, and what they take on a disk where some are packed.

#include <algorithm>
#include <cstdint>
#include <optional>

namespace mooncaf {

/// @thread  not synchronised.
class packed_bytes {
 public:
  void add(std::uint64_t bytes, std::uint64_t stored) noexcept {
    bytes_ += bytes;
    stored_ += stored;
  }
  /// @param stored  nothing: not known, it packed as well as the others.
  void remove(std::uint64_t bytes, std::optional<std::uint64_t> stored) noexcept {
    const auto like_others = static_cast<std::uint64_t>(static_cast<double>(bytes) / packs());
    bytes_ -= std::min(bytes_, bytes);
    stored_ = bytes_ == 0 ? 0 : stored_ - std::min(stored_, stored.value_or(like_others));
  }
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t stored() const noexcept { return stored_; }
  /// Bytes of blocks that fit into so many, if what is added packs as well as what is there.
  std::uint64_t fitting(std::uint64_t capacity) const noexcept {
    const double left = static_cast<double>(capacity) - static_cast<double>(stored_);
    const double all = static_cast<double>(bytes_) + left * packs();
    return std::max(capacity, static_cast<std::uint64_t>(std::max(all, 0.0)));
  }

 private:
  /// Bytes to one on disk.
  double packs() const noexcept {
    return stored_ == 0 ? 1 : static_cast<double>(bytes_) / static_cast<double>(stored_);
  }
  std::uint64_t bytes_ = 0, stored_ = 0;
};

}  // namespace mooncaf
