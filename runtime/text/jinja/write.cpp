// Values as text: str, repr and JSON, as Python writes them.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/text/jinja/value.hpp"

namespace mooncaf::jinja {

namespace {

constexpr int text_depth_max = 100;
constexpr char hex_digits[] = "0123456789abcdef";

void add(text& out, std::string_view ascii) {
  for (const char c : ascii) out.push_back(static_cast<char32_t>(c));
}

void add_hex(text& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out.push_back(static_cast<char32_t>(hex_digits[(c >> shift) & 15]));
}

text quoted_text(text_view s) {
  const bool has_single = s.find(U'\'') != text_view::npos, has_double = s.find(U'"') != text_view::npos;
  const char32_t quote = has_single && !has_double ? U'"' : U'\'';
  text out(1, quote);
  for (const char32_t marked : s) {
    const char32_t c = bare(marked);
    if (c == quote || c == '\\') {
      out.push_back('\\');
      out.push_back(marked);
    } else if (c == '\n') {
      add(out, "\\n");
    } else if (c == '\r') {
      add(out, "\\r");
    } else if (c == '\t') {
      add(out, "\\t");
    } else if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD) {
      add(out, "\\x");
      add_hex(out, c, 2);
    } else {
      out.push_back(marked);
    }
  }
  out.push_back(quote);
  return out;
}

void write_json_string(text_view s, bool ascii, text& out) {
  out.push_back('"');
  const auto unit = [&](char32_t u) {
    add(out, "\\u");
    add_hex(out, u, 4);
  };
  for (const char32_t marked : s) {
    const char32_t c = bare(marked);
    constexpr std::string_view special = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
    const auto i = c < 0x80 ? special.find(static_cast<char>(c)) : std::string_view::npos;
    if (i != std::string_view::npos) {
      out.push_back('\\' | (marked & foreign));
      out.push_back(static_cast<char32_t>(letters[i]) | (marked & foreign));
    } else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
      unit(c);
    } else if (ascii && c >= 0x10000) {
      unit(0xD800 + ((c - 0x10000) >> 10));
      unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out.push_back(marked);
    }
  }
  out.push_back('"');
}

/// Between the items of a list or map: a new line, or nothing.
void line(const json_style& style, text& out, int depth) {
  if (style.indent < 0) return;
  out.push_back('\n');
  out.append(static_cast<std::size_t>(style.indent) * static_cast<std::size_t>(depth), U' ');
}

void write_map(const map_data& map, const json_style& style, text& out, int depth) {
  auto items = map.items;
  if (style.sort_keys) {
    std::ranges::stable_sort(items, [](const auto& a, const auto& b) { return less(a.first, b.first); });
  }
  out.push_back('{');
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += style.item_separator;
    line(style, out, depth + 1);
    const auto& key = items[i].first;
    if (key.is(kind::string)) {
      write_json(key, style, out, depth + 1);
    } else if (key.is(kind::none) || key.is_number()) {
      text bare_key;
      write_json(key, style, bare_key, depth + 1);
      write_json_string(bare_key, style.ascii, out);
    } else {
      throw template_error{std::string{name_of(key.what)} + " is no key in JSON"};
    }
    out += style.key_separator;
    write_json(items[i].second, style, out, depth + 1);
  }
  if (!items.empty()) line(style, out, depth);
  out.push_back('}');
}

}  // namespace

std::string format_double(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::scientific).ptr;
  const std::string_view shortest{buffer, static_cast<std::size_t>(end - buffer)};
  int exponent = 0;
  // Python's sign, "e+05", is none that from_chars reads.
  const auto digits = shortest.substr(shortest.find('e') + 1);
  std::from_chars(digits.data() + (digits.front() == '+'), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string{shortest};
  char plain[64];
  std::string out{plain, std::to_chars(plain, plain + sizeof plain, v, std::chars_format::fixed).ptr};
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

/// As Python's repr, because templates print lists and dicts, and models were trained on that text.
text repr(const value& v, int depth) {
  if (depth > text_depth_max) throw template_error{"a value is nested too deeply"};
  text out;
  switch (v.what) {
    case kind::undefined:
      return from_utf8("Undefined");
    case kind::none:
      return from_utf8("None");
    case kind::boolean:
      return from_utf8(v.boolean ? "True" : "False");
    case kind::integer:
      return from_utf8(std::to_string(v.integer));
    case kind::number:
      return from_utf8(format_double(v.number));
    case kind::string:
      return quoted_text(*v.string);
    case kind::list:
    case kind::tuple: {
      const bool tuple = v.is(kind::tuple);
      out.push_back(tuple ? '(' : '[');
      for (const auto& item : v.list->items) {
        if (&item != &v.list->items.front()) add(out, ", ");
        out += repr(item, depth + 1);
      }
      if (tuple && v.list->items.size() == 1) out.push_back(',');
      out.push_back(tuple ? ')' : ']');
      return out;
    }
    case kind::map:
      out.push_back('{');
      for (const auto& [key, held] : v.map->items) {
        if (out.size() > 1) add(out, ", ");
        out += repr(key, depth + 1);
        add(out, ": ");
        out += repr(held, depth + 1);
      }
      out.push_back('}');
      return out;
    default:
      return from_utf8("<" + std::string{name_of(v.what)} + ">");
  }
}

text str(const value& v) {
  if (v.is(kind::string)) return *v.string;
  if (v.is(kind::undefined)) return {};
  return repr(v);
}

/// As Python's json.dumps writes it, separators and escapes included: tools reach models in this form.
void write_json(const value& v, const json_style& style, text& out, int depth) {
  if (depth > text_depth_max) throw template_error{"a value is nested too deeply"};
  switch (v.what) {
    case kind::none:
      return add(out, "null");
    case kind::boolean:
      return add(out, v.boolean ? "true" : "false");
    case kind::integer:
      return add(out, std::to_string(v.integer));
    case kind::number:
      if (std::isnan(v.number)) return add(out, "NaN");
      if (std::isinf(v.number)) return add(out, v.number < 0 ? "-Infinity" : "Infinity");
      return add(out, format_double(v.number));
    case kind::string:
      return write_json_string(*v.string, style.ascii, out);
    case kind::list:
    case kind::tuple:
      out.push_back('[');
      for (const auto& item : v.list->items) {
        if (&item != &v.list->items.front()) out += style.item_separator;
        line(style, out, depth + 1);
        write_json(item, style, out, depth + 1);
      }
      if (!v.list->items.empty()) line(style, out, depth);
      out.push_back(']');
      return;
    case kind::map:
      return write_map(*v.map, style, out, depth);
    default:
      throw template_error{std::string{name_of(v.what)} + " cannot be written as JSON"};
  }
}

}  // namespace mooncaf::jinja
