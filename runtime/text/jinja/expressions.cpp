// Names, attributes, calls and operators.

#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/functions.hpp"
#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf::jinja {

namespace {

std::string in_words(const value& v) {
  if (v.is(kind::undefined) && v.string) return "'" + to_utf8(*v.string) + "', which is undefined";
  return std::string{name_of(v.what)};
}

/// A method with the value that it belongs to.
class bound_method final : public callable {
 public:
  bound_method(const value& of, method_function method) : of_(of), method_(method) {}
  value call(interpreter& in, const arguments& given) override { return method_(in, of_, given); }

 private:
  const value of_;
  const method_function method_;
};

class global_value final : public callable {
 public:
  explicit global_value(global_function f) : function_(f) {}
  value call(interpreter& in, const arguments& given) override { return function_(in, given); }

 private:
  const global_function function_;
};

/// The index of a character or item, negative ones from the end; -1 if there is none.
std::int64_t place(std::int64_t index, std::size_t size) {
  const auto n = static_cast<std::int64_t>(size);
  if (index < 0) index += n;
  return index >= 0 && index < n ? index : -1;
}

value loop_attribute(heap& memory, const loop_data& l, std::string_view name) {
  const auto n = l.items.size();
  if (name == "index") return value::of(l.index + 1);
  if (name == "index0") return value::of(l.index);
  if (name == "first") return value::of(l.index == 0);
  if (name == "last") return value::of(l.index + 1 == n);
  if (name == "length") return value::of(n);
  if (name == "revindex") return value::of(n - l.index);
  if (name == "revindex0") return value::of(n - l.index - 1);
  if (name == "depth") return value::of(static_cast<std::size_t>(l.depth) + 1);
  if (name == "depth0") return value::of(static_cast<std::size_t>(l.depth));
  if (name == "previtem" && l.index > 0) return l.items[l.index - 1];
  if (name == "nextitem" && l.index + 1 < n) return l.items[l.index + 1];
  value missing;
  missing.string = memory.keep(from_utf8("loop." + std::string{name})).string;
  return missing;
}

}  // namespace

value interpreter::lookup(const std::string& name, const scope& names) {
  if (const auto* v = names.find(name)) return *v;
  if (const auto f = find_global(name)) return value::of(memory_.make<global_value>(f));
  value missing;
  missing.string = memory_.keep(from_utf8(name)).string;
  return missing;
}

value interpreter::attribute(const value& of, std::string_view name) {
  if (of.is(kind::undefined)) throw template_error{"'" + std::string{name} + "' is asked of " + in_words(of)};
  if (of.is(kind::loop)) {
    if (const auto method = find_method(of, name)) return value::of(memory_.make<bound_method>(of, method));
    return loop_attribute(memory_, *of.loop, name);
  }
  // As in Python a dict's methods come before its keys, when asked with a dot.
  if (const auto method = find_method(of, name)) return value::of(memory_.make<bound_method>(of, method));
  const text key = from_utf8(name);
  const auto* map = of.is(kind::map) ? of.map : of.is(kind::name_space) ? of.space : nullptr;
  if (map) {
    memory_.charge(map->items.size() / 16);
    if (const auto* v = map->find(text_view{key})) return *v;
  }
  value missing;
  missing.string = memory_.keep(key).string;
  return missing;
}

value interpreter::item(const value& of, const value& key) {
  value missing;
  if (of.is(kind::undefined)) throw template_error{"an item is asked of " + in_words(of)};
  if (of.is_sequence() && key.is_number() && !key.is(kind::number)) {
    const auto i = place(key.as_integer(), of.list->items.size());
    return i < 0 ? missing : of.list->items[static_cast<std::size_t>(i)];
  }
  if (of.is(kind::string) && key.is_number() && !key.is(kind::number)) {
    const auto i = place(key.as_integer(), of.string->size());
    return i < 0 ? missing : memory_.keep(text(1, (*of.string)[static_cast<std::size_t>(i)]));
  }
  if (of.is(kind::map)) {
    memory_.charge(of.map->items.size() / 16);
    if (const auto* v = of.map->find(key)) return *v;
  }
  if (key.is(kind::string)) {
    missing.string = key.string;
    const auto name = to_utf8(*key.string);
    if (const auto method = find_method(of, name)) return value::of(memory_.make<bound_method>(of, method));
    if (of.is(kind::loop) || of.is(kind::name_space)) return attribute(of, name);
  }
  return missing;
}

value interpreter::at_path(const value& of, const value& path) {
  if (path.is(kind::integer)) return item(of, path);
  value here = of;
  std::string_view rest;
  const auto whole = to_utf8(text_of(path, "attribute"));
  rest = whole;
  while (true) {
    const auto dot = std::min(rest.find('.'), rest.size());
    const auto name = rest.substr(0, dot);
    const bool index = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == name.npos;
    here = index ? item(here, value::of(static_cast<std::int64_t>(std::stol(std::string{name}))))
                 : item(here, memory_.keep(from_utf8(name)));
    if (dot == rest.size()) return here;
    rest.remove_prefix(dot + 1);
  }
}

value interpreter::call(const value& callee, const arguments& given) {
  if (callee.is(kind::callable)) return callee.function->call(*this, given);
  if (callee.is(kind::loop)) return run_loop_again(*callee.loop, needed(given, 0, "iterable", "loop"));
  throw template_error{"cannot call " + in_words(callee)};
}

arguments interpreter::given_to(const expr& e, std::size_t first, scope& names) {
  arguments out;
  for (std::size_t i = first; i < e.parts.size(); ++i) out.positional.push_back(evaluate(*e.parts[i], names));
  for (const auto& [name, v] : e.named) out.named.emplace_back(name, evaluate(*v, names));
  if (e.star) {
    for (const auto& v : items_of(*this, evaluate(*e.star, names))) out.positional.push_back(v);
  }
  if (e.double_star) {
    const auto more = evaluate(*e.double_star, names);
    if (!more.is(kind::map)) throw template_error{"** takes a dict"};
    for (const auto& [name, v] : more.map->items) out.named.emplace_back(to_utf8(str(name)), v);
  }
  return out;
}

value interpreter::evaluate_call(const expr& e, scope& names) {
  const auto& callee = *e.parts[0];
  if (callee.what == expr_kind::attribute) {
    // A method is called at once: no value is made for it in between.
    const auto of = evaluate(*callee.parts[0], names);
    if (const auto method = of.is(kind::undefined) ? nullptr : find_method(of, callee.name))
      return method(*this, of, given_to(e, 1, names));
    return call(attribute(of, callee.name), given_to(e, 1, names));
  }
  const auto f = evaluate(callee, names);
  return call(f, given_to(e, 1, names));
}

value interpreter::evaluate_filter(const expr& e, const value* of, scope& names) {
  value in = of && !e.parts[0] ? *of : value{};
  if (e.parts[0]) {
    const bool on_block = of && e.parts[0]->what == expr_kind::filter;
    in = on_block ? evaluate_filter(*e.parts[0], of, names) : evaluate(*e.parts[0], names);
  }
  return find_filter(e.name)(*this, in, given_to(e, 1, names));
}

value interpreter::evaluate_map(const expr& e, scope& names) {
  map_data made;
  for (std::size_t i = 0; i + 1 < e.parts.size(); i += 2) {
    const auto key = evaluate(*e.parts[i], names);
    if (key.is(kind::list) || key.is(kind::map))
      throw template_error{std::string{name_of(key.what)} + " cannot be a key"};
    made.set(key, evaluate(*e.parts[i + 1], names));
  }
  return memory_.keep_map(std::move(made));
}

/// Bounds beyond the ends are cut and negative ones count from the end, as Python slices.
value interpreter::evaluate_slice(const expr& e, scope& names) {
  const auto of = evaluate(*e.parts[0], names);
  if (!of.is_sequence() && !of.is(kind::string)) throw template_error{"cannot slice " + in_words(of)};
  const auto n = static_cast<std::int64_t>(length_of(of));
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    if (!e.parts[i]) return otherwise;
    const auto v = evaluate(*e.parts[i], names);
    return v.is(kind::none) ? otherwise : integer_of(v, "a slice");
  };
  const auto step = bound(3, 1);
  if (step == 0) throw template_error{"a slice's step is zero"};
  const auto clamped = [&](std::int64_t i) {
    if (i < 0) i += n;
    return std::clamp<std::int64_t>(i, step < 0 ? -1 : 0, step < 0 ? n - 1 : n);
  };
  constexpr auto open = std::numeric_limits<std::int64_t>::min();
  auto from = bound(1, open), to = bound(2, open);
  from = from == open ? (step < 0 ? n - 1 : 0) : clamped(from);
  to = to == open ? (step < 0 ? -1 : n) : clamped(to);
  text characters;
  std::vector<value> items;
  for (auto i = from; step > 0 ? i < to : i > to;) {
    if (of.is(kind::string)) characters.push_back((*of.string)[static_cast<std::size_t>(i)]);
    else items.push_back(of.list->items[static_cast<std::size_t>(i)]);
    if (step > n || step < -n) break;
    i += step;
  }
  return of.is(kind::string) ? memory_.keep(std::move(characters))
                             : memory_.keep_list(std::move(items), of.what);
}

bool interpreter::evaluate_comparison(const expr& e, scope& names) {
  auto left = evaluate(*e.parts[0], names);
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    const auto right = evaluate(*e.parts[i + 1], names);
    const auto& op = e.ops[i];
    if (op == "in" || op == "not in") {
      if (right.is_sequence() || right.is(kind::string)) memory_.charge(length_of(right) / 16);
    }
    const bool holds = op == "=="   ? equal(left, right)
                       : op == "!=" ? !equal(left, right)
                       : op == "<"  ? less(left, right)
                       : op == ">"  ? less(right, left)
                       : op == "<=" ? !less(right, left)
                       : op == ">=" ? !less(left, right)
                       : op == "in" ? contains(right, left)
                                    : !contains(right, left);
    if (!holds) return false;
    left = right;
  }
  return true;
}

namespace {

[[noreturn]] void no_operator(char op, const value& a, const value& b) {
  throw template_error{std::string{"'"} + op + "' is not supported between " + in_words(a) + " and " +
                       in_words(b)};
}

value of_integers(char op, bool twice, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  bool over = false;
  if (op == '+') over = __builtin_add_overflow(a, b, &out);
  if (op == '-') over = __builtin_sub_overflow(a, b, &out);
  if (op == '*' && !twice) over = __builtin_mul_overflow(a, b, &out);
  if (op == '*' && twice) {
    if (b < 0) return value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
    out = 1;
    for (std::int64_t i = 0; i < b && !over; ++i) {
      if (a == 1 || a == 0 || a == -1) {
        out = a == -1 ? (b % 2 ? -1 : 1) : a;
        break;
      }
      over = __builtin_mul_overflow(out, a, &out);
    }
  }
  if (op == '/' || op == '%') {
    if (b == 0) throw template_error{"division by zero"};
    if (op == '/' && !twice) return value::of(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) return op == '%' ? value::of(std::int64_t{0}) : of_integers('-', false, 0, a);
    const auto rest = a % b;
    const bool down = rest != 0 && (rest < 0) != (b < 0);
    out = op == '%' ? rest + (down ? b : 0) : a / b - down;
  }
  if (over) throw template_error{"a number is too large"};
  return value::of(out);
}

value of_doubles(char op, bool twice, double a, double b) {
  switch (op) {
    case '+':
      return value::of(a + b);
    case '-':
      return value::of(a - b);
    case '*':
      return value::of(twice ? std::pow(a, b) : a * b);
    default:
      if (b == 0) throw template_error{"division by zero"};
      if (op == '%') return value::of(a - b * std::floor(a / b));
      return value::of(twice ? std::floor(a / b) : a / b);
  }
}

}  // namespace

/// A text that is marked safe escapes the text that it is joined with, as Markup does in Jinja2.
value interpreter::arithmetic(char op, bool twice, const value& a, const value& b) {
  if (a.is_number() && b.is_number()) {
    const bool whole = !a.is(kind::number) && !b.is(kind::number);
    return whole ? of_integers(op, twice, a.as_integer(), b.as_integer())
                 : of_doubles(op, twice, a.as_double(), b.as_double());
  }
  if (op == '+' && a.is(kind::string) && b.is(kind::string)) {
    if (!a.safe && !b.safe) return memory_.keep(*a.string + *b.string);
    const auto x = a.safe ? a : escaped(*this, *a.string), y = b.safe ? b : escaped(*this, *b.string);
    auto joined = memory_.keep(*x.string + *y.string);
    joined.safe = true;
    return joined;
  }
  if (op == '+' && a.is_sequence() && a.what == b.what) {
    auto items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    return memory_.keep_list(std::move(items), a.what);
  }
  if (op == '%' && a.is(kind::string))
    return formatted(*this, *a.string, b.is(kind::tuple) ? b.list->items : std::vector<value>{b});
  const bool times = op == '*' && !twice;
  if (times && (b.is(kind::string) || b.is_sequence()) && a.is_number()) return arithmetic(op, twice, b, a);
  if (times && b.is_number() && !b.is(kind::number) && (a.is(kind::string) || a.is_sequence())) {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(0, b.as_integer()));
    const auto size = length_of(a);
    if (count > 0 && size > (1u << 26) / count) throw template_error{"a repetition is too long"};
    memory_.charge(size * count / 4);
    text characters;
    std::vector<value> items;
    for (std::size_t i = 0; i < count && size > 0; ++i) {
      if (a.is(kind::string)) characters += *a.string;
      else items.insert(items.end(), a.list->items.begin(), a.list->items.end());
    }
    return a.is(kind::string) ? memory_.keep(std::move(characters))
                              : memory_.keep_list(std::move(items), a.what);
  }
  no_operator(op, a, b);
}

}  // namespace mooncaf::jinja
