#include "runtime/grammar/regex.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/limits.hpp"

namespace mooncaf {

namespace {

using ranges_t = std::vector<char_range>;

const ranges_t ascii_digits{{'0', '9'}};
const ranges_t word{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const ranges_t blank{{'\t', '\r'}, {' ', ' '}};
const ranges_t beyond_ascii{{0x80, 0x10FFFF}};
/// White space by either standard.
const ranges_t any_blank{{'\t', '\r'},     {0x1C, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                         {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

ranges_t join(ranges_t a, const ranges_t& b) {
  a.insert(a.end(), b.begin(), b.end());
  return normalised(std::move(a));
}

/// A set of characters as the two standards agree on it: `surely` in it, and `maybe` for the rest that one of
/// them counts in.
struct char_set {
  ranges_t surely, maybe;
  char_set opposite() const { return {complement_of(maybe), complement_of(surely)}; }
};

class regex_parser {
 public:
  regex_parser(std::string_view pattern, bool whole, regex_place place)
      : text_(pattern), whole_(whole), place_(place) {}

  result<std::string> run() {
    auto out = alternatives(0);
    if (problem_.empty() && at_ < text_.size()) complain("')' without '('");
    if (!problem_.empty()) return fail(ec::invalid_argument, problem_);
    return out;
  }

 private:
  bool done() const { return at_ >= text_.size() || !problem_.empty(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view w) {
    if (!text_.substr(std::min(at_, text_.size())).starts_with(w)) return false;
    at_ += w.size();
    return true;
  }
  void complain(const std::string& what) {
    if (problem_.empty()) problem_ = "at byte " + std::to_string(at_) + ": " + what;
  }

  std::string alternatives(std::size_t depth) {
    if (depth > grammar_limits::max_nesting) {
      complain("groups are nested deeper than " + std::to_string(grammar_limits::max_nesting));
      return {};
    }
    std::string out = sequence(depth);
    while (problem_.empty() && take("|")) out += " | " + sequence(depth);
    return "(" + out + ")";
  }

  std::string sequence(std::size_t depth) {
    std::string out;
    const bool from_begin = depth == 0 && take("^");
    bool to_end = false;
    while (!done() && peek() != '|' && peek() != ')') {
      if (peek() == '$' && depth == 0 && (at_ + 1 == text_.size() || peek(1) == '|')) {
        ++at_;
        to_end = true;
        break;
      }
      const auto part = element(depth);
      out += " " + part + quantifier();
    }
    if (depth > 0 || whole_) return out.empty() ? "\"\"" : out;
    const auto anything = chars_expression({{0, 0x10FFFF}}, place_) + "*";
    return (from_begin ? "" : anything) + out + (to_end ? (out.empty() ? "\"\"" : "") : " " + anything);
  }

  std::string element(std::size_t depth) {
    const char c = peek();
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return chars_expression(char_class(), place_);
      case '.':
        ++at_;
        return chars_expression(complement_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}), place_);
      case '^':
      case '$':
        complain("anchors are known at the ends of the whole alone");
        return {};
      case '*':
      case '+':
      case '?':
        complain("nothing to repeat");
        return {};
      case '\\':
        return chars_expression(escape(false).surely, place_);
      default: {
        const auto ch = utf8::next(text_, at_);
        return chars_expression({{ch, ch}}, place_);
      }
    }
  }

  std::string group(std::size_t depth) {
    ++at_;
    if (take("?")) {
      if (take("P<") || (peek() == '<' && peek(1) != '=' && peek(1) != '!' && take("<"))) {
        while (!done() && peek() != '>') ++at_;
        if (!take(">")) complain("the name of a group is not closed");
      } else if (!take(":")) {
        complain(peek() == '=' || peek() == '!' || peek() == '<' ? "lookaround is not supported"
                                                                 : "this kind of group is not supported");
      }
    }
    auto inner = alternatives(depth + 1);
    if (!take(")")) complain("')' is missing");
    return inner;
  }

  std::string quantifier() {
    if (done()) return {};
    std::string out;
    if (take("*") || take("+") || take("?")) {
      out = text_.substr(at_ - 1, 1);
    } else if (peek() == '{') {
      const auto end = text_.find('}', at_);
      if (end == std::string_view::npos) return {};
      const auto inner = text_.substr(at_ + 1, end - at_ - 1);
      const auto comma = inner.find(',');
      const auto all_digits = [](std::string_view s) {
        return std::ranges::all_of(s, [](char c) { return c >= '0' && c <= '9'; });
      };
      const auto low = inner.substr(0, comma);
      const auto high = comma == std::string_view::npos ? std::string_view{} : inner.substr(comma + 1);
      if (low.empty() || !all_digits(low) || !all_digits(high)) return {};  // the brace stands for itself
      at_ = end + 1;
      out = "{" + std::string{inner} + "}";
    } else {
      return {};
    }
    take("?");  // lazy repetition has the same texts
    if (peek() == '+' || peek() == '*' || peek() == '?') complain("this repetition is not supported");
    return out;
  }

  std::optional<char32_t> hex(std::size_t digits_wanted) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits_wanted; ++i) {
      const char c = peek(i);
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        complain(std::to_string(digits_wanted) + " hexadecimal digits are expected here");
        return std::nullopt;
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    at_ += digits_wanted;
    return value;
  }

  static char_set one(char32_t c) { return {{{c, c}}, {{c, c}}}; }

  char_set escape(bool in_class) {
    ++at_;
    if (at_ >= text_.size()) {
      complain("a backslash ends the pattern");
      return {};
    }
    if (static_cast<unsigned char>(peek()) >= 0x80) return one(utf8::next(text_, at_));
    const char c = text_[at_++];
    switch (c) {
      case 'd':
        return {ascii_digits, join(ascii_digits, beyond_ascii)};
      case 'D':
        return char_set{ascii_digits, join(ascii_digits, beyond_ascii)}.opposite();
      case 'w':
        return {word, join(word, beyond_ascii)};
      case 'W':
        return char_set{word, join(word, beyond_ascii)}.opposite();
      case 's':
        return {blank, any_blank};
      case 'S':
        return char_set{blank, any_blank}.opposite();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hex(2).value_or(0));
      case 'u':
        return one(hex(4).value_or(0));
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      default:
        break;
    }
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter_or_digit) {
      --at_;
      complain("\\" + std::string{c} + " is not supported");
    }
    return one(static_cast<unsigned char>(c));
  }

  ranges_t char_class() {
    ++at_;
    const bool negated = take("^");
    char_set all;
    bool first = true;
    while (problem_.empty() && (first || peek() != ']')) {
      if (at_ >= text_.size()) {
        complain("a class is not closed");
        break;
      }
      if (first && peek() == ']') {
        complain("an empty class, or one that begins with ']', is not supported");
        break;
      }
      first = false;
      auto part = class_part();
      all.surely = join(std::move(all.surely), part.surely);
      all.maybe = join(std::move(all.maybe), part.maybe);
    }
    ++at_;
    return negated ? all.opposite().surely : all.surely;
  }

  char_set class_part() {
    const auto single = [](const char_set& s) {
      return s.surely.size() == 1 && s.surely == s.maybe && s.surely[0].first == s.surely[0].second;
    };
    const auto low = class_atom();
    if (peek() != '-' || peek(1) == ']' || !single(low) || !problem_.empty()) return low;
    ++at_;
    const auto high = class_atom();
    if (!single(high) || high.surely[0].first < low.surely[0].first) {
      complain("this range of a class is none");
      return low;
    }
    const ranges_t between{{low.surely[0].first, high.surely[0].first}};
    return {between, between};
  }

  char_set class_atom() {
    if (peek() == '\\') return escape(true);
    if (at_ >= text_.size()) {
      complain("a class is not closed");
      return {};
    }
    return one(utf8::next(text_, at_));
  }

  const std::string_view text_;
  const bool whole_;
  const regex_place place_;
  std::size_t at_ = 0;
  std::string problem_;
};

bool contains(const ranges_t& ranges, char32_t c) {
  return std::ranges::any_of(ranges, [c](const auto& r) { return r.first <= c && c <= r.second; });
}

}  // namespace

std::string chars_expression(const std::vector<char_range>& ranges, regex_place place) {
  const auto all = normalised(ranges);
  if (place == regex_place::plain) return gbnf_class(all);
  // Characters that stand in a JSON string as they are, then the ones that need a backslash.
  const ranges_t escaped{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  auto rest = complement_of(all);
  rest.insert(rest.end(), escaped.begin(), escaped.end());
  const auto direct = complement_of(normalised(std::move(rest)));
  std::string shorthand;
  for (const auto& [c, letter] : {std::pair<char32_t, char>{'"', '"'},
                                  {'\\', '\\'},
                                  {'\b', 'b'},
                                  {'\f', 'f'},
                                  {'\n', 'n'},
                                  {'\r', 'r'},
                                  {'\t', 't'}}) {
    if (contains(all, c)) shorthand += letter == '\\' ? std::string{"\\\\"} : std::string{letter};
  }
  if (shorthand.empty()) return gbnf_class(direct);
  std::string out = "(\"\\\\\" [" + shorthand + "]";
  if (!direct.empty()) out += " | " + gbnf_class(direct);
  return out + ")";
}

result<std::string> regex_expression(std::string_view pattern, bool whole, regex_place place) {
  if (pattern.size() > grammar_limits::max_source_bytes) {
    return fail(ec::invalid_argument,
                "the pattern has more than " + std::to_string(grammar_limits::max_source_bytes) + " bytes");
  }
  if (!utf8::is_well_formed(pattern)) return fail(ec::invalid_argument, "the pattern is not UTF-8");
  return regex_parser{pattern, whole, place}.run();
}

result<std::string> grammar_of_regex(std::string_view pattern) {
  auto expression = regex_expression(pattern, true, regex_place::plain);
  if (!expression) return expression;
  return "root ::= " + *expression + "\n";
}

}  // namespace mooncaf
