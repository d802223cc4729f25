// The methods of strings, as Python's.

#include <algorithm>

#include "runtime/text/jinja/functions.hpp"
#include "runtime/text/jinja/interpreter.hpp"

namespace mooncaf::jinja {

namespace {

value keep(interpreter& in, text_view t) { return in.memory().keep(text{t}); }

template <bool Left, bool Right>
value stripped(interpreter& in, const value& of, const arguments& given) {
  const auto* which = given.find(0, "chars");
  if (!which || which->is(kind::none)) return keep(in, strip(*of.string, nullptr, Left, Right));
  const text_view characters = text_of(*which, "strip");
  return keep(in, strip(*of.string, &characters, Left, Right));
}

/// Where the pieces of a split lie.
std::vector<text_view> pieces(text_view of, const text* separator, std::int64_t most, bool from_right) {
  std::vector<text_view> out;
  if (separator) {
    while (most < 0 || most-- > 0) {
      const auto at = from_right ? of.rfind(*separator) : of.find(*separator);
      if (at == text_view::npos) break;
      out.push_back(from_right ? of.substr(at + separator->size()) : of.substr(0, at));
      of = from_right ? of.substr(0, at) : of.substr(at + separator->size());
    }
    out.push_back(of);
  } else {
    while (true) {
      of = strip(of, nullptr, !from_right, from_right);
      if (of.empty()) break;
      if (most >= 0 && most-- == 0) {
        out.push_back(of);
        break;
      }
      std::size_t n = 0;
      const auto at = [&](std::size_t i) { return from_right ? of[of.size() - 1 - i] : of[i]; };
      while (n < of.size() && !is_space(at(n))) ++n;
      out.push_back(from_right ? of.substr(of.size() - n) : of.substr(0, n));
      of = from_right ? of.substr(0, of.size() - n) : of.substr(n);
    }
  }
  if (from_right) std::ranges::reverse(out);
  return out;
}

template <bool FromRight>
value split(interpreter& in, const value& of, const arguments& given) {
  const auto* separator = given.find(0, "sep");
  const auto* most = given.find(1, "maxsplit");
  const text* by = separator && !separator->is(kind::none) ? &text_of(*separator, "split") : nullptr;
  if (by && by->empty()) throw template_error{"split: an empty separator"};
  std::vector<value> out;
  for (const auto& piece : pieces(*of.string, by, most ? integer_of(*most, "split") : -1, FromRight))
    out.push_back(keep(in, piece));
  return in.memory().keep_list(std::move(out));
}

value split_lines(interpreter& in, const value& of, const arguments& given) {
  const auto* kept = given.find(0, "keepends");
  const bool keep_ends = kept && truth(*kept);
  const text_view s = *of.string;
  std::vector<value> out;
  for (std::size_t at = 0; at < s.size();) {
    const auto end = std::min(s.find_first_of(U"\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", at), s.size());
    const bool two = end + 1 < s.size() && bare(s[end]) == '\r' && bare(s[end + 1]) == '\n';
    const auto next = std::min(end + 1 + two, s.size());
    out.push_back(keep(in, s.substr(at, (keep_ends ? next : end) - at)));
    at = next;
  }
  return in.memory().keep_list(std::move(out));
}

template <bool FromRight>
value partition(interpreter& in, const value& of, const arguments& given) {
  const auto& by = text_of(needed(given, 0, "sep", "partition"), "partition");
  if (by.empty()) throw template_error{"partition: an empty separator"};
  const text_view s = *of.string;
  const auto at = FromRight ? s.rfind(by) : s.find(by);
  const auto none = keep(in, {});
  if (at == text_view::npos) {
    return in.memory().keep_list(FromRight ? std::vector{none, none, of} : std::vector{of, none, none},
                                 kind::tuple);
  }
  return in.memory().keep_list({keep(in, s.substr(0, at)), keep(in, by), keep(in, s.substr(at + by.size()))},
                               kind::tuple);
}

template <bool AtEnd>
value starts(interpreter&, const value& of, const arguments& given) {
  const auto& wanted = needed(given, 0, "prefix", "startswith");
  const auto fits = [&](const value& v) {
    const text_view s = *of.string, part = text_of(v, "startswith");
    return AtEnd ? s.ends_with(part) : s.starts_with(part);
  };
  return value::of(wanted.is(kind::tuple) ? std::ranges::any_of(wanted.list->items, fits) : fits(wanted));
}

template <bool FromRight, bool Must>
value find(interpreter&, const value& of, const arguments& given) {
  const auto& part = text_of(needed(given, 0, "sub", "find"), "find");
  const auto* start = given.find(1, "start");
  const auto from = start ? std::max<std::int64_t>(0, integer_of(*start, "find")) : 0;
  const text_view s = *of.string;
  auto at = FromRight ? s.rfind(part) : s.find(part, static_cast<std::size_t>(from));
  if (FromRight && at != text_view::npos && static_cast<std::int64_t>(at) < from) at = text_view::npos;
  if (Must && at == text_view::npos) throw template_error{"index: the text is not there"};
  return value::of(at == text_view::npos ? std::int64_t{-1} : static_cast<std::int64_t>(at));
}

value count(interpreter&, const value& of, const arguments& given) {
  const auto& part = text_of(needed(given, 0, "sub", "count"), "count");
  if (part.empty()) return value::of(of.string->size() + 1);
  std::size_t n = 0;
  for (auto at = of.string->find(part); at != text::npos; at = of.string->find(part, at + part.size())) ++n;
  return value::of(n);
}

value replace(interpreter& in, const value& of, const arguments& given) {
  const auto* most = given.find(2, "count");
  return replaced(in, *of.string, text_of(needed(given, 0, "old", "replace"), "replace"),
                  text_of(needed(given, 1, "new", "replace"), "replace"),
                  most ? integer_of(*most, "replace") : -1);
}

value join(interpreter& in, const value& of, const arguments& given) {
  text out;
  bool first = true;
  for (const auto& v : items_of(in, needed(given, 0, "iterable", "join"))) {
    if (!std::exchange(first, false)) out += *of.string;
    out += text_of(v, "join");
    in.memory().charge(of.string->size() / 4);
  }
  return in.memory().keep(std::move(out));
}

/// Changes characters by their place: the character before tells whether a word begins.
template <class Change>
value changed(interpreter& in, const value& of, Change change) {
  text out = *of.string;
  bool in_word = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool letter = is_letter(out[i]);
    out[i] = change(out[i], i, in_word);
    in_word = letter;
  }
  return in.memory().keep(std::move(out));
}

value upper(interpreter& in, const value& of, const arguments&) {
  return changed(in, of, [](char32_t c, std::size_t, bool) { return to_upper(c); });
}
value lower(interpreter& in, const value& of, const arguments&) {
  return changed(in, of, [](char32_t c, std::size_t, bool) { return to_lower(c); });
}
value capitalize(interpreter& in, const value& of, const arguments&) {
  return changed(in, of, [](char32_t c, std::size_t i, bool) { return i == 0 ? to_upper(c) : to_lower(c); });
}
value title(interpreter& in, const value& of, const arguments&) {
  return changed(in, of,
                 [](char32_t c, std::size_t, bool in_word) { return in_word ? to_lower(c) : to_upper(c); });
}
value swapcase(interpreter& in, const value& of, const arguments&) {
  return changed(in, of,
                 [](char32_t c, std::size_t, bool) { return to_lower(c) != c ? to_lower(c) : to_upper(c); });
}

template <bool AtEnd>
value removed(interpreter& in, const value& of, const arguments& given) {
  const text_view s = *of.string, part = text_of(needed(given, 0, "prefix", "removeprefix"), "removeprefix");
  if (part.empty() || !(AtEnd ? s.ends_with(part) : s.starts_with(part))) return of;
  return keep(in, AtEnd ? s.substr(0, s.size() - part.size()) : s.substr(part.size()));
}

template <class Is>
value all_are(const value& of, Is is) {
  return value::of(!of.string->empty() && std::ranges::all_of(*of.string, is));
}

/// `where`: -1 to the left, 0 to the middle, 1 to the right.
template <int Where>
value padded(interpreter& in, const value& of, const arguments& given) {
  const auto width =
      std::clamp<std::int64_t>(integer_of(needed(given, 0, "width", "a width"), "a width"), 0, 1 << 20);
  const auto* with = given.find(1, "fillchar");
  const char32_t fill = with && !text_of(*with, "a width").empty() ? with->string->front() : U' ';
  const auto room = width - std::min(width, static_cast<std::int64_t>(of.string->size()));
  const auto left = Where < 0 ? 0 : Where > 0 ? room : room / 2 + (room & width & 1);
  return in.memory().keep(text(static_cast<std::size_t>(left), fill) + *of.string +
                          text(static_cast<std::size_t>(room - left), fill));
}

/// "{} {0} {name}".format(…), without format specifications.
value format(interpreter& in, const value& of, const arguments& given) {
  const text_view s = *of.string;
  text out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char32_t c = bare(s[i]);
    const bool twice = i + 1 < s.size() && s[i + 1] == s[i];
    if ((c == '{' || c == '}') && twice) {
      out.push_back(s[i++]);
    } else if (c == '{') {
      const auto end = s.find(U'}', i);
      if (end == text_view::npos) throw template_error{"format: '{' has no end"};
      const auto name = to_utf8(s.substr(i + 1, end - i - 1));
      const bool digits = name.size() < 6 && name.find_first_not_of("0123456789") == std::string::npos;
      const auto index = name.empty() ? next++ : digits ? std::stoul(name) : given.positional.size();
      const auto* v = given.find(index, name);
      if (!v) throw template_error{"format: '{" + name + "}' is not given"};
      out += str(*v);
      in.memory().charge(1 + out.size() / 64);
      i = end;
    } else {
      out.push_back(s[i]);
    }
  }
  return in.memory().keep(std::move(out));
}

constexpr named_function<method_function> method_table[] = {
    {"strip", stripped<true, true>},
    {"lstrip", stripped<true, false>},
    {"rstrip", stripped<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", starts<false>},
    {"endswith", starts<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"title", title},
    {"swapcase", swapcase},
    {"removeprefix", removed<false>},
    {"removesuffix", removed<true>},
    {"isdigit", [](interpreter&, const value& of, const arguments&) { return all_are(of, is_digit); }},
    {"isnumeric", [](interpreter&, const value& of, const arguments&) { return all_are(of, is_digit); }},
    {"isalpha", [](interpreter&, const value& of, const arguments&) { return all_are(of, is_letter); }},
    {"isalnum",
     [](interpreter&, const value& of, const arguments&) {
       return all_are(of, [](char32_t c) { return is_digit(c) || is_letter(c); });
     }},
    {"isspace", [](interpreter&, const value& of, const arguments&) { return all_are(of, is_space); }},
    {"isupper", [](interpreter& in, const value& of,
                   const arguments& given) { return value::of(find_test("upper")(in, of, given)); }},
    {"islower", [](interpreter& in, const value& of,
                   const arguments& given) { return value::of(find_test("lower")(in, of, given)); }},
    {"ljust", padded<-1>},
    {"center", padded<0>},
    {"rjust", padded<1>},
    {"format", format}};

}  // namespace

std::span<const named_function<method_function>> text_methods() noexcept { return method_table; }

}  // namespace mooncaf::jinja
