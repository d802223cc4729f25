#pragma once
// Option values between text and meaning: numbers, sizes, durations, endpoints.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"

namespace mooncaf::config {

// Each parser takes the whole text or gives nothing.

std::optional<std::uint64_t> parse_integer(std::string_view text);  ///< decimal digits only
std::optional<double> parse_real(std::string_view text);            ///< finite
std::optional<bool> parse_flag(std::string_view text);              ///< true/false, on/off, yes/no, 1/0
/// "512MiB", "1.5GiB", "4096B"; B, KiB, MiB, GiB, TiB, and KB, MB, GB, TB as powers of 1000. The unit is
/// needed.
std::optional<std::uint64_t> parse_size(std::string_view text);
/// "250ms", "1.5s"; ns, us, ms, s, m, h. The unit is needed. Not above 290 years.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
/// "2-8": numbers from 1 to 8191, the less first.
std::optional<instance_range> parse_range(std::string_view text);
/// "HOST:PORT", with an IPv6 address in brackets.
std::optional<host_port> parse_endpoint(std::string_view text);

/// The parts of a list with commas; of an empty one, an empty part.
std::vector<std::string> split_list(std::string_view list);

// Text that the parsers read back to the same value, in the largest unit that needs no fraction.
std::string format_size(std::uint64_t bytes);
std::string format_duration(std::chrono::nanoseconds time);
std::string format_real(double value);

/// True for addresses that only this machine reaches.
bool is_loopback(std::string_view host);

/// Name of `candidates` nearest to `word` (edit distance), or empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mooncaf::config
