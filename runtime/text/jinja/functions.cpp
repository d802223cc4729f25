// Globals, tests, and the helpers that all functions share.

#include "runtime/text/jinja/functions.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf::jinja {

namespace {

constexpr std::int64_t longest_range = 100'000;

template <class Table>
auto find_in(const Table& table, std::string_view name) noexcept -> decltype(std::begin(table)->call) {
  for (const auto& f : table) {
    if (f.name == name) return f.call;
  }
  return nullptr;
}

value range(interpreter& in, const arguments& given) {
  const auto& p = given.positional;
  const auto at = [&](std::size_t i) { return integer_of(p[i], "range"); };
  if (p.empty() || p.size() > 3) throw template_error{"range takes one to three numbers"};
  const auto from = p.size() == 1 ? 0 : at(0), to = p.size() == 1 ? at(0) : at(1),
             step = p.size() == 3 ? at(2) : 1;
  if (step == 0) throw template_error{"range: a step of zero"};
  std::vector<value> items;
  for (auto i = from; step > 0 ? i < to : i > to;) {
    if (static_cast<std::int64_t>(items.size()) >= longest_range) throw template_error{"range is too long"};
    items.push_back(value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return in.memory().keep_list(std::move(items));
}

map_data named_and_given(const arguments& given, heap& memory) {
  map_data made;
  for (const auto& v : given.positional) {
    if (v.is(kind::map)) made = *v.map;
  }
  for (const auto& [name, v] : given.named) made.set(memory.keep(from_utf8(name)), v);
  return made;
}

value name_space(interpreter& in, const arguments& given) {
  return in.memory().keep_space(named_and_given(given, in.memory()));
}
value dict(interpreter& in, const arguments& given) {
  return in.memory().keep_map(named_and_given(given, in.memory()));
}

value raise_exception(interpreter&, const arguments& given) {
  throw template_error{to_utf8(str(needed(given, 0, "message", "raise_exception"))), true};
}

value strftime_now(interpreter& in, const arguments& given) {
  const auto pattern = to_utf8(text_of(needed(given, 0, "format", "strftime_now"), "strftime_now"));
  char said[512];
  if (pattern.size() > 200) throw template_error{"strftime_now: the format is too long"};
  const auto n = std::strftime(said, sizeof said, pattern.c_str(), &in.now());
  return in.memory().keep(from_utf8({said, n}));
}

constexpr named_function<global_function> globals[] = {{"range", range},
                                                       {"namespace", name_space},
                                                       {"dict", dict},
                                                       {"raise_exception", raise_exception},
                                                       {"strftime_now", strftime_now}};

const value& other(const arguments& given, const char* what) { return needed(given, 0, "other", what); }

bool has_case(const value& v, bool upper) {
  if (!v.is(kind::string)) return false;
  bool any = false;
  for (const char32_t c : *v.string) {
    const bool is_upper = to_lower(c) != c, is_lower = to_upper(c) != c;
    if (upper ? is_lower : is_upper) return false;
    any = any || is_upper || is_lower;
  }
  return any;
}

constexpr named_function<test_function> tests[] = {
    {"defined", [](interpreter&, const value& v, const arguments&) { return !v.is(kind::undefined); }},
    {"undefined", [](interpreter&, const value& v, const arguments&) { return v.is(kind::undefined); }},
    {"none", [](interpreter&, const value& v, const arguments&) { return v.is(kind::none); }},
    {"boolean", [](interpreter&, const value& v, const arguments&) { return v.is(kind::boolean); }},
    {"true", [](interpreter&, const value& v, const arguments&) { return v.is(kind::boolean) && v.boolean; }},
    {"false",
     [](interpreter&, const value& v, const arguments&) { return v.is(kind::boolean) && !v.boolean; }},
    {"string", [](interpreter&, const value& v, const arguments&) { return v.is(kind::string); }},
    {"number", [](interpreter&, const value& v, const arguments&) { return v.is_number(); }},
    {"integer", [](interpreter&, const value& v, const arguments&) { return v.is(kind::integer); }},
    {"float", [](interpreter&, const value& v, const arguments&) { return v.is(kind::number); }},
    {"mapping", [](interpreter&, const value& v, const arguments&) { return v.is(kind::map); }},
    {"sequence",
     [](interpreter&, const value& v, const arguments&) {
       return v.is_sequence() || v.is(kind::string) || v.is(kind::map) || v.is(kind::undefined);
     }},
    {"iterable",
     [](interpreter&, const value& v, const arguments&) {
       return v.is_sequence() || v.is(kind::string) || v.is(kind::map) || v.is(kind::undefined) ||
              v.is(kind::loop);
     }},
    {"callable",
     [](interpreter&, const value& v, const arguments&) { return v.is(kind::callable) || v.is(kind::loop); }},
    {"escaped", [](interpreter&, const value&, const arguments&) { return false; }},
    {"upper", [](interpreter&, const value& v, const arguments&) { return has_case(v, true); }},
    {"lower", [](interpreter&, const value& v, const arguments&) { return has_case(v, false); }},
    {"odd", [](interpreter&, const value& v, const arguments&) { return integer_of(v, "odd") % 2 != 0; }},
    {"even", [](interpreter&, const value& v, const arguments&) { return integer_of(v, "even") % 2 == 0; }},
    {"divisibleby",
     [](interpreter&, const value& v, const arguments& given) {
       const auto by = integer_of(other(given, "divisibleby"), "divisibleby");
       if (by == 0) throw template_error{"division by zero"};
       return by == -1 || integer_of(v, "divisibleby") % by == 0;
     }},
    {"in",
     [](interpreter&, const value& v, const arguments& given) { return contains(other(given, "in"), v); }},
    {"sameas",
     [](interpreter&, const value& v, const arguments& given) {
       const auto& o = other(given, "sameas");
       return v.what == o.what && (v.is(kind::list) || v.is(kind::map) ? v.list == o.list : equal(v, o));
     }},
    {"filter",
     [](interpreter&, const value& v, const arguments&) { return find_filter(to_utf8(str(v))) != nullptr; }},
    {"test",
     [](interpreter&, const value& v, const arguments&) { return find_test(to_utf8(str(v))) != nullptr; }},
};

template <int Sign, bool OrEqual>
bool ordered(interpreter&, const value& v, const arguments& given) {
  const auto& o = other(given, "a comparison");
  if (Sign == 0) return equal(v, o) == OrEqual;
  return Sign < 0 ? (OrEqual ? !less(o, v) : less(v, o)) : (OrEqual ? !less(v, o) : less(o, v));
}

constexpr named_function<test_function> comparisons[] = {
    {"eq", ordered<0, true>},  {"equalto", ordered<0, true>},    {"==", ordered<0, true>},
    {"ne", ordered<0, false>}, {"!=", ordered<0, false>},        {"lt", ordered<-1, false>},
    {"<", ordered<-1, false>}, {"lessthan", ordered<-1, false>}, {"le", ordered<-1, true>},
    {"<=", ordered<-1, true>}, {"gt", ordered<1, false>},        {"greaterthan", ordered<1, false>},
    {">", ordered<1, false>},  {"ge", ordered<1, true>},         {">=", ordered<1, true>}};

value map_items(interpreter& in, const value& of, const arguments&) {
  std::vector<value> out;
  for (const auto& [key, v] : of.map->items) out.push_back(in.memory().keep_list({key, v}, kind::tuple));
  return in.memory().keep_list(std::move(out));
}
value map_keys(interpreter& in, const value& of, const arguments&) {
  return in.memory().keep_list(items_of(in, of));
}
value map_values(interpreter& in, const value& of, const arguments&) {
  std::vector<value> out;
  for (const auto& [key, v] : of.map->items) out.push_back(v);
  return in.memory().keep_list(std::move(out));
}
value map_get(interpreter& in, const value& of, const arguments& given) {
  in.memory().charge(of.map->items.size() / 16);
  if (const auto* v = of.map->find(needed(given, 0, "key", "get"))) return *v;
  const auto* otherwise = given.find(1, "default");
  return otherwise ? *otherwise : value::none();
}

constexpr named_function<method_function> map_methods[] = {
    {"items", map_items},
    {"keys", map_keys},
    {"values", map_values},
    {"get", map_get},
    {"copy", [](interpreter&, const value& of, const arguments&) { return of; }}};

value list_index(interpreter&, const value& of, const arguments& given) {
  const auto& wanted = needed(given, 0, "value", "index");
  for (std::size_t i = 0; i < of.list->items.size(); ++i) {
    if (equal(of.list->items[i], wanted)) return value::of(i);
  }
  throw template_error{"index: the value is not in the list"};
}
value list_count(interpreter&, const value& of, const arguments& given) {
  const auto& wanted = needed(given, 0, "value", "count");
  return value::of(static_cast<std::size_t>(
      std::ranges::count_if(of.list->items, [&](const value& v) { return equal(v, wanted); })));
}

constexpr named_function<method_function> list_methods[] = {{"index", list_index}, {"count", list_count}};

value loop_cycle(interpreter&, const value& of, const arguments& given) {
  if (given.positional.empty()) throw template_error{"cycle takes at least one value"};
  return given.positional[of.loop->index % given.positional.size()];
}
value loop_changed(interpreter&, const value& of, const arguments& given) {
  auto& l = *of.loop;
  const bool same =
      l.seen && std::equal(given.positional.begin(), given.positional.end(), l.last_seen.begin(),
                           l.last_seen.end(), [](const value& a, const value& b) { return equal(a, b); });
  l.seen = true;
  l.last_seen = given.positional;
  return value::of(!same);
}

constexpr named_function<method_function> loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};

}  // namespace

global_function find_global(std::string_view name) noexcept { return find_in(globals, name); }

test_function find_test(std::string_view name) noexcept {
  const auto found = find_in(tests, name);
  return found ? found : find_in(comparisons, name);
}

filter_function find_filter(std::string_view name) noexcept {
  const auto found = find_in(text_filters(), name);
  return found ? found : find_in(list_filters(), name);
}

method_function find_method(const value& of, std::string_view name) noexcept {
  switch (of.what) {
    case kind::string:
      return find_in(text_methods(), name);
    case kind::map:
      return find_in(map_methods, name);
    case kind::list:
    case kind::tuple:
      return find_in(list_methods, name);
    case kind::loop:
      return find_in(loop_methods, name);
    default:
      return nullptr;
  }
}

std::vector<value> items_of(interpreter& in, const value& v) {
  auto& memory = in.memory();
  std::vector<value> out;
  switch (v.what) {
    case kind::undefined:
      return out;
    case kind::list:
    case kind::tuple:
      memory.charge(v.list->items.size());
      return v.list->items;
    case kind::map:
      memory.charge(v.map->items.size());
      for (const auto& [key, held] : v.map->items) out.push_back(key);
      return out;
    case kind::string:
      for (const char32_t c : *v.string) out.push_back(memory.keep(text(1, c)));
      return out;
    default:
      throw template_error{"cannot go through " + std::string{name_of(v.what)}};
  }
}

std::size_t length_of(const value& v) {
  switch (v.what) {
    case kind::undefined:
      return 0;
    case kind::list:
    case kind::tuple:
      return v.list->items.size();
    case kind::map:
      return v.map->items.size();
    case kind::string:
      return v.string->size();
    default:
      throw template_error{std::string{name_of(v.what)} + " has no length"};
  }
}

bool contains(const value& container, const value& v) {
  switch (container.what) {
    case kind::undefined:
      return false;
    case kind::string:
      return container.string->find(text_of(v, "'in' a string")) != text::npos;
    case kind::list:
    case kind::tuple:
      return std::ranges::any_of(container.list->items, [&](const value& i) { return equal(i, v); });
    case kind::map:
      return container.map->find(v) != nullptr;
    default:
      throw template_error{"nothing is in " + std::string{name_of(container.what)}};
  }
}

const text& text_of(const value& v, std::string_view what) {
  if (!v.is(kind::string))
    throw template_error{std::string{what} + " takes a string, not " + std::string{name_of(v.what)}};
  return *v.string;
}

std::int64_t integer_of(const value& v, std::string_view what) {
  if (!v.is_number() || v.is(kind::number))
    throw template_error{std::string{what} + " takes an integer, not " + std::string{name_of(v.what)}};
  return v.as_integer();
}

const value& needed(const arguments& given, std::size_t index, std::string_view name, std::string_view what) {
  const auto* v = given.find(index, name);
  if (!v) throw template_error{std::string{what} + " takes '" + std::string{name} + "'"};
  return *v;
}

value replaced(interpreter& in, text_view of, text_view from, text_view to, std::int64_t most) {
  text out;
  std::size_t at = 0;
  if (from.empty()) {
    // As Python: before every character and at the end.
    for (; at <= of.size(); ++at) {
      if (most < 0 || most-- > 0) out += to;
      if (at < of.size()) out.push_back(of[at]);
      in.memory().charge(to.size() / 4);
    }
    return in.memory().keep(std::move(out));
  }
  while (most < 0 || most-- > 0) {
    const auto found = of.find(from, at);
    if (found == text_view::npos) break;
    in.memory().charge(1 + to.size() / 4);
    out += of.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  out += of.substr(at);
  return in.memory().keep(std::move(out));
}

}  // namespace mooncaf::jinja
