// Which strings a schema has, and whether a value is one of a schema's.

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/json_number.hpp"
#include "runtime/grammar/json_schema_sets.hpp"
#include "runtime/grammar/json_string.hpp"

namespace mooncaf {

namespace {

using json = schema_sets::json;

constexpr int max_value_depth = 64;

std::size_t characters(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); ++n) utf8::next(text, at);
  return n;
}

double number_in(const json& schema, const char* name, double otherwise) {
  const auto i = schema.find(name);
  return i != schema.end() && i->is_number() ? i->get<double>() : otherwise;
}

}  // namespace

const char_language* schema_sets::pattern(const std::string& source, const std::string& where) {
  auto i = patterns_.find(source);
  if (i == patterns_.end()) i = patterns_.emplace(source, char_language::of_pattern(source)).first;
  if (i->second) return &*i->second;
  complain(where, "'pattern': " + i->second.error().detail);
  return nullptr;
}

/// All string keywords at once, since a grammar has no way to ask for two of them.
result<char_language> schema_sets::strings_of(const json& schema, const std::string& where) {
  result<char_language> out = char_language::all();
  const auto cut = [&](const char_language& with) {
    if (out) out = out->both(with);
  };
  const auto none = char_language::of_texts({});
  if (schema.contains("type")) {
    const auto types = types_of(schema, where);
    if (std::ranges::find(types, "string") == types.end()) return none;
  }
  if (schema.contains("enum")) {
    std::vector<std::string> texts;
    for (const auto& v : schema["enum"])
      if (v.is_string() && utf8::is_well_formed(v.get_ref<const std::string&>())) texts.push_back(v);
    cut(char_language::of_texts(texts));
  }
  for (const auto& entry : schema.value(joined_keyword::patterns, json::array())) {
    if (entry[0].is_array()) {
      const auto texts = strings_of(json{{"enum", entry[0]}}, where);
      if (texts) cut(entry[1].get<bool>() ? *texts : texts->others());
      continue;
    }
    const auto* wanted = pattern(entry[0].get<std::string>(), where);
    if (!wanted) return none;
    cut(entry[1].get<bool>() ? *wanted : wanted->others());
  }
  if (schema.contains("format")) {
    const auto source = json_format_pattern(schema["format"].get<std::string>());
    if (!source) return complain(where, "'format': " + source.error().detail), none;
    if (const auto* wanted = pattern(std::string{*source}, where)) cut(*wanted);
  }
  const auto least = count(schema, "minLength", where), most = count(schema, "maxLength", where);
  if (!failed() && (least || most)) {
    if (most && *most < least.value_or(0)) return none;
    const auto lengths = char_language::of_length(least.value_or(0), most.value_or(unbounded));
    if (!lengths) return lengths;
    cut(*lengths);
  }
  return out;
}

result<char_language> schema_sets::names_of(const json& schema, const std::string& where) {
  // The union, as the complement of the common part of all complements.
  auto others = result<char_language>{char_language::all()};
  for (const auto& one : alternatives(schema, where)) {
    const auto texts = strings_of(one, where);
    if (!texts) return texts;
    others = others->both(texts->others());
    if (!others) return others;
  }
  return others->others();
}

std::vector<json> schema_sets::member_schemas(const json& layer, const std::string& name,
                                              const std::string& where) {
  std::vector<json> out;
  if (const auto p = layer.find("properties"); p != layer.end() && p->contains(name))
    out.push_back((*p)[name]);
  if (const auto p = layer.find("patternProperties"); p != layer.end()) {
    for (const auto& [source, schema] : p->items()) {
      const auto* wanted = pattern(source, where);
      if (wanted && wanted->contains(name)) out.push_back(schema);
    }
  }
  if (out.empty() && layer.contains("additionalProperties")) out.push_back(layer["additionalProperties"]);
  return out;
}

bool schema_sets::holds_number(const json& schema, const json& value) {
  const auto exact = decimal::parse(value.dump());
  const auto bound = [&](const char* name) -> std::optional<decimal> {
    const auto i = schema.find(name);
    return i != schema.end() && i->is_number() ? decimal::parse(i->dump()) : std::nullopt;
  };
  for (const auto* name : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
    if (schema.contains(name) && (!exact || !bound(name))) return false;  // it is not seen to hold
  if (const auto low = bound("minimum"); low && less(*exact, *low)) return false;
  if (const auto high = bound("maximum"); high && less(*high, *exact)) return false;
  if (const auto low = bound("exclusiveMinimum"); low && !less(*low, *exact)) return false;
  if (const auto high = bound("exclusiveMaximum"); high && !less(*exact, *high)) return false;
  const auto divisor = number_in(schema, "multipleOf", 0);
  return divisor <= 0 || std::fmod(value.get<double>(), divisor) == 0;
}

/// Each keyword on its own: no automaton of several is made for one text.
bool schema_sets::holds_text(const json& schema, const std::string& value) {
  const auto n = static_cast<double>(characters(value));
  if (n < number_in(schema, "minLength", 0) || n > number_in(schema, "maxLength", 1e18)) return false;
  for (const auto& entry : schema.value(joined_keyword::patterns, json::array())) {
    const bool listed = entry[0].is_array();
    const auto* wanted = listed ? nullptr : pattern(entry[0].get<std::string>(), "#");
    if (!listed && !wanted) return false;
    const bool is_in =
        listed ? std::ranges::find(entry[0], json(value)) != entry[0].end() : wanted->contains(value);
    if (is_in != entry[1].get<bool>()) return false;
  }
  if (!schema.contains("format")) return true;
  const auto source = json_format_pattern(schema["format"].get<std::string>());
  if (!source) return complain("#", "'format': " + source.error().detail), false;
  const auto* wanted = pattern(std::string{*source}, "#");
  return wanted && wanted->contains(value);
}

bool schema_sets::holds_array(const json& schema, const json& value, int depth) {
  const auto size = static_cast<double>(value.size());
  if (size < number_in(schema, "minItems", 0) || size > number_in(schema, "maxItems", 1e18)) return false;
  const auto first = schema.value("prefixItems", json::array());
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool named = first.is_array() && i < first.size();
    const auto item = named ? first[i] : schema.value("items", json(true));
    if (!holds(item, value[i], depth + 1)) return false;
  }
  if (schema.value("uniqueItems", json(false)) == true) {
    for (std::size_t i = 0; i < value.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (value[i] == value[j]) return false;
  }
  for (const auto& one : schema.value(joined_keyword::contains, json::array())) {
    const auto n = static_cast<double>(std::ranges::count_if(
        value, [&](const auto& v) { return holds(one.value("contains", json(true)), v, depth + 1); }));
    if (n < number_in(one, "minContains", 1) || n > number_in(one, "maxContains", 1e18)) return false;
  }
  return true;
}

bool schema_sets::holds_object(const json& schema, const json& value, int depth) {
  const auto size = static_cast<double>(value.size());
  if (size < number_in(schema, "minProperties", 0) || size > number_in(schema, "maxProperties", 1e18))
    return false;
  for (const auto& name : schema.value("required", json::array()))
    if (!name.is_string() || !value.contains(name.get<std::string>())) return false;
  for (const auto& [name, v] : value.items()) {
    for (const auto& layer : layers_of(schema))
      for (const auto& s : member_schemas(layer, name, "#"))
        if (!holds(s, v, depth + 1)) return false;
    if (schema.contains("propertyNames") && !holds(schema["propertyNames"], json(name), depth + 1))
      return false;
  }
  return true;
}

bool schema_sets::holds(const json& schema, const json& value, int depth) {
  if (depth > max_value_depth || !spend(1, "#")) return false;
  for (const auto& one : alternatives(schema, "#")) {
    if (one.contains("type")) {
      const auto types = types_of(one, "#");
      if (std::ranges::none_of(types, [&](const auto& t) { return is_of_type(value, t); })) continue;
    }
    if (one.contains("enum") && std::ranges::find(one["enum"], value) == one["enum"].end()) continue;
    if (value.is_number() && !holds_number(one, value)) continue;
    if (value.is_string() && !holds_text(one, value.get_ref<const std::string&>())) continue;
    if (value.is_array() && !holds_array(one, value, depth)) continue;
    if (value.is_object() && !holds_object(one, value, depth)) continue;
    return true;
  }
  return false;
}

}  // namespace mooncaf
