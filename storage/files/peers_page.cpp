#include "storage/files/peers_page.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/base/hash.hpp"
#include "storage/files/one_sided.hpp"
#include "transport/net/bytes.hpp"

namespace mooncaf {

namespace {

// hash128 of the rest, then a line for each fetch, then zeros.
constexpr std::size_t sum_bytes = 16, line_max = 80;

}  // namespace

void peers_page::goes_on(std::string_view at, time_point now) {
  if (at.empty() || at.size() > line_max || at.find_first_of("\n\0", 0, 2) != at.npos) return;
  const auto known = heard_.find(at);
  if (known != heard_.end()) {
    known->second = now;
    return;
  }
  heard_.emplace(at, now);
  write();
}

void peers_page::ended(std::string_view at) {
  const auto known = heard_.find(at);
  if (known == heard_.end()) return;
  heard_.erase(known);
  write();
}

void peers_page::forget_silent(time_point now) {
  if (std::erase_if(heard_, [&](const auto& one) { return now - one.second > silence_max; }) > 0) write();
}

// As many as there is room for.
void peers_page::write() {
  std::array<std::byte, size> made{};
  std::size_t at = sum_bytes;
  for (const auto& [name, when] : heard_) {
    if (at + name.size() + 1 > size) break;
    std::memcpy(made.data() + at, name.data(), name.size());
    made[at + name.size()] = std::byte{'\n'};
    at += name.size() + 1;
  }
  const auto sum = hash_bytes128(std::span<const std::byte>{made}.subspan(sum_bytes));
  std::memcpy(made.data(), &sum.high, 8);
  std::memcpy(made.data() + 8, &sum.low, 8);
  for (std::size_t i = 0; i < size; ++i) store_one_sided(bytes_[i], made[i]);
}

std::vector<std::string> peers_page::parse(std::span<const std::byte, size> in) {
  const auto rest = std::span<const std::byte>{in}.subspan(sum_bytes);
  const auto sum = hash_bytes128(rest);
  byte_reader r{in};
  if (r.get<std::uint64_t>() != sum.high || r.get<std::uint64_t>() != sum.low) return {};
  std::vector<std::string> all;
  std::string_view text{reinterpret_cast<const char*>(rest.data()), rest.size()};
  text = text.substr(0, text.find('\0'));
  for (auto end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    if (end > 0 && end <= line_max) all.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return all;
}

}  // namespace mooncaf
