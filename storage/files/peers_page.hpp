#pragma once
// Which hosts fetch a model now, on a page of memory that each of them reads.

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/units.hpp"

namespace mooncaf {

/// Readers come at any time, one-sidedly: a page that was written meanwhile is told from its checksum.
/// @thread  not synchronised, but for readers of `bytes`
class peers_page {
 public:
  static constexpr std::size_t size = 4096;
  /// A fetch that has said nothing for so long is gone.
  static constexpr duration silence_max = std::chrono::seconds(15);

  peers_page() { write(); }

  std::span<const std::byte, size> bytes() const noexcept { return bytes_; }
  /// A fetch goes on. @param at  its HOST:PORT
  void goes_on(std::string_view at, time_point now);
  void ended(std::string_view at);
  /// Fetches that were silent are taken off.
  void forget_silent(time_point now);

  /// @returns nothing for a page that was written meanwhile, or is none. @param in  any bytes
  static std::vector<std::string> parse(std::span<const std::byte, size> in);

 private:
  void write();

  std::map<std::string, time_point, std::less<>> heard_;
  std::array<std::byte, size> bytes_{};
};

}  // namespace mooncaf
