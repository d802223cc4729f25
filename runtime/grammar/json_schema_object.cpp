// Arrays and objects.

#include <algorithm>
#include <utility>

#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/json_schema_writer.hpp"
#include "runtime/grammar/json_string.hpp"

namespace mooncaf {

namespace {

using json = schema_writer::json;

constexpr std::size_t max_counting_rules = 4000;  ///< of an object or array with counted members
constexpr std::size_t max_any_order = 8;          ///< distinct items that come in any order
constexpr std::size_t max_patterns = 8;           ///< of one object's names

/// The schema of the values that all of `parts` have.
json all_of(const std::vector<json>& parts) {
  json out = json::array();
  for (const auto& p : parts) {
    if (p == false) return false;
    if (p != true && std::ranges::find(out, p) == out.end()) out.push_back(p);
  }
  if (out.empty()) return true;
  return out.size() == 1 ? out[0] : json{{"allOf", out}};
}

std::string repeated(const std::string& one, std::size_t least, std::optional<std::size_t> most) {
  return "(" + one + "){" + std::to_string(least) + "," + (most ? std::to_string(*most) : "") + "}";
}

/// An array's schema with the items that it must contain at its beginning: fewer arrays than it describes,
/// all of them right. Items with `maxContains` come nowhere else.
json with_contained(json schema, const json& contained) {
  auto first = schema.value("prefixItems", json::array());
  std::size_t at = 0;
  const json items = schema.value("items", json(true));
  schema["items"] = items;
  std::vector<std::pair<std::size_t, std::size_t>> own;
  for (const auto& one : contained) {
    const auto least = one.value("minContains", json(1)).get<std::size_t>();
    own.emplace_back(at, at + least);
    for (; at < own.back().second; ++at) {
      if (at == first.size()) first.push_back(items);
      first[at] = all_of({first[at], one["contains"]});
    }
  }
  for (std::size_t i = 0; i < contained.size(); ++i) {
    if (!contained[i].contains("maxContains")) continue;
    const json other = {{"not", contained[i]["contains"]}};
    for (std::size_t k = 0; k < first.size(); ++k)
      if (k < own[i].first || k >= own[i].second) first[k] = all_of({first[k], other});
    schema["items"] = all_of({schema["items"], other});
  }
  if (!first.empty()) schema["prefixItems"] = std::move(first);
  const auto least = schema.value("minItems", json(0)).get<std::size_t>();
  schema["minItems"] = std::max(least, at);
  return schema;
}

}  // namespace

/// Arrays of which one item, wherever it stands, is as `contained` says.
std::string schema_writer::array_with(const json& contained, const std::string& item) {
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  return rule("\"[\" " + ws + " (" + item + " " + comma + ")* " + visit(contained, "#/contains") + " (" +
              comma + item + ")* " + ws + " \"]\"");
}

/// Arrays of some of a list of values, each of them once.
std::string schema_writer::array_of_distinct(const json& items, std::uint32_t least,
                                             std::optional<std::uint32_t> most, const std::string& where) {
  std::vector<std::string> values;
  for (const auto& one : sets_.alternatives(items, where)) {
    auto list = one.value("enum", json());
    if (one.value("type", json()) == "boolean") list = json::array({true, false});
    if (one.value("type", json()) == "null") list = json::array({nullptr});
    if (!list.is_array()) {
      complain(where, "'uniqueItems' is supported where the items are of a list of values");
      return {};
    }
    auto rest = one;
    rest.erase("enum");
    for (const auto& v : list) {
      auto text = sets_.holds(rest, v) ? literal(v, where) : std::string{};
      if (!text.empty() && std::ranges::find(values, text) == values.end()) values.push_back(std::move(text));
    }
  }
  if (failed() || least > values.size()) return {};
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  const auto end = [&](std::size_t n) -> std::string { return n < least ? "[]" : n > 0 ? ws : "\"\""; };
  const auto enough = [&](std::size_t n) { return most && n >= *most; };
  const auto step = [&](std::size_t n, const std::string& value) { return (n > 0 ? comma : "") + value; };
  std::string begin;
  if (values.size() <= max_any_order) {
    // A rule for each set of values that has come already.
    const auto prefix = fresh_name() + "-";
    for (std::size_t set = 0; set < (std::size_t{1} << values.size()); ++set) {
      const auto n = static_cast<std::size_t>(__builtin_popcountll(set));
      auto right = end(n);
      for (std::size_t i = 0; i < values.size() && !enough(n); ++i)
        if (!(set >> i & 1))
          right += " | " + step(n, values[i]) + " " + prefix + std::to_string(set | std::size_t{1} << i);
      rules_ += prefix + std::to_string(set) + " ::= " + right + "\n";
    }
    begin = prefix + "0";
  } else {
    // More values than that come in the order of the list.
    const auto cap = std::max<std::size_t>({1, least, most.value_or(0)});
    if (values.size() * cap > max_counting_rules)
      return complain(where, "'uniqueItems' of so many values, counted, is not supported"), "";
    std::vector<std::string> after;
    for (std::size_t n = 0; n <= cap; ++n) after.push_back(end(n));
    for (auto i = values.size(); i-- > 0;) {
      auto now = after;
      for (std::size_t n = 0; n <= cap; ++n) {
        if (!enough(n))
          now[n] = rule(step(n, values[i]) + " " + after[std::min(n + 1, cap)] + " | " + after[n]);
      }
      after = std::move(now);
    }
    begin = after[0];
  }
  return rule("\"[\" " + ws + " " + begin + " \"]\"");
}

std::string schema_writer::array(const json& given, const std::string& where) {
  auto schema = given;
  auto contained = json::array();
  for (const auto& one : schema.value(joined_keyword::contains, json::array())) {
    const bool idle = one.value("minContains", json(1)) == 0 && !one.contains("maxContains");
    if (!idle) contained.push_back(one);
  }
  const bool distinct = schema.value("uniqueItems", json(false)) == true;
  const bool counted = sets_.count(schema, "minItems", where).value_or(0) > 1 || schema.contains("maxItems");
  if (!contained.empty() && !failed()) {
    if (distinct) return complain(where, "'contains' beside 'uniqueItems' is not supported"), "";
    const auto& one = contained[0];
    const bool simple = contained.size() == 1 && !counted && !schema.contains("prefixItems") &&
                        one.value("minContains", json(1)) == 1 && !one.contains("maxContains");
    if (simple) {
      const auto items = schema.value("items", json(true));
      const auto item = items == false ? std::string{"[]"} : rule(visit(items, where + "/items"));
      return failed() ? std::string{} : array_with(all_of({items, one["contains"]}), item);
    }
    for (const auto& c : contained)
      if (c.value("maxContains", json(1e9)) < c.value("minContains", json(1))) return {};
    schema = with_contained(std::move(schema), contained);
  }
  const auto least = sets_.count(schema, "minItems", where).value_or(0);
  const auto most = sets_.count(schema, "maxItems", where);
  if (failed()) return {};
  if (most && *most < least) return {};
  const bool tuple = schema.contains("prefixItems");
  const json none = json::array();
  const auto& first = tuple ? schema["prefixItems"] : none;
  if (!first.is_array()) return complain(where, "'prefixItems' must be a list of schemas"), "";
  const bool other = schema.contains("items");
  if (distinct && !(most && *most <= 1)) {
    if (tuple) return complain(where, "'uniqueItems' beside 'prefixItems' is not supported"), "";
    return array_of_distinct(schema.value("items", json(true)), least, most, where);
  }
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  // Items behind the tuple: as many as are needed if nothing is said of them.
  std::string item;
  if (other) {
    item = visit(schema["items"], where + "/items");
  } else if (!tuple || least > first.size()) {
    item = any_value();
  }
  if (failed()) return {};
  if (other && schema["items"] == false) item.clear();
  const auto fixed =
      std::min<std::size_t>(first.size(), most.value_or(static_cast<std::uint32_t>(first.size())));
  if (item.empty() && least > fixed) return {};
  const auto more_least = least > fixed ? least - fixed : 0;
  const auto more_most = most ? std::optional<std::size_t>{*most - fixed} : std::nullopt;
  const bool unasked = tuple && !other;  // no more items than needed
  std::string tail;
  if (!item.empty() && (!more_most || *more_most > 0)) {
    const auto rest = [&](const std::string& one, std::size_t skipped) {
      const auto low = more_least > skipped ? more_least - skipped : 0;
      const auto high = unasked     ? std::to_string(low)
                        : more_most ? std::to_string(*more_most - skipped)
                                    : std::string{};
      return "(" + one + "){" + std::to_string(low) + "," + high + "}";
    };
    item = rule(item);
    if (fixed == 0) {
      tail = item + " " + rest(comma + item, 1);
      if (more_least == 0) return rule("\"[\" " + ws + " (" + tail + " " + ws + ")? \"]\"");
      return rule("\"[\" " + ws + " " + tail + " " + ws + " \"]\"");
    }
    tail = rest(comma + item, 0);
  }
  std::string body = tail;
  for (auto i = fixed; i-- > 0;) {
    auto one = visit(first[i], where + "/prefixItems/" + std::to_string(i));
    if (failed()) return {};
    body = (i > 0 ? comma : "") + rule(std::move(one)) + " " + body;
    if (i >= least) body = "(" + body + ")?";
    body = rule(std::move(body));
  }
  return rule("\"[\" " + ws + " " + (body.empty() ? "" : body + " " + ws) + " \"]\"");
}

/// Members of all joined schemas, in the order in which they are first named, as models expect their fields.
schema_writer::members schema_writer::members_of(const json& schema, const std::string& where) {
  members out;
  const auto layers = schema_sets::layers_of(schema);
  std::vector<std::string> required, names;
  const auto note = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const auto& layer : layers) {
    const auto properties = layer.value("properties", json::object());
    for (const auto& [name, of] : properties.items()) note(name);
  }
  for (const auto& name : schema.value("required", json::array())) {
    if (!name.is_string()) return complain(where, "'required' must be a list of names"), out;
    required.push_back(name.get<std::string>());
    note(required.back());
  }
  const auto allowed = schema.contains("propertyNames")
                           ? sets_.names_of(schema["propertyNames"], where + "/propertyNames")
                           : result<char_language>{char_language::all()};
  if (!allowed) return complain(where, allowed.error().detail), out;
  for (const auto& name : names) {
    if (failed()) return out;
    std::vector<json> parts;
    for (const auto& layer : layers)
      for (auto& s : sets_.member_schemas(layer, name, where)) parts.push_back(std::move(s));
    const bool must = std::ranges::find(required, name) != required.end();
    const auto of = all_of(parts);
    if (of == false || !allowed->contains(name)) {
      out.impossible = out.impossible || must;
      continue;
    }
    const auto value = visit(of, where + "/properties/" + name);
    out.named.emplace_back(rule(json_text_literal(name) + " \":\" " + base("ws") + " " + value), must);
  }
  const auto least = sets_.count(schema, "minProperties", where).value_or(0);
  if (!failed() && !out.impossible) out.extra = extra_members(schema, names, least > out.named.size(), where);
  return out;
}

/// Members that no property names. @param wanted  they are needed for a number of members.
/// @returns an expression for one of them; empty: there are none. Members that no keyword speaks of come only
/// where nothing is said of any member, or where they are needed.
std::string schema_writer::extra_members(const json& schema, const std::vector<std::string>& names,
                                         bool wanted, const std::string& where) {
  const auto layers = schema_sets::layers_of(schema);
  bool asked = false, closed = false;
  std::vector<std::string> patterns;
  for (const auto& layer : layers) {
    const auto others = layer.find("additionalProperties");
    asked = asked || others != layer.end();
    const auto given = layer.value("patternProperties", json::object());
    for (const auto& [source, of] : given.items())
      if (std::ranges::find(patterns, source) == patterns.end()) patterns.push_back(source);
    closed = closed || (others != layer.end() && *others == false && given.empty());
  }
  const bool open = asked || wanted || (names.empty() && patterns.empty());
  if (closed || (!open && patterns.empty())) return {};
  if (patterns.size() > max_patterns)
    return complain(where, "'patternProperties' has more than " + std::to_string(max_patterns) + " patterns"),
           "";
  auto rest = result<char_language>{char_language::of_texts(names).others()};
  if (schema.contains("propertyNames")) {
    const auto allowed = sets_.names_of(schema["propertyNames"], where + "/propertyNames");
    if (!allowed) return complain(where, allowed.error().detail), "";
    rest = rest->both(*allowed);
  }
  // Names are of one kind if they match the same patterns.
  struct kind {
    char_language names;
    std::vector<std::string> matched;
  };
  if (!rest) return complain(where, rest.error().detail), "";
  std::vector<kind> kinds{{std::move(*rest), {}}};
  for (const auto& source : patterns) {
    const auto* wanted_names = sets_.pattern(source, where);
    if (!wanted_names) return {};
    std::vector<kind> cut;
    for (auto& k : kinds) {
      auto in = k.names.both(*wanted_names), out = k.names.both(wanted_names->others());
      if (!in || !out) return complain(where, (in ? out : in).error().detail), "";
      auto with = k.matched;
      with.push_back(source);
      if (!in->empty()) cut.push_back({std::move(*in), std::move(with)});
      if (!out->empty()) cut.push_back({std::move(*out), std::move(k.matched)});
    }
    kinds = std::move(cut);
  }
  std::string out;
  for (const auto& k : kinds) {
    if (k.matched.empty() && !open) continue;
    std::vector<json> parts;
    for (const auto& layer : layers) {
      const auto given = layer.value("patternProperties", json::object());
      const auto before = parts.size();
      for (const auto& source : k.matched)
        if (given.contains(source)) parts.push_back(given[source]);
      if (parts.size() == before && layer.contains("additionalProperties"))
        parts.push_back(layer["additionalProperties"]);
    }
    const auto of = all_of(parts);
    if (of == false) continue;
    const auto value =
        visit(of, where + (k.matched.empty() ? "/additionalProperties" : "/patternProperties"));
    const bool any = names.empty() && patterns.empty() && !schema.contains("propertyNames");
    const auto key = any ? base("string") : quoted(k.names, where);
    if (failed()) return {};
    if (!key.empty()) out += (out.empty() ? "" : " | ") + key + " \":\" " + base("ws") + " " + value;
  }
  return out.empty() ? out : rule(std::move(out));
}

/// Members come in order. `after[n]` is the rest of the text behind `n` members (as far as that counts), made
/// of the present one and its successors; all but the first bring their comma.
std::string schema_writer::object(const json& schema, const std::string& where) {
  const auto all = members_of(schema, where);
  const std::size_t least = sets_.count(schema, "minProperties", where).value_or(0);
  const auto most = sets_.count(schema, "maxProperties", where);
  if (failed() || all.impossible || (most && *most < least)) return {};
  const std::size_t cap = most ? *most : std::max<std::size_t>(1, least);
  if ((least > 0 || most) && (all.named.size() + 1) * (cap + 1) > max_counting_rules)
    return complain(where, "'minProperties' and 'maxProperties' of so many are not supported"), "";
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  const std::string never = "[]", nothing = "\"\"";
  std::vector<std::string> after;
  for (std::size_t n = 0; n <= cap; ++n) {
    const auto low = least > n ? least - n : 0;
    const auto high = most ? std::optional{*most - n} : std::nullopt;
    const auto empty = n > 0 ? ws : nothing;
    if (all.extra.empty() || high == 0) {
      after.push_back(low == 0 ? empty : never);
    } else if (n > 0) {
      after.push_back(rule(repeated(comma + all.extra, low, high) + " " + ws));
    } else {
      const auto some =
          all.extra + " " +
          repeated(comma + all.extra, low > 0 ? low - 1 : 0, high ? std::optional{*high - 1} : std::nullopt) +
          " " + ws;
      after.push_back(rule(low == 0 ? "(" + some + ")?" : some));
    }
  }
  for (auto i = all.named.size(); i-- > 0;) {
    const auto& [member, must] = all.named[i];
    auto now = after;
    for (std::size_t n = 0; n <= std::min(cap, i); ++n) {
      const auto& next = after[std::min(n + 1, cap)];
      const bool full = (most && n >= *most) || next == never;
      const auto with = (n > 0 ? comma : "") + member + " " + next;
      if (must) now[n] = full ? never : rule(with);
      else if (n == cap && !full) now[n] = rule("(" + comma + member + ")? " + after[n]);
      else if (!full) now[n] = after[n] == never ? rule(with) : rule(with + " | " + after[n]);
    }
    after = std::move(now);
  }
  if (after[0] == never) return {};
  return rule("\"{\" " + ws + " " + after[0] + " \"}\"");
}

}  // namespace mooncaf
