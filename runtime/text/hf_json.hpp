#pragma once
// Reading the parts of a tokenizer.json. Internal to the readers of such files.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mooncaf::hf_json {

using nlohmann::json;

inline std::string type_of(const json& part) {
  const auto found = part.is_object() ? part.find("type") : part.end();
  return part.is_object() && found != part.end() && found->is_string() ? found->get<std::string>() : "";
}

/// The parts of a normalizer, pre-tokenizer or post-processor: a Sequence's, or itself, or none.
inline std::vector<const json*> parts_of(const json& root, const char* key, const char* list) {
  std::vector<const json*> out;
  const auto found = root.find(key);
  if (found == root.end() || !found->is_object()) return out;
  const auto inner = found->find(list);
  if (type_of(*found) != "Sequence") out.push_back(&*found);
  else if (inner != found->end() && inner->is_array())
    for (const auto& part : *inner) out.push_back(&part);
  return out;
}

inline bool flag(const json& part, const char* key, bool fallback) {
  const auto found = part.find(key);
  return found != part.end() && found->is_boolean() ? found->get<bool>() : fallback;
}
inline std::string word(const json& part, const char* key) {
  const auto found = part.find(key);
  return found != part.end() && found->is_string() ? found->get<std::string>() : "";
}
/// Of {"Regex": …} or {"String": …}.
inline std::string pattern_of(const json& part, const char* key) {
  const auto found = part.find("pattern");
  return found != part.end() && found->is_object() ? word(*found, key) : "";
}

}  // namespace mooncaf::hf_json
