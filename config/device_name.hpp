#pragma once
// Values of `--device` beyond plain words.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mooncaf::config {

/// Of "cuda" and "cuda:N": which GPU, counted from 0 as the driver counts. None of any other name.
inline std::optional<unsigned> cuda_ordinal(std::string_view device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  const auto number = device.substr(5);
  std::uint16_t n = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (problem != std::errc{} || end != number.data() + number.size()) return std::nullopt;
  return n;
}

}  // namespace mooncaf::config
