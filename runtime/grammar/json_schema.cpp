#include "runtime/grammar/json_schema.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/json_schema_writer.hpp"
#include "runtime/grammar/json_string.hpp"
#include "runtime/grammar/limits.hpp"

namespace mooncaf {

namespace {

using json = schema_writer::json;

constexpr std::size_t max_visits = 20'000;
constexpr const char* all_types[] = {"object", "array", "string", "number", "boolean", "null"};

/// Which type a keyword speaks of.
constexpr std::pair<std::string_view, std::string_view> keyword_types[] = {
    {"properties", "object"},    {"required", "object"},         {"additionalProperties", "object"},
    {"minProperties", "object"}, {"maxProperties", "object"},    {"items", "array"},
    {"prefixItems", "array"},    {"minItems", "array"},          {"maxItems", "array"},
    {"uniqueItems", "array"},    {"minLength", "string"},        {"maxLength", "string"},
    {"pattern", "string"},       {"format", "string"},           {"minimum", "number"},
    {"maximum", "number"},       {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},
    {"multipleOf", "number"}};

/// What would have to be held and cannot be.
constexpr std::string_view unsupported[] = {"not",
                                            "if",
                                            "then",
                                            "else",
                                            "dependentRequired",
                                            "dependentSchemas",
                                            "dependencies",
                                            "propertyNames",
                                            "contains",
                                            "minContains",
                                            "maxContains",
                                            "unevaluatedItems",
                                            "$dynamicRef",
                                            "$recursiveRef",
                                            "patternProperties",
                                            "unevaluatedProperties",
                                            "divisibleBy",
                                            "extends",
                                            "disallow",
                                            "additionalItems"};

template <class List>
bool among(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

/// Whether JSON schema gives this keyword a meaning for what is valid.
bool asserts(std::string_view keyword) {
  constexpr std::string_view other[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};
  return among(unsupported, keyword) || among(other, keyword) ||
         std::ranges::find(keyword_types, keyword, [](const auto& k) { return k.first; }) !=
             std::end(keyword_types);
}

bool is_type(const json& value, const std::string& type) {
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  }
  return type == value.type_name();
}

}  // namespace

void schema_writer::complain(const std::string& where, const std::string& what) {
  if (problem_.empty()) problem_ = "at " + where.substr(0, 200) + ": " + what;
}

std::string schema_writer::rule(std::string right_side) {
  const auto name = "r" + std::to_string(rule_count_++);
  rules_ += name + " ::= " + std::move(right_side) + "\n";
  if (rules_.size() > grammar_limits::max_text_bytes) complain("#", "the schema makes too large a grammar");
  return name;
}

std::string schema_writer::base(std::string_view name) {
  if (const auto i = base_rules_.find(name); i != base_rules_.end()) return i->first;
  base_rules_.emplace(name, "");
  std::string right;
  if (name == "ws") {
    right = R"((" " | "\n" " "{0,32})?)";
  } else if (name == "char") {
    right = json_char_rule();
  } else if (name == "string") {
    right = R"("\"" )" + base("char") + R"(* "\"")";
  } else if (name == "number") {
    right = number_expression({});
  } else if (name == "integer") {
    right = integer_expression({});
  } else if (name == "object") {
    const auto ws = base("ws"), member = base("string") + " \":\" " + ws + " " + base("value");
    right = "\"{\" " + ws + " (" + member + " (\",\" " + ws + " " + member + ")* " + ws + ")? \"}\"";
  } else if (name == "array") {
    const auto ws = base("ws"), item = base("value");
    right = "\"[\" " + ws + " (" + item + " (\",\" " + ws + " " + item + ")* " + ws + ")? \"]\"";
  } else {  // value
    right = base("object") + " | " + base("array") + " | " + base("string") + " | " + base("number") +
            R"( | "true" | "false" | "null")";
  }
  base_rules_.find(name)->second = right;
  return std::string{name};
}

std::string schema_writer::any_value() { return base("value"); }

result<std::string> schema_writer::run() {
  const auto root = visit(document_, "#");
  if (failed()) return fail(ec::invalid_argument, problem_);
  auto out = "root ::= " + root + "\n" + rules_;
  for (const auto& [name, right] : base_rules_) out += name + " ::= " + right + "\n";
  return out;
}

std::string schema_writer::json_object_rules() {
  const json any = true;
  schema_writer writer{any};
  std::string out = "root ::= " + writer.base("object") + "\n";
  for (const auto& [name, right] : writer.base_rules_) out += name + " ::= " + right + "\n";
  return out;
}

std::optional<std::uint32_t> schema_writer::count(const json& schema, const char* keyword,
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

void schema_writer::check_keywords(const json& schema, const std::string& where) {
  for (const auto& [name, value] : schema.items()) {
    if (name == "if" && !schema.contains("then") && !schema.contains("else")) continue;
    if (among(unsupported, name)) complain(where, "'" + name + "' is not supported");
    if ((name == "$id" || name == "id") && where != "#" && value.is_string())
      complain(where, "'" + name + "' is supported at the root alone");
    if (name == "required" && !value.is_array()) complain(where, "'required' must be a list");
    if (name == "multipleOf" && value != 1) complain(where, "'multipleOf' is not supported");
    if (name == "uniqueItems" && value != false) complain(where, "'uniqueItems' is not supported");
  }
}

std::string schema_writer::visit(const json& schema, const std::string& where) {
  if (failed()) return {};
  if (schema.is_boolean()) return schema.get<bool>() ? any_value() : "[]";
  if (!schema.is_object()) return complain(where, "a schema is an object, true or false"), "";
  if (++visits_ > max_visits) return complain(where, "the schema is too large"), "";
  if (depth_ >= grammar_limits::max_nesting) return complain(where, "the schema is nested too deeply"), "";
  struct deeper {
    explicit deeper(std::size_t& d) : depth(d) { ++depth; }
    ~deeper() { --depth; }
    std::size_t& depth;
  } inside{depth_};
  check_keywords(schema, where);
  if (failed()) return {};
  if (schema.contains("$ref")) return visit_ref(schema, where);
  if (schema.contains("allOf")) return visit_all(schema, where);
  if (schema.contains("anyOf")) return visit_union(schema, "anyOf", where);
  if (schema.contains("oneOf")) return visit_union(schema, "oneOf", where);
  if (schema.contains("const")) return values(json::array({schema["const"]}), schema, where);
  if (schema.contains("enum")) return values(schema["enum"], schema, where);
  std::string out;
  const auto types = types_of(schema, where);
  if (types.empty()) return any_value();
  for (const auto& type : types) {
    const auto part = of_type(type, schema, where);
    if (failed()) return {};
    out += (out.empty() ? "" : " | ") + part;
  }
  return types.size() == 1 ? out : "(" + out + ")";
}

std::vector<std::string> schema_writer::types_of(const json& schema, const std::string& where) {
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

std::string schema_writer::of_type(const std::string& type, const json& schema, const std::string& where) {
  if (type == "object") return object(schema, where);
  if (type == "array") return array(schema, where);
  if (type == "string") return text(schema, where);
  if (type == "number") return number(schema, false, where);
  if (type == "integer") return number(schema, true, where);
  return type == "null" ? "\"null\"" : R"(("true" | "false"))";
}

std::string schema_writer::literal(const json& value, const std::string& where) {
  std::string text;
  try {
    text = value.dump();
  } catch (const json::exception&) {
    complain(where, "a value is not UTF-8");
  }
  return gbnf_literal(text);
}

std::string schema_writer::values(const json& list, const json& schema, const std::string& where) {
  if (!list.is_array() || list.empty())
    return complain(where, "'enum' must be a list of at least one value"), "";
  for (const auto& [name, value] : schema.items()) {
    if (name != "type" && name != "enum" && name != "const" && asserts(name))
      complain(where, "'" + name + "' beside 'enum' or 'const' is not supported");
  }
  if (schema.contains("enum") && schema.contains("const"))
    complain(where, "'enum' beside 'const' is not supported");
  const auto types = types_of(schema, where);
  std::string out;
  for (const auto& value : list) {
    const bool fits =
        types.empty() || std::ranges::any_of(types, [&](const auto& t) { return is_type(value, t); });
    if (fits) out += (out.empty() ? "" : " | ") + literal(value, where);
  }
  if (out.empty()) complain(where, "no value of 'enum' has the type");
  return "(" + out + ")";
}

std::string schema_writer::number(const json& schema, bool whole, const std::string& where) {
  number_bounds bounds;
  const auto bound = [&](const char* name, const char* exclusive, std::optional<double>& to, bool& open,
                         bool lower) {
    const auto take = [&](const json& v, bool is_open) {
      if (!v.is_number() || std::abs(v.get<double>()) > number_bound_limit)
        return complain(where, std::string{name} + " must be a number within ±9e15");
      const auto value = v.get<double>();
      const bool tighter = !to || (lower ? value > *to : value < *to) || (value == *to && is_open);
      if (tighter) to = value, open = is_open;
    };
    const auto given = schema.find(exclusive);
    const bool draft4 = given != schema.end() && given->is_boolean() && given->get<bool>();
    if (const auto i = schema.find(name); i != schema.end()) take(*i, draft4);
    if (given != schema.end() && !given->is_boolean()) take(*given, true);
  };
  bound("minimum", "exclusiveMinimum", bounds.low, bounds.above_low, true);
  bound("maximum", "exclusiveMaximum", bounds.high, bounds.below_high, false);
  // With multipleOf 1 numbers are whole.
  whole = whole || schema.contains("multipleOf");
  if (failed()) return {};
  if (!bounds.any()) return base(whole ? "integer" : "number");
  auto out = whole ? integer_expression(bounds) : number_expression(bounds);
  if (out.empty()) complain(where, "no number could be found between the bounds");
  return rule(std::move(out));
}

std::string schema_writer::text(const json& schema, const std::string& where) {
  const auto least = count(schema, "minLength", where), most = count(schema, "maxLength", where);
  const bool pattern = schema.contains("pattern"), format = schema.contains("format");
  if (failed()) return {};
  if (pattern + format + (least.value_or(0) > 0 || most) > 1) {
    return complain(where, "of 'pattern', 'format' and a length only one is supported"), "";
  }
  if (pattern || format) {
    const auto& given = schema[pattern ? "pattern" : "format"];
    if (!given.is_string()) return complain(where, "'pattern' and 'format' must be strings"), "";
    auto made = pattern ? json_pattern(given.get<std::string>()) : json_format(given.get<std::string>());
    if (!made) return complain(where, (pattern ? "'pattern': " : "'format': ") + made.error().detail), "";
    return rule(std::move(*made));
  }
  if (!least && !most) return base("string");
  if (most && *most < least.value_or(0)) return complain(where, "'maxLength' is below 'minLength'"), "";
  return rule("\"\\\"\" " + base("char") + "{" + std::to_string(least.value_or(0)) + "," +
              (most ? std::to_string(*most) : "") + "} \"\\\"\"");
}

result<std::string> grammar_of_schema(std::string_view schema) {
  if (schema.size() > grammar_limits::max_source_bytes) {
    return fail(ec::invalid_argument, "has " + std::to_string(schema.size()) + " bytes, at most " +
                                          std::to_string(grammar_limits::max_source_bytes) + " are allowed");
  }
  const bool too_deep = [&] {
    // Before it is parsed: the parser and the walk below recurse.
    std::size_t depth = 0, deepest = 0;
    for (const char c : schema) {
      if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
      if ((c == '}' || c == ']') && depth > 0) --depth;
    }
    return deepest > 4 * grammar_limits::max_nesting;
  }();
  if (too_deep) return fail(ec::invalid_argument, "is nested too deeply");
  const auto document = json::parse(schema, nullptr, false);
  if (document.is_discarded()) return fail(ec::invalid_argument, "is not JSON");
  return schema_writer{document}.run();
}

std::string grammar_of_json_object() { return schema_writer::json_object_rules(); }

}  // namespace mooncaf
