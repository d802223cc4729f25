// Filters that give text or numbers.

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/text/jinja/functions.hpp"
#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf::jinja {

namespace {

using in_t = interpreter&;

value as_text(in_t in, const value& v) { return v.is(kind::string) ? v : in.memory().keep(str(v)); }

/// A string method as a filter, on any value as text.
template <const char* Name>
value method(in_t in, const value& of, const arguments& given) {
  const auto v = as_text(in, of);
  return find_method(v, Name)(in, v, given);
}
constexpr char upper_name[] = "upper", lower_name[] = "lower", capitalize_name[] = "capitalize",
               trim_name[] = "strip", replace_name[] = "replace", center_name[] = "center";

/// Jinja's own: words begin behind white space and some brackets.
value title(in_t in, const value& of, const arguments&) {
  text out = str(of);
  bool begins = true;
  for (auto& c : out) {
    c = begins ? to_upper(c) : to_lower(c);
    begins = is_space(c) || text_view{U"-({[<"}.find(c) != text_view::npos;
  }
  return in.memory().keep(std::move(out));
}

value to_json(in_t in, const value& of, const arguments& given) {
  json_style style;
  if (const auto* v = given.find(0, "ensure_ascii")) style.ascii = truth(*v);
  const auto* indent = given.find(1, "indent");
  if (indent && indent->is_number())
    style.indent = static_cast<int>(std::clamp<std::int64_t>(integer_of(*indent, "indent"), 0, 16));
  style.item_separator = style.indent < 0 ? from_utf8(", ") : from_utf8(",");
  style.key_separator = from_utf8(": ");
  const auto* separators = given.find(2, "separators");
  if (separators && separators->is_sequence() && separators->list->items.size() == 2) {
    style.item_separator = text_of(separators->list->items[0], "separators");
    style.key_separator = text_of(separators->list->items[1], "separators");
  }
  if (const auto* v = given.find(3, "sort_keys")) style.sort_keys = truth(*v);
  text out;
  write_json(of, style, out);
  return in.memory().keep(std::move(out));
}

value indent(in_t in, const value& of, const arguments& given) {
  const auto* width = given.find(0, "width");
  const auto* first = given.find(1, "first");
  const auto* blank = given.find(2, "blank");
  text by(4, U' ');
  if (width && width->is(kind::string)) by = *width->string;
  else if (width)
    by =
        text(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_of(*width, "indent"), 0, 1000)), U' ');
  const text whole = str(of);
  const text_view s = whole;
  text out;
  for (std::size_t at = 0; at <= s.size();) {
    const auto end = std::min(s.find(U'\n', at), s.size());
    const auto line = s.substr(at, end - at);
    const bool wanted = at == 0 ? first && truth(*first) : !line.empty() || (blank && truth(*blank));
    if (wanted) out += by;
    in.memory().charge(1 + by.size() / 4);
    out += line;
    if (end == s.size()) break;
    out.push_back('\n');
    at = end + 1;
  }
  return in.memory().keep(std::move(out));
}

value length(in_t, const value& of, const arguments&) { return value::of(length_of(of)); }

value to_int(in_t in, const value& of, const arguments& given) {
  const auto* otherwise = given.find(0, "default");
  if (of.is(kind::number) && std::isfinite(of.number) && std::abs(of.number) < 9e18)
    return value::of(static_cast<std::int64_t>(of.number));
  if (of.is_number() && !of.is(kind::number)) return value::of(of.as_integer());
  if (of.is(kind::string)) {
    const auto s = to_utf8(strip(*of.string, nullptr, true, true));
    char* end = nullptr;
    const auto whole = std::strtoll(s.c_str(), &end, 10);
    if (!s.empty() && *end == 0) return value::of(static_cast<std::int64_t>(whole));
    const auto real = std::strtod(s.c_str(), &end);
    if (!s.empty() && *end == 0 && std::abs(real) < 9e18) return value::of(static_cast<std::int64_t>(real));
  }
  (void)in;
  return otherwise ? *otherwise : value::of(std::int64_t{0});
}

value to_float(in_t, const value& of, const arguments& given) {
  const auto* otherwise = given.find(0, "default");
  if (of.is_number()) return value::of(of.as_double());
  if (of.is(kind::string)) {
    const auto s = to_utf8(strip(*of.string, nullptr, true, true));
    char* end = nullptr;
    const auto real = std::strtod(s.c_str(), &end);
    if (!s.empty() && *end == 0) return value::of(real);
  }
  return otherwise ? *otherwise : value::of(0.0);
}

value absolute(in_t, const value& of, const arguments&) {
  if (of.is(kind::number)) return value::of(std::abs(of.number));
  const auto v = integer_of(of, "abs");
  return value::of(v < 0 && v != std::numeric_limits<std::int64_t>::min() ? -v : v);
}

value rounded(in_t, const value& of, const arguments& given) {
  const auto* digits = given.find(0, "precision");
  const auto* how = given.find(1, "method");
  if (!of.is_number()) throw template_error{"round takes a number"};
  if (!of.is(kind::number) && !how) return of;
  const auto scale = std::pow(
      10.0,
      digits ? static_cast<double>(std::clamp<std::int64_t>(integer_of(*digits, "round"), -300, 300)) : 0);
  const auto way = how ? to_utf8(text_of(*how, "round")) : "common";
  const auto v = of.as_double() * scale;
  // To even, as Python rounds.
  return value::of((way == "ceil"    ? std::ceil(v)
                    : way == "floor" ? std::floor(v)
                                     : std::nearbyint(v)) /
                   scale);
}

value safe(in_t in, const value& of, const arguments&) {
  auto v = as_text(in, of);
  v.safe = true;
  return v;
}

value escape(in_t in, const value& of, const arguments&) {
  return of.is(kind::string) && of.safe ? of : escaped(in, str(of));
}

value word_count(in_t in, const value& of, const arguments&) {
  const auto v = as_text(in, of);
  return value::of(length_of(find_method(v, "split")(in, v, {})));
}

value truncated(in_t in, const value& of, const arguments& given) {
  const auto* wanted = given.find(0, "length");
  const auto* kill = given.find(1, "killwords");
  const auto* mark = given.find(2, "end");
  const auto* leeway = given.find(3, "leeway");
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(0, wanted ? integer_of(*wanted, "truncate") : 255));
  const auto slack =
      static_cast<std::size_t>(std::max<std::int64_t>(0, leeway ? integer_of(*leeway, "truncate") : 5));
  const text end = mark ? text_of(*mark, "truncate") : from_utf8("...");
  const text s = str(of);
  if (s.size() <= most + slack) return in.memory().keep(s);
  text_view cut = text_view{s}.substr(0, most > end.size() ? most - end.size() : 0);
  if (!kill || !truth(*kill)) {
    if (const auto space = cut.rfind(U' '); space != text_view::npos) cut = cut.substr(0, space);
  }
  return in.memory().keep(text{cut} + end);
}

value format(in_t in, const value& of, const arguments& given) {
  return formatted(in, text_of(of, "format"), given.positional);
}

value or_else(in_t in, const value& of, const arguments& given) {
  const auto* otherwise = given.find(0, "default_value");
  const auto* falsy = given.find(1, "boolean");
  const bool missing = of.is(kind::undefined) || (falsy && truth(*falsy) && !truth(of));
  return !missing ? of : otherwise ? *otherwise : in.memory().keep({});
}

constexpr named_function<filter_function> text_table[] = {
    {"upper", method<upper_name>},
    {"lower", method<lower_name>},
    {"capitalize", method<capitalize_name>},
    {"trim", method<trim_name>},
    {"replace", method<replace_name>},
    {"center", method<center_name>},
    {"title", title},
    {"tojson", to_json},
    {"indent", indent},
    {"length", length},
    {"count", length},
    {"string", [](in_t in, const value& of, const arguments&) { return as_text(in, of); }},
    {"safe", safe},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", rounded},
    {"escape", escape},
    {"e", escape},
    {"wordcount", word_count},
    {"truncate", truncated},
    {"format", format},
    {"default", or_else},
    {"d", or_else},
};

}  // namespace

std::span<const named_function<filter_function>> text_filters() noexcept { return text_table; }

value escaped(interpreter& in, text_view of) {
  text out;
  for (const char32_t c : of) {
    const char* name = bare(c) == '&'    ? "&amp;"
                       : bare(c) == '<'  ? "&lt;"
                       : bare(c) == '>'  ? "&gt;"
                       : bare(c) == '"'  ? "&#34;"
                       : bare(c) == '\'' ? "&#39;"
                                         : nullptr;
    if (name) out += from_utf8(name, c & foreign);
    else out.push_back(c);
  }
  auto made = in.memory().keep(std::move(out));
  made.safe = true;
  return made;
}

/// Python's % for texts. The C library formats numbers alone, from a specification that was checked: a
/// template must not reach its other conversions.
value formatted(interpreter& in, const text& pattern, const std::vector<value>& given) {
  text out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (bare(pattern[i]) != '%') {
      out.push_back(pattern[i]);
      continue;
    }
    std::string spec = "%";
    while (++i < pattern.size() && bare(pattern[i]) < 0x80 &&
           std::string_view{"-+ #0123456789."}.find(static_cast<char>(bare(pattern[i]))) !=
               std::string_view::npos)
      spec += static_cast<char>(bare(pattern[i]));
    if (i >= pattern.size() || spec.size() > 8) throw template_error{"a format is incomplete"};
    const char32_t how = bare(pattern[i]);
    if (how == '%') {
      out.push_back(pattern[i]);
      continue;
    }
    if (next >= given.size()) throw template_error{"a format has too few values"};
    const auto& v = given[next++];
    if (how == 's' || how == 'r') {
      out += how == 's' ? str(v) : repr(v);
      continue;
    }
    char said[1200];
    int n = 0;
    if (how == 'd' || how == 'i' || how == 'x' || how == 'X' || how == 'o') {
      const auto number = v.is(kind::number) && std::abs(v.number) < 9e18
                              ? static_cast<std::int64_t>(v.number)
                              : integer_of(v, "%");
      n = std::snprintf(said, sizeof said, (spec + "ll" + static_cast<char>(how)).c_str(),
                        static_cast<long long>(number));
    } else if ((how == 'f' || how == 'e' || how == 'g') && v.is_number()) {
      n = std::snprintf(said, sizeof said, (spec + static_cast<char>(how)).c_str(), v.as_double());
    } else {
      throw template_error{"a format is not known here"};
    }
    out += from_utf8({said, static_cast<std::size_t>(std::clamp(n, 0, static_cast<int>(sizeof said) - 1))});
  }
  return in.memory().keep(std::move(out));
}

}  // namespace mooncaf::jinja
