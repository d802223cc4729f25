#include "runtime/api/kept_view.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace mooncaf {

std::optional<block_key> prefix_named(std::string_view name) {
  if (name.empty()) return every_prefix;
  return hash128_in(name);
}

std::string format_kept(std::span<const kept_status> kept, std::uint32_t block_tokens, bool dropped) {
  std::map<std::string, kept_status> once;
  for (const auto& k : kept) {
    auto& known = once.try_emplace(to_string(k.name), k).first->second;
    known.left_ns = std::max(known.left_ns, k.left_ns);
  }
  auto list = nlohmann::json::array();
  for (const auto& [name, k] : once) {
    nlohmann::json one{
        {"id", name}, {"object", "kept_prefix"}, {"tokens", std::uint64_t{k.blocks} * block_tokens}};
    if (dropped) one["deleted"] = true;
    else one["expires_in_s"] = std::max<std::int64_t>(k.left_ns, 0) / 1'000'000'000;
    list.push_back(std::move(one));
  }
  return nlohmann::json{{"object", "list"}, {"data", std::move(list)}}.dump();
}

}  // namespace mooncaf
