#include "runtime/text/jinja/value.hpp"

#include <algorithm>
#include <cmath>

namespace mooncaf::jinja {

namespace {

constexpr std::size_t most_steps = 20'000'000;  ///< about a second
constexpr std::size_t free_characters = 4;      ///< that cost no more than a step
constexpr int list_depth_max = 100;             ///< of nested lists, where they are walked

void check_depth(int depth) {
  if (depth > list_depth_max) throw template_error{"a value is nested too deeply"};
}

/// Orders numbers, strings, and lists of them; unordered otherwise.
int compare(const value& a, const value& b, int depth) {
  if (a.is_number() && b.is_number()) {
    if (!a.is(kind::number) && !b.is(kind::number))
      return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer();
    return a.as_double() < b.as_double() ? -1 : a.as_double() > b.as_double();
  }
  if (a.is(kind::string) && b.is(kind::string)) return a.string->compare(*b.string);
  if (a.is_sequence() && a.what == b.what) {
    check_depth(depth);
    const auto &x = a.list->items, &y = b.list->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], depth + 1)) return compare(x[i], y[i], depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  throw template_error{"'<' is not supported between " + std::string{name_of(a.what)} + " and " +
                       std::string{name_of(b.what)}};
}

}  // namespace

void heap::charge(std::size_t steps) {
  spent_ += steps;
  if (spent_ > most_steps) throw template_error{"takes more steps than one prompt may"};
}

value heap::keep(text made) {
  charge(1 + made.size() / free_characters);
  texts_.push_back(std::move(made));
  return value::of(&texts_.back());
}

value heap::keep_list(std::vector<value> items, kind as) {
  charge(1 + items.size());
  lists_.push_back({std::move(items)});
  value v;
  v.what = as;
  v.list = &lists_.back();
  return v;
}

value heap::keep_map(map_data made) {
  charge(1 + made.items.size());
  maps_.push_back(std::move(made));
  value v;
  v.what = kind::map;
  v.map = &maps_.back();
  return v;
}

value heap::keep_space(map_data made) {
  charge(1 + made.items.size());
  maps_.push_back(std::move(made));
  return value::space_of(&maps_.back());
}

std::string_view heap::keep_name(text_view name) {
  charge(1 + name.size());
  return names_.emplace_back(to_utf8(name));
}

const value* map_data::find(text_view key) const noexcept {
  for (const auto& [name, held] : items) {
    if (name.is(kind::string) && *name.string == key) return &held;
  }
  return nullptr;
}

const value* map_data::find(const value& key) const {
  if (key.is(kind::string)) return find(text_view{*key.string});
  for (const auto& [name, held] : items) {
    if (equal(name, key)) return &held;
  }
  return nullptr;
}

void map_data::set(const value& key, const value& to) {
  if (auto* held = const_cast<value*>(find(key))) *held = to;
  else items.emplace_back(key, to);
}

const value* arguments::find(std::size_t index, std::string_view name) const noexcept {
  if (index < positional.size()) return &positional[index];
  for (const auto& [given, v] : named) {
    if (given == name) return &v;
  }
  return nullptr;
}

bool truth(const value& v) noexcept {
  switch (v.what) {
    case kind::undefined:
    case kind::none:
      return false;
    case kind::boolean:
      return v.boolean;
    case kind::integer:
      return v.integer != 0;
    case kind::number:
      return v.number != 0;
    case kind::string:
      return !v.string->empty();
    case kind::list:
    case kind::tuple:
      return !v.list->items.empty();
    case kind::map:
      return !v.map->items.empty();
    default:
      return true;
  }
}

bool equal(const value& a, const value& b, int depth) {
  check_depth(depth);
  if (a.is_number() && b.is_number()) return compare(a, b, depth) == 0;
  if (a.what != b.what) return false;
  switch (a.what) {
    case kind::undefined:
    case kind::none:
      return true;
    case kind::string:
      return *a.string == *b.string;
    case kind::list:
    case kind::tuple: {
      const auto &x = a.list->items, &y = b.list->items;
      return a.list == b.list ||
             std::equal(x.begin(), x.end(), y.begin(), y.end(),
                        [&](const value& p, const value& q) { return equal(p, q, depth + 1); });
    }
    case kind::map:
      return a.map == b.map || (a.map->items.size() == b.map->items.size() &&
                                std::ranges::all_of(a.map->items, [&](const auto& item) {
                                  const auto* other = b.map->find(item.first);
                                  return other && equal(item.second, *other, depth + 1);
                                }));
    default:
      return a.space == b.space;
  }
}

bool less(const value& a, const value& b) { return compare(a, b, 0) < 0; }

/// Words for error messages, which authors of templates read.
std::string_view name_of(kind k) noexcept {
  switch (k) {
    case kind::undefined:
      return "undefined";
    case kind::none:
      return "none";
    case kind::boolean:
      return "a boolean";
    case kind::integer:
      return "an integer";
    case kind::number:
      return "a number";
    case kind::string:
      return "a string";
    case kind::list:
      return "a list";
    case kind::tuple:
      return "a tuple";
    case kind::map:
      return "a dict";
    case kind::name_space:
      return "a namespace";
    case kind::loop:
      return "loop";
    case kind::callable:
      return "a function";
  }
  return "a value";
}

}  // namespace mooncaf::jinja
