#include "runtime/grammar/json_schema_sets.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "runtime/grammar/limits.hpp"

namespace mooncaf {

namespace {

using json = schema_sets::json;

constexpr std::size_t max_alternatives = 256;
constexpr std::size_t max_parts_depth = 48;  ///< parts within parts of one value's schema
constexpr std::size_t max_work = 4'000'000;  ///< values copied while schemas are joined

/// Marks schemas that come of 'not': they evaluate no member and no item.
constexpr const char* unseen = "\x01unseen";

constexpr std::array<std::string_view, 6> all_types{"object", "array", "string", "number", "boolean", "null"};

/// Which type a keyword speaks of.
constexpr std::pair<std::string_view, std::string_view> keyword_types[] = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"dependentRequired", "object"},
    {"dependentSchemas", "object"},
    {"dependencies", "object"},
    {joined_keyword::layers, "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"contains", "array"},
    {joined_keyword::contains, "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {joined_keyword::patterns, "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"}};

/// Keywords that would have to be held and cannot be.
constexpr std::string_view unsupported[] = {"$dynamicRef", "$recursiveRef", "divisibleBy", "extends",
                                            "disallow"};

constexpr std::string_view notes[] = {
    "title",      "description", "default",   "examples", "$schema", "$comment", "$defs",    "definitions",
    "deprecated", "readOnly",    "writeOnly", "$id",      "id",      "$anchor",  "nullable", "$vocabulary"};

template <class List>
bool among(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

std::size_t size_of(const json& v) {
  std::size_t out = 1;
  if (v.is_structured()) {
    for (const auto& part : v) out += size_of(part);
  }
  return out;
}

/// A part of a JSON pointer as it was before it was escaped.
std::string unescaped(std::string_view part) {
  std::string out;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto hex = [&](std::size_t at) {
      const char c = at < part.size() ? part[at] : 'x';
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                    : -1;
    };
    if (part[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      out += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      out += part[i];
    }
  }
  for (const auto& [from, to] : {std::pair<std::string_view, char>{"~1", '/'}, {"~0", '~'}}) {
    for (std::size_t at = 0; (at = out.find(from, at)) != std::string::npos; ++at) out.replace(at, 2, 1, to);
  }
  return out;
}

}  // namespace

bool is_note(std::string_view keyword) { return among(notes, keyword); }

bool is_of_type(const json& value, std::string_view type) {
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  }
  return type == value.type_name();
}

void schema_sets::complain(const std::string& where, const std::string& what) {
  if (problem_.empty()) problem_ = "at " + where.substr(0, 200) + ": " + what;
}

bool schema_sets::is_free_of_joined(const json& document) {
  constexpr std::string_view joined[] = {joined_keyword::patterns, joined_keyword::layers,
                                         joined_keyword::contains, unseen};
  if (!document.is_structured()) return true;
  for (const auto& [name, value] : document.items())
    if ((document.is_object() && among(joined, name)) || !is_free_of_joined(value)) return false;
  return true;
}

bool schema_sets::spend(std::size_t work, const std::string& where) {
  work_ += work;
  if (work_ > max_work) complain(where, "the schema is too large");
  return !failed();
}

void schema_sets::check_keywords(const json& schema, const std::string& where) {
  for (const auto& [name, value] : schema.items()) {
    if (among(unsupported, name)) complain(where, "'" + name + "' is not supported");
    if ((name == "$id" || name == "id") && where != "#" && value.is_string())
      complain(where, "'" + name + "' is supported at the root alone");
    if (name == "required" && !value.is_array()) complain(where, "'required' must be a list");
    const bool object = name == "properties" || name == "patternProperties" || name == "dependentRequired" ||
                        name == "dependentSchemas" || name == "dependencies";
    if (object && !value.is_object()) complain(where, "'" + name + "' must be an object");
    const bool list = name == "allOf" || name == "anyOf" || name == "oneOf";
    if (list && (!value.is_array() || value.empty()))
      complain(where, "'" + name + "' must be a list of schemas");
    if (name == "enum" && (!value.is_array() || value.empty()))
      complain(where, "'enum' must be a list of at least one value");
    if (name == "multipleOf" && (!value.is_number() || value.get<double>() <= 0))
      complain(where, "'multipleOf' must be a number above 0");
    if ((name == "pattern" || name == "format" || name == "$ref") && !value.is_string())
      complain(where, "'" + name + "' must be a string");
    if (name == "uniqueItems" && !value.is_boolean()) complain(where, "'uniqueItems' must be true or false");
  }
}

/// Only pointers into the document are followed: a schema of a client must not make the server fetch
/// anything.
const json* schema_sets::resolve(const std::string& ref, const std::string& where) {
  if (ref != "#" && !ref.starts_with("#/")) {
    complain(where,
             "'$ref' to '" + ref.substr(0, 100) + "' is not supported: only to a place in this schema, #/…");
    return nullptr;
  }
  const json* at = &document_;
  std::string_view rest = std::string_view{ref}.substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const auto end = std::min(rest.find('/'), rest.size());
    const auto part = unescaped(rest.substr(0, end));
    rest.remove_prefix(end);
    const json* next = nullptr;
    if (at->is_object()) {
      if (const auto i = at->find(part); i != at->end()) next = &*i;
    } else if (at->is_array() && !part.empty() && part.size() < 6 &&
               std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) {
      if (const auto index = std::stoul(part); index < at->size()) next = &(*at)[index];
    }
    if (!next) {
      complain(where, "'$ref' to '" + ref.substr(0, 100) + "' leads nowhere");
      return nullptr;
    }
    at = next;
    if (at->is_object() && at->contains("$id") && (*at)["$id"].is_string()) {
      complain(where, "'$id' is supported at the root alone");
      return nullptr;
    }
  }
  return at;
}

std::vector<std::string> schema_sets::types_of(const json& schema, const std::string& where) {
  std::vector<std::string> out;
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const auto& t : type->is_array() ? *type : json::array({*type})) {
      const bool known =
          t.is_string() && (among(all_types, t.get_ref<const std::string&>()) || t == "integer");
      if (!known) {
        complain(where, "'type' must be one of JSON schema's types");
        return {};
      }
      if (!among(out, t.get_ref<const std::string&>())) out.push_back(t.get<std::string>());
    }
    if (out.empty()) complain(where, "'type' must name a type");
    return out;
  }
  for (const auto& [keyword, type] : keyword_types) {
    if (schema.contains(keyword) && !among(out, type)) out.emplace_back(type);
  }
  return out;
}

std::optional<std::uint32_t> schema_sets::count(const json& schema, const char* keyword,
                                                const std::string& where) {
  const auto i = schema.find(keyword);
  if (i == schema.end()) return std::nullopt;
  const bool whole = i->is_number() && i->get<double>() == std::floor(i->get<double>());
  if (!whole || i->get<double>() < 0 || i->get<double>() > grammar_limits::max_repeat) {
    complain(where, std::string{keyword} + " must be a whole number from 0 to " +
                        std::to_string(grammar_limits::max_repeat));
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(i->get<double>());
}

/// The keywords of one value's schema in the forms that joining knows: lists of items as `prefixItems`, open
/// bounds as numbers, a constant as a list of one, an object's members as a layer.
json schema_sets::canonical(json schema, const std::string& where) {
  if (const auto items = schema.find("items"); items != schema.end() && items->is_array()) {
    schema["prefixItems"] = *items;
    schema.erase("items");
    if (schema.contains("additionalItems")) schema["items"] = schema["additionalItems"];
  }
  schema.erase("additionalItems");
  for (const auto& [bound, open] :
       {std::pair{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}}) {
    const auto given = schema.find(open);
    if (given == schema.end() || !given->is_boolean()) continue;
    const bool is_open = given->get<bool>() && schema.contains(bound);
    if (is_open) *given = schema[bound];
    else schema.erase(open);
    if (is_open) schema.erase(bound);
  }
  if (schema.contains("const")) {
    const auto value = schema["const"];
    schema.erase("const");
    if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
      schema["enum"] = json::array();
    else schema["enum"] = json::array({value});
  }
  if (schema.contains("pattern")) {
    schema[joined_keyword::patterns].push_back(json::array({schema["pattern"], true}));
    schema.erase("pattern");
  }
  if (schema.contains("uniqueItems") && schema["uniqueItems"] == false) schema.erase("uniqueItems");
  if (schema.contains("contains")) {
    json one = {{"contains", schema["contains"]}};
    for (const auto* name : {"minContains", "maxContains"}) {
      count(schema, name, where);
      if (schema.contains(name)) one[name] = schema[name];
    }
    schema[joined_keyword::contains].push_back(std::move(one));
    schema.erase("contains");
  }
  schema.erase("minContains");
  schema.erase("maxContains");
  json layer = json::object();
  for (const auto* name : {"properties", "patternProperties", "additionalProperties"}) {
    if (!schema.contains(name)) continue;
    layer[name] = schema[name];
    schema.erase(name);
  }
  if (!layer.empty()) schema[joined_keyword::layers].push_back(std::move(layer));
  return schema;
}

json schema_sets::layers_of(const json& schema) {
  const auto i = schema.find(joined_keyword::layers);
  return i == schema.end() ? json::array() : *i;
}

std::vector<json> schema_sets::alternatives(const json& schema, const std::string& where) {
  if (failed()) return {};
  if (schema.is_boolean()) return schema.get<bool>() ? std::vector{json::object()} : std::vector<json>{};
  if (!schema.is_object())
    return complain(where, "a schema is an object, true or false"), std::vector<json>{};
  if (depth_ >= max_parts_depth)
    return complain(where, "the schema's parts are nested too deeply"), std::vector<json>{};
  ++depth_;
  check_keywords(schema, where);
  json own = json::object();
  std::vector<std::pair<std::string, const json*>> parts;
  for (const auto& [name, value] : schema.items()) {
    constexpr std::string_view words[] = {"$ref",
                                          "allOf",
                                          "anyOf",
                                          "oneOf",
                                          "not",
                                          "if",
                                          "then",
                                          "else",
                                          "dependentSchemas",
                                          "dependencies",
                                          "dependentRequired"};
    if (name.starts_with("unevaluated")) continue;  // behind all the rest
    if (among(words, name)) parts.emplace_back(name, &value);
    else if (!is_note(name)) own[name] = value;
  }
  std::vector<json> out;
  if (!failed() && spend(size_of(own), where)) out.push_back(canonical(std::move(own), where));
  const auto join = [&](const std::vector<json>& more) { out = crossed(out, more, where); };
  for (const auto& [name, value] : parts) {
    if (failed()) break;
    const auto here = where + "/" + name;
    if (name == "$ref") {
      if (const auto* target = resolve(value->get<std::string>(), where)) join(alternatives(*target, here));
    } else if (name == "allOf") {
      for (std::size_t i = 0; i < value->size() && !failed(); ++i)
        join(alternatives((*value)[i], here + "/" + std::to_string(i)));
    } else if (name == "anyOf") {
      std::vector<json> any;
      for (std::size_t i = 0; i < value->size() && !failed(); ++i)
        for (auto& a : alternatives((*value)[i], here + "/" + std::to_string(i))) any.push_back(std::move(a));
      join(any);
    } else if (name == "oneOf") {
      join(exclusive(*value, here));
    } else if (name == "not") {
      join(negated(*value, here, 0));
    } else if (name == "if") {
      join(conditional(schema, where));
    } else if (name != "then" && name != "else") {
      for (const auto& [member, needs] : value->items())
        join(dependent(json{{member, needs}}, here + "/" + member));
    }
  }
  --depth_;
  if (failed()) return {};
  close_unevaluated(schema, out, where);
  return out;
}

/// Members and items that no part of a schema speaks of are as unevaluatedProperties and unevaluatedItems
/// say. In one alternative they are known.
void schema_sets::close_unevaluated(const json& schema, std::vector<json>& alternatives,
                                    const std::string& where) {
  const auto properties = schema.find("unevaluatedProperties"), items = schema.find("unevaluatedItems");
  for (auto& a : alternatives) {
    if (items != schema.end() && *items != true) {
      if (a.contains(unseen)) return complain(where, "'unevaluatedItems' beside 'not' is not supported");
      if (!a.contains("items")) a["items"] = *items;
    }
    if (properties == schema.end() || *properties == true) continue;
    json layer = {{"properties", json::object()}, {"patternProperties", json::object()}};
    bool all = false;
    for (const auto& seen : layers_of(a)) {
      if (seen.contains(unseen)) continue;
      all = all || seen.contains("additionalProperties");
      for (const auto* kind : {"properties", "patternProperties"}) {
        const auto given = seen.value(kind, json::object());
        for (const auto& [name, of] : given.items()) layer[kind][name] = true;
      }
    }
    if (all) continue;
    layer["additionalProperties"] = *properties;
    a[joined_keyword::layers].push_back(std::move(layer));
  }
}

std::vector<json> schema_sets::crossed(const std::vector<json>& left, const std::vector<json>& right,
                                       const std::string& where) {
  std::vector<json> out;
  std::set<std::string> seen;
  for (const auto& a : left) {
    for (const auto& b : right) {
      if (!spend(size_of(a) + size_of(b), where)) return {};
      auto both = merged(a, b, where);
      if (!both) continue;
      if (!seen.insert(both->dump(-1, ' ', false, json::error_handler_t::replace)).second) continue;
      out.push_back(std::move(*both));
      if (out.size() > max_alternatives) return complain(where, "too many alternatives"), std::vector<json>{};
    }
  }
  return out;
}

/// @returns nothing if no value is of both.
std::optional<json> schema_sets::merged(const json& a, const json& b, const std::string& where) {
  auto out = a;
  for (const auto& [name, value] : b.items()) {
    if (!out.contains(name)) out[name] = value;
    else if (out[name] != value && !merge_keyword(out, name, value, where)) return std::nullopt;
    else if (name == joined_keyword::contains && out[name] == value) continue;
  }
  if (b.contains("items") || b.contains("prefixItems")) {
    out.erase("items");
    out.erase("prefixItems");
    for (const auto* name : {"items", "prefixItems"})
      if (a.contains(name)) out[name] = a[name];
    merge_items(out, b);
  }
  return out;
}

bool schema_sets::merge_keyword(json& a, const std::string& name, const json& value,
                                const std::string& where) {
  auto& mine = a[name];
  if (name == "type") {
    const auto theirs = types_of(json{{"type", value}}, where);
    json both = json::array();
    for (const auto& t : types_of(json{{"type", mine}}, where)) {
      if (among(theirs, t) || (t == "integer" && among(theirs, "number"))) both.push_back(t);
      else if (t == "number" && among(theirs, "integer")) both.push_back("integer");
    }
    mine = both;
    return !both.empty();
  }
  if (name == "enum") {
    json both = json::array();
    for (const auto& v : mine)
      if (std::ranges::find(value, v) != value.end()) both.push_back(v);
    mine = both;
    return !both.empty();
  }
  constexpr std::string_view largest[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                          "minProperties"};
  constexpr std::string_view least[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
  if (mine.is_number() && value.is_number() && (among(largest, name) || among(least, name))) {
    if (among(largest, name) ? mine < value : value < mine) mine = value;
    return true;
  }
  if (name == "required" || name == joined_keyword::patterns || name == joined_keyword::contains ||
      name == joined_keyword::layers) {
    for (const auto& v : value)
      if (std::ranges::find(mine, v) == mine.end()) mine.push_back(v);
    return true;
  }
  if (name == "propertyNames") {
    mine = json{{"allOf", json::array({mine, value})}};
    return true;
  }
  if (name == "items" || name == "prefixItems" || name == "uniqueItems") return true;  // `merge_items`
  if (name == "multipleOf" && mine.is_number_integer() && value.is_number_integer()) {
    const auto few = [](const json& v) { return std::min(v.get<std::int64_t>(), std::int64_t{1} << 30); };
    mine = std::lcm(few(mine), few(value));
    return true;
  }
  if (name == "multipleOf" && mine.is_number() && value.is_number()) {
    // The larger one, if it is a multiple of the other.
    const auto high = std::max(mine.get<double>(), value.get<double>());
    const auto low = std::min(mine.get<double>(), value.get<double>());
    if (std::fmod(high, low) == 0) {
      if (mine < value) mine = value;
      return true;
    }
  }
  constexpr std::string_view known[] = {"multipleOf", "format", "minimum", "maximum"};
  if (among(known, name) || among(largest, name) || among(least, name))
    complain(where, "'" + name + "' of more than one part is not supported");
  return true;
}

void schema_sets::merge_items(json& a, const json& b) {
  const auto place = [](const json& of, std::size_t i) {
    if (const auto first = of.find("prefixItems");
        first != of.end() && first->is_array() && i < first->size())
      return (*first)[i];
    return of.value("items", json(true));
  };
  const auto length = [](const json& of) {
    const auto first = of.find("prefixItems");
    return first == of.end() ? std::size_t{0} : first->size();
  };
  const auto both = [](const json& x, const json& y) {
    if (x == y || y == true) return x;
    if (x == true) return y;
    return x == false || y == false ? json(false) : json{{"allOf", json::array({x, y})}};
  };
  const auto all = std::max(length(a), length(b));
  json first = json::array();
  for (std::size_t i = 0; i < all; ++i) first.push_back(both(place(a, i), place(b, i)));
  const bool rest = a.contains("items") || b.contains("items");
  const auto behind = both(place(a, all), place(b, all));
  if (!first.empty()) a["prefixItems"] = std::move(first);
  if (rest) a["items"] = behind;
}

/// Parts of a oneOf, each without the values that another one has, too.
std::vector<json> schema_sets::exclusive(const json& parts, const std::string& where) {
  std::vector<json> out;
  for (std::size_t i = 0; i < parts.size() && !failed(); ++i) {
    json one = {{"allOf", json::array({parts[i]})}};
    for (std::size_t j = 0; j < parts.size(); ++j)
      if (i != j && !disjoint(parts[i], parts[j])) one["allOf"].push_back({{"not", parts[j]}});
    for (auto& a : alternatives(one, where + "/" + std::to_string(i))) out.push_back(std::move(a));
  }
  return out;
}

std::vector<json> schema_sets::conditional(const json& schema, const std::string& where) {
  const auto& condition = schema["if"];
  const bool has_then = schema.contains("then"), has_else = schema.contains("else");
  if (!has_then && !has_else) return {json::object()};
  const json then = has_then ? schema["then"] : json(true), other = has_else ? schema["else"] : json(true);
  std::vector<json> out;
  if (then == other) return alternatives(then, where + "/then");
  out = alternatives(json{{"allOf", json::array({condition, then})}}, where + "/if");
  const auto rest =
      crossed(negated(condition, where + "/if", 0), alternatives(other, where + "/else"), where);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

/// Either the member is absent, or it is there with the names or the schema that it needs.
std::vector<json> schema_sets::dependent(const json& dependencies, const std::string& where) {
  std::vector<json> out;
  for (const auto& [name, needs] : dependencies.items()) {
    out.push_back(canonical(json{{"properties", {{name, false}}}}, where));
    json with = {{"required", json::array({name})}};
    if (needs.is_array()) {
      for (const auto& n : needs) {
        if (!n.is_string())
          return complain(where, "must be a list of names, or a schema"), std::vector<json>{};
        with["required"].push_back(n);
      }
      out.push_back(std::move(with));
      continue;
    }
    for (auto& a : crossed({with}, alternatives(needs, where), where)) out.push_back(std::move(a));
  }
  return out;
}

/// The opposite of one keyword as schemas: each suffices. Fewer values than the exact opposite are allowed,
/// more never. @returns false for a keyword with an opposite that cannot be written.
bool schema_sets::negate_keyword(const json& schema, const std::string& name, std::vector<json>& out,
                                 const std::string& where, int depth) {
  const auto& value = schema[name];
  const auto not_of = [&](const json& s) { return json{{"not", s}}; };
  const auto add = [&](const char* type, const char* keyword, json v) {
    out.push_back({{"type", type}, {keyword, std::move(v)}});
    return true;
  };
  const auto number = value.is_number() ? value.get<double>() : 0;
  if (name == "type") {
    const auto types = types_of(schema, where);
    json rest = json::array();
    for (const auto t : all_types)
      if (!among(types, t) && !(t == "number" && among(types, "integer"))) rest.push_back(t);
    if (!rest.empty()) out.push_back({{"type", std::move(rest)}});
    return true;
  }
  if (name == "enum" || name == "const") {
    const auto list = name == "enum" ? value : json::array({value});
    json rest = json::array(), texts = json::array();
    std::set<std::string> kinds;
    for (const auto& v : list) kinds.insert(v.is_number() ? "number" : v.type_name());
    for (const auto t : all_types)
      if (!kinds.contains(std::string{t})) rest.push_back(t);
    if (!rest.empty()) out.push_back({{"type", std::move(rest)}});
    for (const auto& v : list)
      if (v.is_string()) texts.push_back(v);
    if (!texts.empty())
      out.push_back(
          {{"type", "string"}, {joined_keyword::patterns, json::array({json::array({texts, false})})}});
    for (const bool b : {true, false})
      if (kinds.contains("boolean") && std::ranges::find(list, json(b)) == list.end())
        out.push_back({{"enum", json::array({b})}});
    if (kinds.contains("number")) {
      const auto [low, high] = std::ranges::minmax_element(list, [](const json& a, const json& b) {
        return (a.is_number() ? a.get<double>() : 0) < (b.is_number() ? b.get<double>() : 0);
      });
      if (low->is_number()) add("number", "exclusiveMinimum", *high), add("number", "exclusiveMaximum", *low);
    }
    return true;
  }
  if (name == "required") {
    for (const auto& n : value)
      if (n.is_string()) out.push_back({{"type", "object"}, {"properties", {{n.get<std::string>(), false}}}});
    return true;
  }
  if (name == "properties") {
    for (const auto& [member, s] : value.items())
      out.push_back(
          {{"type", "object"}, {"required", json::array({member})}, {"properties", {{member, not_of(s)}}}});
    return true;
  }
  if (name == "minimum") return add("number", "exclusiveMaximum", value);
  if (name == "maximum") return add("number", "exclusiveMinimum", value);
  if (name == "exclusiveMinimum" && value.is_number()) return add("number", "maximum", value);
  if (name == "exclusiveMaximum" && value.is_number()) return add("number", "minimum", value);
  for (const auto& [low, high, type] : {std::array{"minLength", "maxLength", "string"},
                                        {"minItems", "maxItems", "array"},
                                        {"minProperties", "maxProperties", "object"}}) {
    if (name == low) return number > 0 ? add(type, high, std::floor(number) - 1) : true;
    if (name == high) return add(type, low, std::floor(number) + 1);
  }
  if (name == "pattern")
    return add("string", joined_keyword::patterns, json::array({json::array({value, false})}));
  if (name == "items" && !value.is_array() && !schema.contains("prefixItems"))
    return add("array", "contains", not_of(value));
  if (name == "contains" && !schema.contains("minContains") && !schema.contains("maxContains"))
    return add("array", "items", not_of(value));
  if (name == "propertyNames" || name == "multipleOf" || name == "format" || name == "uniqueItems" ||
      name == "additionalProperties" || name == "patternProperties" || name == "prefixItems" ||
      name == "items") {
    return false;
  }
  if (name == "not") return out.push_back(value), true;
  if (name == "allOf") {
    for (const auto& part : value) out.push_back(not_of(part));
    return true;
  }
  if (name == "anyOf") {
    json all = json::array();
    for (const auto& part : value) all.push_back(not_of(part));
    out.push_back({{"allOf", std::move(all)}});
    return true;
  }
  if (name == "$ref") {
    const auto* target = resolve(value.get<std::string>(), where);
    if (!target) return false;
    for (auto& a : negated(*target, where, depth + 1)) out.push_back(std::move(a));
    return true;
  }
  return name == "then" || name == "else" ? true : false;
}

std::vector<json> schema_sets::negated(const json& schema, const std::string& where, int depth) {
  if (failed()) return {};
  if (schema.is_boolean()) return alternatives(!schema.get<bool>(), where);
  if (!schema.is_object())
    return complain(where, "a schema is an object, true or false"), std::vector<json>{};
  if (depth > 16) return complain(where, "the schema's parts are nested too deeply"), std::vector<json>{};
  check_keywords(schema, where);
  if (failed()) return {};
  std::vector<json> some;
  std::string left;
  bool asserts = false;
  for (const auto& [name, value] : schema.items()) {
    if (is_note(name)) continue;
    const bool type = std::ranges::find(keyword_types, name, [](const auto& k) { return k.first; }) !=
                      std::end(keyword_types);
    constexpr std::string_view parts[] = {"type",  "enum",  "const", "not", "allOf",
                                          "anyOf", "oneOf", "if",    "$ref"};
    if (!type && !among(parts, name)) continue;  // says nothing of validity
    asserts = true;
    if (!negate_keyword(schema, name, some, where, depth) && left.empty()) left = name;
    if (failed()) return {};
  }
  if (!asserts) return {};  // any value is valid, so none is left
  std::vector<json> out;
  for (const auto& s : some) {
    for (auto& a : alternatives(s, where)) {
      if (a.contains(joined_keyword::layers))
        for (auto& layer : a[joined_keyword::layers]) layer[unseen] = true;
      if (a.contains("items") || a.contains("prefixItems")) a[unseen] = true;
      out.push_back(std::move(a));
    }
  }
  if (out.empty() && !left.empty()) complain(where, "'not' of '" + left + "' is not supported");
  return out;
}

const json& schema_sets::looked_through(const json& schema) {
  const json* at = &schema;
  for (int steps = 0; steps < 32 && at->is_object(); ++steps) {
    if (const auto ref = at->find("$ref"); ref != at->end() && ref->is_string()) {
      const auto* target = resolve(ref->get<std::string>(), "#");
      if (!target) return *at;
      at = target;
    } else if (const auto all = at->find("allOf"); all != at->end() && all->is_array() && all->size() == 1) {
      at = &all->front();
    } else {
      break;
    }
  }
  return *at;
}

bool schema_sets::disjoint(const json& left, const json& right, int depth) {
  const auto &a = looked_through(left), &b = looked_through(right);
  if (!spend(1, "#") || !a.is_object() || !b.is_object()) return false;
  const auto listed = [](const json& s) -> std::optional<json> {
    if (s.contains("const")) return json::array({s["const"]});
    if (s.contains("enum") && s["enum"].is_array()) return s["enum"];
    return std::nullopt;
  };
  const auto mine = listed(a), others = listed(b);
  const auto kind = [](const json& v) {
    return v.is_number() ? std::string{"number"} : std::string{v.type_name()};
  };
  const auto kinds = [&](const json& s, const std::optional<json>& values) {
    std::set<std::string> out;
    if (values) {
      for (const auto& v : *values) out.insert(kind(v));
    } else if (s.contains("type")) {
      for (const auto& t : types_of(s, "#")) out.insert(t == "integer" ? "number" : t);
    }
    return out;
  };
  if (mine && others) {
    return std::ranges::none_of(
        *mine, [&](const auto& v) { return std::ranges::find(*others, v) != others->end(); });
  }
  const auto left_kinds = kinds(a, mine), right_kinds = kinds(b, others);
  const bool known = !left_kinds.empty() && !right_kinds.empty();
  if (known && std::ranges::none_of(left_kinds, [&](const auto& k) { return right_kinds.contains(k); }))
    return true;
  const bool objects =
      left_kinds == std::set<std::string>{"object"} && right_kinds == left_kinds && !mine && !others;
  if (!objects || depth >= 3 || !a.contains("properties") || !b.contains("properties")) return false;
  // Two objects differ if a member that both must have does.
  const auto needs = [](const json& s, const std::string& name) {
    const auto r = s.find("required");
    return r != s.end() && r->is_array() && std::ranges::find(*r, json(name)) != r->end();
  };
  for (const auto& [name, schema] : a["properties"].items()) {
    if (needs(a, name) && needs(b, name) && b["properties"].contains(name) &&
        disjoint(schema, b["properties"][name], depth + 1)) {
      return true;
    }
  }
  return false;
}

}  // namespace mooncaf
