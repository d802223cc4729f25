// Objects, arrays, and what joins schemas: $ref, anyOf, oneOf, allOf.

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/grammar/gbnf.hpp"
#include "runtime/grammar/json_schema_writer.hpp"
#include "runtime/grammar/json_string.hpp"

namespace mooncaf {

namespace {

using json = schema_writer::json;

constexpr std::size_t max_comparisons = 100'000;
constexpr std::size_t max_joined_parts = 256;  ///< each is a copy of what is around it

constexpr std::string_view notes[] = {
    "title",      "description", "default",   "examples", "$schema", "$comment", "$defs",    "definitions",
    "deprecated", "readOnly",    "writeOnly", "$id",      "id",      "$anchor",  "nullable", "$vocabulary"};

bool is_note(std::string_view keyword) { return std::ranges::find(notes, keyword) != std::end(notes); }

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

const json* schema_writer::resolve(const std::string& ref, const std::string& where) {
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

std::string schema_writer::visit_ref(const json& schema, const std::string& where) {
  for (const auto& [name, value] : schema.items()) {
    if (name != "$ref" && !is_note(name))
      return complain(where, "'" + name + "' beside '$ref' is not supported"), "";
  }
  if (!schema["$ref"].is_string()) return complain(where, "'$ref' must be a string"), "";
  const auto ref = schema["$ref"].get<std::string>();
  if (const auto i = refs_.find(ref); i != refs_.end()) return i->second;
  const auto* target = resolve(ref, where);
  if (!target) return {};
  // Named before it is visited: it may lead back to itself.
  const auto name = "d" + std::to_string(refs_.size());
  refs_.emplace(ref, name);
  const auto body = visit(*target, ref);
  rules_ += name + " ::= " + body + "\n";
  return name;
}

const json& schema_writer::looked_through(const json& schema) {
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

json schema_writer::merged(json a, const json& b, const std::string& where) {
  if (b.is_boolean() && b.get<bool>()) return a;
  if (a.is_boolean() && a.get<bool>()) return b;
  if (!a.is_object() || !b.is_object())
    return complain(where, "a schema that is 'false' cannot be joined"), a;
  const auto closed = [](const json& s) {
    return s.contains("additionalProperties") && s["additionalProperties"] != true;
  };
  if (a != b && (closed(a) || closed(b)) && (a.contains("properties") && b.contains("properties"))) {
    complain(where, "'additionalProperties' with the properties of another part is not supported");
  }
  for (const auto& [name, value] : b.items()) {
    const auto mine = a.find(name);
    if (is_note(name)) continue;
    if (mine == a.end()) {
      a[name] = value;
    } else if (*mine == value) {
      continue;
    } else if (name == "required" && mine->is_array() && value.is_array()) {
      for (const auto& r : value) {
        if (std::ranges::find(*mine, r) == mine->end()) mine->push_back(r);
      }
    } else if (name == "properties" && mine->is_object() && value.is_object()) {
      for (const auto& [property, schema] : value.items()) {
        const auto has = mine->find(property);
        if (has == mine->end()) {
          (*mine)[property] = schema;
        } else if (*has != schema) {
          complain(where,
                   "property '" + property.substr(0, 100) + "' of more than one part is not supported");
        }
      }
    } else {
      complain(where, "'" + name + "' of more than one part is not supported");
    }
  }
  return a;
}

std::string schema_writer::visit_all(const json& schema, const std::string& where) {
  const auto& parts = schema["allOf"];
  if (!parts.is_array() || parts.empty()) return complain(where, "'allOf' must be a list of schemas"), "";
  json all = schema;
  all.erase("allOf");
  for (const auto& part : parts) {
    if (failed()) return {};
    const bool alone =
        parts.size() == 1 && std::ranges::all_of(all.items(), [](const auto& i) { return is_note(i.key()); });
    if (alone) return visit(part, where + "/allOf/0");
    const auto& seen = looked_through(part);
    if (seen.is_object()) check_keywords(seen, where + "/allOf");
    all = merged(std::move(all), seen, where + "/allOf");
  }
  return visit(all, where);
}

bool schema_writer::disjoint(const json& left, const json& right, int depth) {
  if (++visits_ > max_comparisons) complain("#", "the schema is too large");
  const auto &a = looked_through(left), &b = looked_through(right);
  if (!a.is_object() || !b.is_object() || failed()) return false;
  const auto listed = [](const json& s) -> std::optional<json> {
    if (s.contains("const")) return json::array({s["const"]});
    if (s.contains("enum") && s["enum"].is_array()) return s["enum"];
    return std::nullopt;
  };
  const auto these = listed(a), those = listed(b);
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
  if (these && those) {
    return std::ranges::none_of(*these,
                                [&](const auto& v) { return std::ranges::find(*those, v) != those->end(); });
  }
  const auto left_kinds = kinds(a, these), right_kinds = kinds(b, those);
  const bool known = !left_kinds.empty() && !right_kinds.empty();
  if (known && std::ranges::none_of(left_kinds, [&](const auto& k) { return right_kinds.contains(k); }))
    return true;
  const bool objects =
      left_kinds == std::set<std::string>{"object"} && right_kinds == left_kinds && !these && !those;
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

std::string schema_writer::visit_union(const json& schema, const std::string& keyword,
                                       const std::string& where) {
  const auto& parts = schema[keyword];
  if (!parts.is_array() || parts.empty())
    return complain(where, "'" + keyword + "' must be a list of schemas"), "";
  json rest = schema;
  rest.erase(keyword);
  const bool alone = std::ranges::all_of(rest.items(), [](const auto& i) { return is_note(i.key()); });
  if (!alone && parts.size() > max_joined_parts)
    return complain(where, "'" + keyword + "' has too many parts"), "";
  std::string out;
  for (std::size_t i = 0; i < parts.size() && !failed(); ++i) {
    const auto here = where + "/" + keyword + "/" + std::to_string(i);
    for (std::size_t j = 0; keyword == "oneOf" && j < i; ++j) {
      if (!disjoint(parts[i], parts[j], 0)) {
        return complain(
                   where,
                   "'oneOf' is supported where its parts exclude each other by type, value or a required "
                   "property; use 'anyOf'"),
               "";
      }
    }
    if (!alone && parts[i].is_object()) check_keywords(looked_through(parts[i]), here);
    const auto part =
        alone ? visit(parts[i], here) : visit(merged(rest, looked_through(parts[i]), here), here);
    out += (out.empty() ? "" : " | ") + part;
  }
  return "(" + out + ")";
}

std::string schema_writer::array(const json& schema, const std::string& where) {
  const auto least = count(schema, "minItems", where).value_or(0);
  const auto most = count(schema, "maxItems", where);
  if (failed()) return {};
  if (most && *most < least) return complain(where, "'maxItems' is below 'minItems'"), "";
  const bool tuple =
      schema.contains("prefixItems") || (schema.contains("items") && schema["items"].is_array());
  const json none = json::array();
  const auto& first = !tuple                           ? none
                      : schema.contains("prefixItems") ? schema["prefixItems"]
                                                       : schema["items"];
  if (!first.is_array()) return complain(where, "'prefixItems' must be a list of schemas"), "";
  const bool other = schema.contains("items") && !schema["items"].is_array();
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  // What comes behind the tuple: as many as are needed if nothing is said of them.
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
  if (item.empty() && least > fixed) return complain(where, "'minItems' is above what the items allow"), "";
  const auto more_least = least > fixed ? least - fixed : 0;
  const auto more_most = most ? std::optional<std::size_t>{*most - fixed} : std::nullopt;
  const bool unasked = tuple && !other;  // no more of them than must be
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

schema_writer::members schema_writer::members_of(const json& schema, const std::string& where) {
  members out;
  const json none = json::object();
  const auto& properties = schema.contains("properties") ? schema["properties"] : none;
  if (!properties.is_object()) return complain(where, "'properties' must be an object"), out;
  std::vector<std::string> required, names;
  if (const auto r = schema.find("required"); r != schema.end()) {
    for (const auto& name : *r) {
      if (!name.is_string()) return complain(where, "'required' must be a list of names"), out;
      required.push_back(name.get<std::string>());
    }
  }
  const auto others = schema.find("additionalProperties");
  const bool given = others != schema.end();
  const auto add = [&](const std::string& name, const json& of, const std::string& at, bool must) {
    const auto value = visit(of, at);
    out.named.emplace_back(rule(json_text_literal(name) + " \":\" " + base("ws") + " " + value), must);
    names.push_back(name);
  };
  for (const auto& [name, of] : properties.items()) {
    if (failed()) return out;
    add(name, of, where + "/properties/" + name, std::ranges::find(required, name) != required.end());
  }
  const json anything = true;
  for (const auto& name : required) {
    if (failed()) return out;
    if (std::ranges::find(names, name) == names.end())
      add(name, given ? *others : anything, where + "/additionalProperties", true);
  }
  const auto least = count(schema, "minProperties", where).value_or(0);
  const auto most = count(schema, "maxProperties", where);
  // Nothing said of any member: any. Otherwise those that are named, unless others are asked for.
  const bool open = given ? *others != false : names.empty();
  if (open && !failed()) {
    const auto value = visit(given ? *others : anything, where + "/additionalProperties");
    const auto key =
        names.empty() ? base("string")
                      : json_other_key(names, [this](std::string right) { return rule(std::move(right)); });
    out.extra = rule(key + " \":\" " + base("ws") + " " + value);
  }
  const auto certain =
      static_cast<std::size_t>(std::ranges::count(out.named, true, [](const auto& m) { return m.second; }));
  if (least > certain) complain(where, "'minProperties' beyond the required ones is not supported");
  if (most && (!out.extra.empty() || out.named.size() > *most)) {
    complain(where, "'maxProperties' below the number of properties, or with others, is not supported");
  }
  return out;
}

/// Members come in order. Once one has come, each of the rest brings its comma; before that, any of the
/// leading optional ones may be the first.
std::string schema_writer::object(const json& schema, const std::string& where) {
  const auto all = members_of(schema, where);
  if (failed()) return {};
  if (all.named.empty() && all.extra == "") return "(\"{\" " + base("ws") + " \"}\")";
  const auto ws = base("ws"), comma = "\",\" " + ws + " ";
  // after[i]: what may follow when something has come and members from i on are left.
  std::vector<std::string> after(all.named.size() + 1);
  after.back() = all.extra.empty() ? "" : rule("(" + comma + all.extra + ")*");
  for (auto i = all.named.size(); i-- > 0;) {
    const auto& [member, must] = all.named[i];
    after[i] = rule((must ? comma + member : "(" + comma + member + ")?") + " " + after[i + 1]);
  }
  std::string first;
  bool may_be_empty = true;
  for (std::size_t i = 0; i < all.named.size() && may_be_empty; ++i) {
    first += (first.empty() ? "" : " | ") + all.named[i].first + " " + after[i + 1];
    may_be_empty = !all.named[i].second;
  }
  if (may_be_empty && !all.extra.empty()) {
    first += (first.empty() ? "" : " | ") + all.extra + " " + after.back();
  }
  return rule("\"{\" " + ws + " ((" + first + ") " + ws + ")" + (may_be_empty ? "?" : "") + " \"}\"");
}

}  // namespace mooncaf
