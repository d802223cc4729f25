#include "runtime/grammar/place_classes.hpp"

#include <bit>
#include <numeric>
#include <unordered_map>

namespace mooncaf {

namespace {

constexpr std::size_t few_places = 256;
constexpr std::size_t work_limit = 4'000'000;  ///< places looked at: some tens of milliseconds

std::uint64_t mixed(std::uint64_t h, std::uint64_t v) noexcept {
  return std::rotl((h ^ v) * 0x9E3779B97F4A7C15ull, 29);
}

/// A place's moves by one byte, if `classes` tells the places behind apart for the bytes that follow.
std::vector<std::uint64_t> signature_of(const automaton& rules, std::uint32_t place,
                                        const std::vector<std::uint32_t>& classes) {
  std::vector<std::uint64_t> out{rules.ends(place)};
  for (const auto& e : rules.edges(place))
    out.push_back(std::uint64_t{e.low} << 40 | std::uint64_t{e.high} << 32 | classes[e.to]);
  out.push_back(~std::uint64_t{0});
  // A call takes no byte itself: only the same call is the same.
  for (const auto& c : rules.calls(place)) out.push_back(std::uint64_t{c.start} << 32 | c.to);
  return out;
}

struct signature_hash {
  std::size_t operator()(const std::vector<std::uint64_t>& s) const noexcept {
    std::uint64_t h = s.size();
    for (const auto v : s) h = mixed(h, v);
    return static_cast<std::size_t>(h);
  }
};

}  // namespace

std::vector<std::uint32_t> place_classes(const automaton& rules, std::size_t bytes) {
  const auto count = static_cast<std::uint32_t>(rules.place_count());
  std::vector<std::uint32_t> own(count);
  std::iota(own.begin(), own.end(), 0u);
  if (count < few_places || count * bytes > work_limit) return own;
  std::vector<std::uint32_t> classes(count, 0), next(count);
  std::size_t before = 1;
  for (std::size_t round = 0; round <= bytes; ++round) {
    std::unordered_map<std::vector<std::uint64_t>, std::uint32_t, signature_hash> found;
    for (std::uint32_t p = 0; p < count; ++p)
      next[p] = found.try_emplace(signature_of(rules, p, classes), p).first->second;
    classes.swap(next);
    if (found.size() > count / 2) return own;
    if (found.size() == before) break;  // classes only ever part: these are final
    before = found.size();
  }
  return classes;
}

}  // namespace mooncaf
