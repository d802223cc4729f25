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

/// Beyond these, a bound says no more than that a number has no exponent.
constexpr double widest = 9.9e15;

}  // namespace

std::string schema_writer::rule(std::string right_side) {
  const auto name = fresh_name();
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
    right = *number_expression({}, {});
  } else if (name == "integer") {
    right = *integer_expression({}, {});
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

result<std::string> schema_writer::run(const json& document) {
  if (!schema_sets::is_free_of_joined(document)) complain("#", "a key begins with a control character");
  const auto root = visit(document, "#");
  if (failed()) return fail(ec::invalid_argument, sets_.problem());
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

std::string schema_writer::visit_ref(const std::string& ref, const std::string& where) {
  if (const auto i = refs_.find(ref); i != refs_.end()) return i->second;
  const auto* target = sets_.resolve(ref, where);
  if (!target) return {};
  // Named before it is visited: it may lead back to itself.
  const auto name = "d" + std::to_string(refs_.size());
  refs_.emplace(ref, name);
  const auto body = visit(*target, ref);
  rules_ += name + " ::= " + body + "\n";
  return name;
}

std::string schema_writer::visit_parts(const json& parts, const std::string& where) {
  std::string out;
  for (std::size_t i = 0; i < parts.size() && !failed(); ++i) {
    const auto part = visit(parts[i], where + "/" + std::to_string(i));
    out += (out.empty() ? "" : " | ") + part;
  }
  return "(" + out + ")";
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
  sets_.check_keywords(schema, where);
  if (failed()) return {};
  // Parts that stand alone are rules of their own, so that the schemas they lead to are written once.
  const auto words = std::ranges::count_if(schema.items(), [](const auto& i) { return !is_note(i.key()); });
  if (words == 1) {
    if (schema.contains("$ref")) return visit_ref(schema["$ref"].get<std::string>(), where);
    if (schema.contains("anyOf")) return visit_parts(schema["anyOf"], where + "/anyOf");
    if (schema.contains("allOf") && schema["allOf"].size() == 1)
      return visit(schema["allOf"][0], where + "/allOf/0");
    if (schema.contains("oneOf")) {
      const auto& parts = schema["oneOf"];
      bool apart = true;
      for (std::size_t i = 0; i < parts.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) apart = apart && sets_.disjoint(parts[i], parts[j]);
      if (apart) return visit_parts(parts, where + "/oneOf");
    }
  }
  constexpr const char* parts[] = {
      "$ref",        "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas",
      "dependencies"};
  const bool whole = std::ranges::none_of(parts, [&](const char* name) { return schema.contains(name); });
  if (whole) {
    const auto flat = sets_.alternatives(schema, where);
    return failed() ? std::string{} : visit_flat(flat.front(), where);
  }
  // Named before its alternatives are visited: joined schemas may lead back to themselves.
  const auto text = schema.dump(-1, ' ', false, json::error_handler_t::replace);
  if (const auto i = known_.find(text); i != known_.end()) return i->second;
  const auto name = fresh_name();
  known_.emplace(text, name);
  std::string out;
  for (const auto& flat : sets_.alternatives(schema, where)) {
    const auto one = visit_flat(flat, where);
    if (failed()) return {};
    if (!one.empty() && one != "[]") out += (out.empty() ? "" : " | ") + one;
  }
  rules_ += name + " ::= " + (out.empty() ? "[]" : out) + "\n";
  return name;
}

std::string schema_writer::visit_flat(const json& schema, const std::string& where) {
  if (schema.contains("enum")) return values(schema, where);
  const auto types = sets_.types_of(schema, where);
  if (failed()) return {};
  if (types.empty()) return any_value();
  std::string out;
  for (const auto& type : types) {
    const auto part = of_type(type, schema, where);
    if (failed()) return {};
    if (!part.empty()) out += (out.empty() ? "" : " | ") + part;
  }
  return out.empty() ? "[]" : "(" + out + ")";
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

std::string schema_writer::values(const json& schema, const std::string& where) {
  auto rest = schema;
  rest.erase("enum");
  std::string out;
  for (const auto& value : schema["enum"]) {
    if (sets_.holds(rest, value)) out += (out.empty() ? "" : " | ") + literal(value, where);
    if (failed()) return {};
  }
  return out.empty() ? "[]" : "(" + out + ")";
}

/// Bounds are read as digits, not as doubles: 0.1 must not become a number below or above itself.
std::string schema_writer::number(const json& schema, bool whole, const std::string& where) {
  number_bounds bounds;
  const auto bound = [&](const char* name, bool open, bool lower) {
    const auto given = schema.find(name);
    if (given == schema.end()) return;
    if (!given->is_number()) return complain(where, std::string{name} + " must be a number");
    const bool wide = lower ? given->get<double>() < -widest : given->get<double>() > widest;
    const auto value =
        decimal::parse(wide ? (lower ? "-9999999999999999" : "9999999999999999") : given->dump());
    if (!value)
      return complain(where, std::string{name} +
                                 " must be a number within ±9e15, with at most 15 digits behind its point");
    auto& to = lower ? bounds.low : bounds.high;
    auto& is_open = lower ? bounds.above_low : bounds.below_high;
    const bool tighter = !to || (lower ? less(*to, *value) : less(*value, *to)) || (*to == *value && open);
    if (tighter) to = value, is_open = open;
  };
  bound("minimum", false, true);
  bound("exclusiveMinimum", true, true);
  bound("maximum", false, false);
  bound("exclusiveMaximum", true, false);
  if (const auto multiple = schema.find("multipleOf"); multiple != schema.end()) {
    bounds.multiple_of = decimal::parse(multiple->dump());
    if (!bounds.multiple_of) complain(where, "'multipleOf' must have at most 15 digits behind its point");
  }
  if (failed()) return {};
  if (!bounds.any()) return base(whole ? "integer" : "number");
  const auto named = [this](std::string right) { return rule(std::move(right)); };
  auto out = whole ? integer_expression(bounds, named) : number_expression(bounds, named);
  if (!out) return complain(where, out.error().detail), "";
  return out->empty() ? std::string{} : rule(std::move(*out));
}

std::string schema_writer::quoted(const result<char_language>& language, const std::string& where) {
  if (!language) return complain(where, language.error().detail), "";
  if (failed() || language->empty()) return {};
  return "\"\\\"\" " + language->expression(fresh_name() + "-", rules_) + " \"\\\"\"";
}

std::string schema_writer::text(const json& schema, const std::string& where) {
  const auto least = sets_.count(schema, "minLength", where), most = sets_.count(schema, "maxLength", where);
  if (failed()) return {};
  if (most && *most < least.value_or(0)) return {};
  const auto patterns = schema.value(joined_keyword::patterns, json::array());
  const bool lengths = least.value_or(0) > 0 || most;
  if (patterns.empty() && !schema.contains("format")) {
    if (!lengths) return base("string");
    return rule("\"\\\"\" " + base("char") + "{" + std::to_string(least.value_or(0)) + "," +
                (most ? std::to_string(*most) : "") + "} \"\\\"\"");
  }
  const bool one_pattern = patterns.size() == 1 && patterns[0][0].is_string() && patterns[0][1] == true;
  // A pattern alone is an expression as it stands, which is smaller than its automaton.
  if (!lengths && patterns.size() + (schema.contains("format") ? 1 : 0) == 1 &&
      (patterns.empty() || one_pattern)) {
    auto made = one_pattern ? json_pattern(patterns[0][0].get<std::string>())
                            : json_format(schema["format"].get<std::string>());
    if (!made) return complain(where, (one_pattern ? "'pattern': " : "'format': ") + made.error().detail), "";
    return rule(std::move(*made));
  }
  return quoted(sets_.strings_of(schema, where), where);
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
  return schema_writer{document}.run(document);
}

std::string grammar_of_json_object() { return schema_writer::json_object_rules(); }

}  // namespace mooncaf
