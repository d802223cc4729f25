#include "config/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

namespace mooncaf::config {

namespace {

struct unit {
  std::string_view name;
  double factor;
};

constexpr unit size_units[] = {{"TiB", 1099511627776.0},
                               {"GiB", 1073741824.0},
                               {"MiB", 1048576.0},
                               {"KiB", 1024.0},
                               {"TB", 1e12},
                               {"GB", 1e9},
                               {"MB", 1e6},
                               {"KB", 1e3},
                               {"B", 1.0}};
constexpr unit duration_units[] = {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6},
                                   {"s", 1e9},  {"m", 6e10}, {"h", 3.6e12}};

/// Number times unit, rounded; nothing unless the unit is known and the product lies in [0, max].
std::optional<double> parse_with_unit(std::string_view text, std::span<const unit> units, double max) {
  const std::size_t split = text.find_first_not_of("0123456789.");
  if (split == 0 || split == std::string_view::npos) return std::nullopt;
  const auto number = parse_real(text.substr(0, split));
  const auto found =
      std::find_if(units.begin(), units.end(), [&](auto& u) { return u.name == text.substr(split); });
  if (!number || found == units.end()) return std::nullopt;
  const double value = std::round(*number * found->factor);
  if (value < 0 || value > max) return std::nullopt;
  return value;
}

/// Edit distance with neighbours swapped as one step.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, row);
  }
  return last.back();
}

}  // namespace

std::optional<std::uint64_t> parse_integer(std::string_view text) {
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  return std::isfinite(value) ? std::optional{value} : std::nullopt;
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const auto word : {"true", "on", "yes", "1"})
    if (text == word) return true;
  for (const auto word : {"false", "off", "no", "0"})
    if (text == word) return false;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  // Doubles are exact here: 2^53 bytes are 8 PiB.
  const auto value = parse_with_unit(text, size_units, 9007199254740992.0);
  return value ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto value = parse_with_unit(text, duration_units, 9.1e18);
  return value ? std::optional{std::chrono::nanoseconds{static_cast<std::int64_t>(*value)}} : std::nullopt;
}

std::optional<instance_range> parse_range(std::string_view text) {
  constexpr std::uint64_t most = 8191;
  const auto dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto least = parse_integer(text.substr(0, dash)), greatest = parse_integer(text.substr(dash + 1));
  if (!least || !greatest || *least < 1 || *least > *greatest || *greatest > most) return std::nullopt;
  return instance_range{static_cast<std::uint32_t>(*least), static_cast<std::uint32_t>(*greatest)};
}

std::optional<host_port> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const auto port = parse_integer(text.substr(colon + 1));
  if (!port || *port > 65535) return std::nullopt;
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  const auto odd = [&](char c) {
    return c <= ' ' || c == 0x7F || c == '[' || c == ']' || (c == ':' && !brackets);
  };
  if (std::any_of(host.begin(), host.end(), odd)) return std::nullopt;
  return host_port{std::string{host}, static_cast<std::uint16_t>(*port)};
}

std::string format_size(std::uint64_t bytes) {
  for (const auto& [name, factor] :
       {unit{"GiB", 1073741824.0}, unit{"MiB", 1048576.0}, unit{"KiB", 1024.0}}) {
    const auto step = static_cast<std::uint64_t>(factor);
    if (bytes >= step && bytes % step == 0) return std::to_string(bytes / step) + std::string{name};
  }
  return std::to_string(bytes) + "B";
}

std::string format_duration(std::chrono::nanoseconds time) {
  const auto n = time.count();
  if (n == 0) return "0s";
  if (n % 1'000'000'000 == 0) return std::to_string(n / 1'000'000'000) + "s";
  if (n % 1'000'000 == 0) return std::to_string(n / 1'000'000) + "ms";
  if (n % 1'000 == 0) return std::to_string(n / 1'000) + "us";
  return std::to_string(n) + "ns";
}

std::string format_real(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string out(text.data(), end);
  // TOML tells floats from integers by the point.
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts{""};
  for (const char c : list) {
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  }
  return parts;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return {};  // a word of such length is no typing error, and distance is quadratic
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

}  // namespace mooncaf::config
