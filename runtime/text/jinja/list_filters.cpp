// Filters that look at the items of a list.

#include <algorithm>

#include "runtime/text/jinja/functions.hpp"
#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf::jinja {

namespace {

using in_t = interpreter&;

value keep(in_t in, std::vector<value> items) { return in.memory().keep_list(std::move(items)); }

/// As Jinja's own map and select look through a value: none and the like has no items.
std::vector<value> any_items_of(in_t in, const value& v) {
  return truth(v) ? items_of(in, v) : std::vector<value>{};
}

/// The value that an item is sorted, joined or compared by.
value looked_at(in_t in, const value& item, const value* path) {
  return path && !path->is(kind::none) ? in.at_path(item, *path) : item;
}

value first(in_t in, const value& of, const arguments&) {
  const auto items = items_of(in, of);
  return items.empty() ? value{} : items.front();
}
value last(in_t in, const value& of, const arguments&) {
  const auto items = items_of(in, of);
  return items.empty() ? value{} : items.back();
}

value join(in_t in, const value& of, const arguments& given) {
  const auto* by = given.find(0, "d");
  const auto* path = given.find(1, "attribute");
  const text between = by ? str(*by) : text{};
  text out;
  bool begun = false;
  for (const auto& v : items_of(in, of)) {
    if (std::exchange(begun, true)) out += between;
    out += str(looked_at(in, v, path));
    in.memory().charge(between.size() / 4);
  }
  return in.memory().keep(std::move(out));
}

value map(in_t in, const value& of, const arguments& given) {
  std::vector<value> out;
  const auto* path = given.positional.empty() ? given.find(0, "attribute") : nullptr;
  const auto* otherwise = given.find(1, "default");
  filter_function by = nullptr;
  arguments rest;
  if (!path) {
    const auto name = to_utf8(text_of(needed(given, 0, "filter", "map"), "map"));
    by = find_filter(name);
    if (!by) throw template_error{"filter '" + name + "' is not known here"};
    rest.positional.assign(given.positional.begin() + 1, given.positional.end());
    rest.named = given.named;
  }
  for (const auto& v : any_items_of(in, of)) {
    auto made = path ? in.at_path(v, *path) : by(in, v, rest);
    if (path && made.is(kind::undefined) && otherwise) made = *otherwise;
    out.push_back(made);
  }
  return keep(in, std::move(out));
}

/// select, reject, selectattr, rejectattr.
template <bool Wanted, bool ByAttribute>
value select(in_t in, const value& of, const arguments& given) {
  std::vector<value> out;
  const std::size_t first = ByAttribute ? 1 : 0;
  const value* path = ByAttribute ? &needed(given, 0, "attribute", "selectattr") : nullptr;
  test_function test = nullptr;
  arguments rest;
  if (given.positional.size() > first) {
    const auto name = to_utf8(text_of(given.positional[first], "select"));
    test = find_test(name);
    if (!test) throw template_error{"test '" + name + "' is not known here"};
    rest.positional.assign(given.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                           given.positional.end());
  }
  for (const auto& v : any_items_of(in, of)) {
    const auto held = looked_at(in, v, path);
    if ((test ? test(in, held, rest) : truth(held)) == Wanted) out.push_back(v);
  }
  return keep(in, std::move(out));
}

/// Text without regard to case, unless that is asked for.
value folded(in_t in, const value& v, bool exact) {
  return v.is(kind::string) && !exact ? find_method(v, "lower")(in, v, {}) : v;
}

std::vector<value> sorted(in_t in, std::vector<value> items, bool down, bool exact, const value* path) {
  std::vector<std::pair<value, value>> keyed;
  for (const auto& v : items) keyed.emplace_back(folded(in, looked_at(in, v, path), exact), v);
  in.memory().charge(8 * keyed.size());
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return down ? less(b.first, a.first) : less(a.first, b.first);
  });
  items.clear();
  for (const auto& [key, v] : keyed) items.push_back(v);
  return items;
}

value sort(in_t in, const value& of, const arguments& given) {
  const auto *down = given.find(0, "reverse"), *exact = given.find(1, "case_sensitive");
  return keep(in, sorted(in, items_of(in, of), down && truth(*down), exact && truth(*exact),
                         given.find(2, "attribute")));
}

value items(in_t in, const value& of, const arguments& given) {
  if (of.is(kind::undefined)) return keep(in, {});
  if (!of.is(kind::map)) throw template_error{"items takes a dict"};
  return find_method(of, "items")(in, of, given);
}

value dict_sort(in_t in, const value& of, const arguments& given) {
  if (!of.is(kind::map)) throw template_error{"dictsort takes a dict"};
  const auto *exact = given.find(0, "case_sensitive"), *by = given.find(1, "by"),
             *down = given.find(2, "reverse");
  const bool by_value = by && to_utf8(text_of(*by, "dictsort")) == "value";
  const value path = value::of(std::int64_t{by_value});
  return keep(in, sorted(in, find_method(of, "items")(in, of, {}).list->items, down && truth(*down),
                         exact && truth(*exact), &path));
}

value reversed(in_t in, const value& of, const arguments&) {
  if (of.is(kind::string)) return in.memory().keep(text{of.string->rbegin(), of.string->rend()});
  auto all = items_of(in, of);
  std::ranges::reverse(all);
  return keep(in, std::move(all));
}

value unique(in_t in, const value& of, const arguments& given) {
  const auto *exact = given.find(0, "case_sensitive"), *path = given.find(1, "attribute");
  std::vector<value> seen, out;
  for (const auto& v : items_of(in, of)) {
    const auto key = folded(in, looked_at(in, v, path), exact && truth(*exact));
    in.memory().charge(1 + seen.size() / 4);
    if (std::ranges::any_of(seen, [&](const value& s) { return equal(s, key); })) continue;
    seen.push_back(key);
    out.push_back(v);
  }
  return keep(in, std::move(out));
}

value sum(in_t in, const value& of, const arguments& given) {
  const auto *path = given.find(0, "attribute"), *start = given.find(1, "start");
  double total = start ? start->as_double() : 0;
  bool whole = !start || !start->is(kind::number);
  for (const auto& item : items_of(in, of)) {
    const auto v = looked_at(in, item, path);
    if (!v.is_number()) throw template_error{"sum takes numbers"};
    whole = whole && !v.is(kind::number);
    total += v.as_double();
  }
  return whole ? value::of(static_cast<std::int64_t>(total)) : value::of(total);
}

template <bool Largest>
value extreme(in_t in, const value& of, const arguments& given) {
  const auto *exact = given.find(0, "case_sensitive"), *path = given.find(1, "attribute");
  const auto all = sorted(in, items_of(in, of), false, exact && truth(*exact), path);
  return all.empty() ? value{} : Largest ? all.back() : all.front();
}

value group_by(in_t in, const value& of, const arguments& given) {
  const auto& path = needed(given, 0, "attribute", "groupby");
  std::vector<value> out;
  std::vector<value> group;
  value key;
  const auto close = [&] {
    if (!group.empty())
      out.push_back(in.memory().keep_list({key, keep(in, std::exchange(group, {}))}, kind::tuple));
  };
  for (const auto& v : sorted(in, items_of(in, of), false, false, &path)) {
    const auto own = in.at_path(v, path);
    if (!group.empty() && !equal(folded(in, own, false), folded(in, key, false))) close();
    if (group.empty()) key = own;
    group.push_back(v);
  }
  close();
  return keep(in, std::move(out));
}

value batch(in_t in, const value& of, const arguments& given) {
  const auto size = static_cast<std::size_t>(
      std::clamp<std::int64_t>(integer_of(needed(given, 0, "linecount", "batch"), "batch"), 1, 1 << 20));
  const auto* fill = given.find(1, "fill_with");
  std::vector<value> out, row;
  for (const auto& v : items_of(in, of)) {
    if (row.size() == size) out.push_back(keep(in, std::exchange(row, {})));
    row.push_back(v);
  }
  in.memory().charge(size);
  if (!row.empty() && fill && !fill->is(kind::none)) row.resize(size, *fill);
  if (!row.empty()) out.push_back(keep(in, std::move(row)));
  return keep(in, std::move(out));
}

constexpr named_function<filter_function> list_table[] = {
    {"first", first},
    {"last", last},
    {"join", join},
    {"map", map},
    {"select", select<true, false>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<false, true>},
    {"sort", sort},
    {"items", items},
    {"dictsort", dict_sort},
    {"reverse", reversed},
    {"unique", unique},
    {"sum", sum},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"groupby", group_by},
    {"batch", batch},
    {"list", [](in_t in, const value& of, const arguments&) { return keep(in, items_of(in, of)); }},
    {"attr",
     [](in_t in, const value& of, const arguments& given) {
       return in.attribute(of, to_utf8(text_of(needed(given, 0, "name", "attr"), "attr")));
     }},
};

}  // namespace

std::span<const named_function<filter_function>> list_filters() noexcept { return list_table; }

}  // namespace mooncaf::jinja
