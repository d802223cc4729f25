#include "runtime/model/json_file.hpp"

#include <cmath>

namespace mooncaf {

using nlohmann::json;

namespace {

constexpr int max_depth = 32;
/// Of a value in an error text.
constexpr std::size_t most_shown = 40;

std::string span_text(const auto& low, const auto& high) {
  return "in [" + json(low).dump() + ", " + json(high).dump() + "]";
}

}  // namespace

result<json> parse_json_object(std::string_view text, std::string_view name) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= max_depth; };
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), shallow);
  } catch (const json::exception& e) {
    const auto* at = dynamic_cast<const json::parse_error*>(&e);
    return fail(ec::corrupt, std::string(name) + ": not JSON" +
                                 (at != nullptr ? " at byte " + std::to_string(at->byte) : std::string{}));
  }
  if (!parsed.is_object()) return fail(ec::corrupt, std::string(name) + ": not a JSON object");
  return parsed;
}

const json* json_reader::find(const char* key) const {
  if (!object_.is_object()) return nullptr;
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void json_reader::wrong(const char* key, const json& value, const std::string& wanted) {
  const auto shown = value.dump(-1, ' ', false, json::error_handler_t::replace);
  note({ec::corrupt, label_ + "'" + key + "' is " +
                         (shown.size() > most_shown ? shown.substr(0, most_shown) + "…" : shown) + ", not " +
                         wanted});
}

std::uint32_t json_reader::integer(const char* key, std::uint64_t low, std::uint64_t high,
                                   std::optional<std::uint64_t> fallback) {
  const auto* found = find(key);
  if (found == nullptr) {
    require(fallback.has_value(), ec::corrupt, "'" + std::string(key) + "' is missing");
    return static_cast<std::uint32_t>(fallback.value_or(low));
  }
  // Some files write whole numbers as 8192.0.
  const bool whole =
      found->is_number_unsigned() ||
      (found->is_number_float() && found->get<double>() >= 0 && found->get<double>() < 0x1p53 &&
       found->get<double>() == std::floor(found->get<double>()));
  const auto value = whole ? static_cast<std::uint64_t>(found->get<double>()) : 0;
  if (whole && value >= low && value <= high) return static_cast<std::uint32_t>(value);
  wrong(key, *found, "a whole number " + span_text(low, high));
  return static_cast<std::uint32_t>(low);
}

double json_reader::number(const char* key, double low, double high, std::optional<double> fallback) {
  const auto* found = find(key);
  if (found == nullptr) {
    require(fallback.has_value(), ec::corrupt, "'" + std::string(key) + "' is missing");
    return fallback.value_or(low);
  }
  if (found->is_number() && found->get<double>() >= low && found->get<double>() <= high)
    return found->get<double>();
  wrong(key, *found, "a number " + span_text(low, high));
  return low;
}

bool json_reader::boolean(const char* key, bool fallback) {
  const auto* found = find(key);
  if (found == nullptr) return fallback;
  if (found->is_boolean()) return found->get<bool>();
  wrong(key, *found, "true or false");
  return fallback;
}

std::string json_reader::text(const char* key, std::string_view fallback) {
  const auto* found = find(key);
  if (found == nullptr) return std::string(fallback);
  if (found->is_string()) return found->get<std::string>();
  wrong(key, *found, "a string");
  return std::string(fallback);
}

}  // namespace mooncaf
