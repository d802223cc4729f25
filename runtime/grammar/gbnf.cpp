#include "runtime/grammar/gbnf.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <unordered_map>

#include "runtime/base/utf8.hpp"
#include "runtime/grammar/limits.hpp"

namespace mooncaf {

namespace {

constexpr char32_t unicode_last = 0x10FFFF;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// One pass over the text. After a complaint nothing that it returns counts.
class parser {
 public:
  explicit parser(std::string_view text) : text_(text) {}

  result<gbnf_grammar> run() {
    while (true) {
      skip_space(true);
      if (done() || failed()) break;
      read_rule();
    }
    if (!failed()) check_rules();
    if (failed()) return fail(ec::invalid_argument, problem_);
    return std::move(out_);
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  bool failed() const { return !problem_.empty(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  void complain(const std::string& what) {
    if (failed()) return;
    const auto before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1;
    const auto begin = before.rfind('\n');
    const auto column = before.size() - (begin == std::string_view::npos ? 0 : begin + 1) + 1;
    problem_ = "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + what;
    at_ = text_.size();
  }

  /// Blanks and comments; line ends only where a rule may go on behind them.
  void skip_space(bool over_lines) {
    while (!done()) {
      const char c = peek();
      if (c == '#') {
        while (!done() && peek() != '\n') ++at_;
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool take(std::string_view word) {
    if (!text_.substr(std::min(at_, text_.size())).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  std::string_view name() {
    const auto begin = at_;
    while (!done() && is_name(peek())) ++at_;
    if (at_ == begin) complain("a rule's name is expected here");
    return text_.substr(begin, at_ - begin);
  }

  std::uint32_t rule_index(std::string_view name) {
    const auto [i, fresh] =
        rules_.try_emplace(std::string{name}, static_cast<std::uint32_t>(out_.rules.size()));
    if (fresh) {
      if (out_.rules.size() >= grammar_limits::max_rules)
        complain("more than " + std::to_string(grammar_limits::max_rules) + " rules");
      out_.rules.push_back({std::string{name}, 0});
      defined_.push_back(false);
    }
    return i->second;
  }

  std::uint32_t add(gbnf_node node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(out_.nodes.size() - 1);
  }

  void read_rule() {
    const auto called = name();
    if (failed()) return;
    skip_space(false);
    if (!take("::=")) return complain("'::=' is expected behind a rule's name");
    const auto index = rule_index(called);
    if (defined_[index]) return complain("rule '" + std::string{called} + "' is given twice");
    defined_[index] = true;
    skip_space(true);
    const auto body = alternatives(0);
    if (failed()) return;
    out_.rules[index].body = body;
    skip_space(false);
    if (!done() && peek() != '\n' && peek() != '\r') complain("the line is not part of the rule");
  }

  std::uint32_t alternatives(std::size_t depth) {
    if (depth > grammar_limits::max_nesting) {
      complain("groups are nested deeper than " + std::to_string(grammar_limits::max_nesting));
      return 0;
    }
    std::vector<std::uint32_t> all{sequence(depth)};
    while (!failed()) {
      skip_space(depth > 0);
      if (!take("|")) break;
      skip_space(true);
      all.push_back(sequence(depth));
    }
    if (all.size() == 1) return all.front();
    gbnf_node node;
    node.what = gbnf_node::kind::alternatives;
    node.children = std::move(all);
    return add(std::move(node));
  }

  std::uint32_t sequence(std::size_t depth) {
    gbnf_node node;
    while (!failed()) {
      skip_space(depth > 0);
      const auto part = element(depth);
      if (!part) break;
      node.children.push_back(repetitions(*part));
    }
    return node.children.size() == 1 ? node.children.front() : add(std::move(node));
  }

  std::optional<std::uint32_t> element(std::size_t depth) {
    const char c = peek();
    if (done() || c == '|' || c == ')' || c == '\n' || c == '\r') return std::nullopt;
    if (c == '"') return literal();
    if (c == '[') return char_class();
    if (take(".")) return chars({{0, unicode_last}});
    if (take("(")) {
      skip_space(true);
      const auto inner = alternatives(depth + 1);
      skip_space(true);
      if (!take(")")) complain("')' is missing");
      return inner;
    }
    if (is_name(c)) {
      gbnf_node node;
      node.what = gbnf_node::kind::rule;
      node.rule = rule_index(name());
      return add(std::move(node));
    }
    complain("'" + std::string{text_.substr(at_, 1)} + "' begins nothing that is known");
    return std::nullopt;
  }

  std::uint32_t chars(std::vector<char_range> ranges) {
    gbnf_node node;
    node.what = gbnf_node::kind::chars;
    node.ranges = normalised(std::move(ranges));
    return add(std::move(node));
  }

  std::uint32_t literal() {
    ++at_;
    gbnf_node node;
    while (!failed() && peek() != '"') {
      if (done() || peek() == '\n') {
        complain("a literal is not closed");
        break;
      }
      const auto c = character();
      node.children.push_back(chars({{c, c}}));
    }
    ++at_;
    return add(std::move(node));
  }

  std::uint32_t char_class() {
    ++at_;
    const bool negated = take("^");
    std::vector<char_range> ranges;
    while (!failed() && peek() != ']') {
      if (done() || peek() == '\n') {
        complain("a class is not closed");
        break;
      }
      const auto low = character();
      auto high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = character();
      }
      if (high < low) complain("a range of a class ends before it begins");
      ranges.emplace_back(low, high);
    }
    ++at_;
    ranges = normalised(std::move(ranges));
    return chars(negated ? complement_of(ranges) : std::move(ranges));
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        complain(std::to_string(digits) + " hexadecimal digits are expected here");
        return 0;
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > unicode_last || (value >= 0xD800 && value <= 0xDFFF)) complain("this is no character");
    return value;
  }

  char32_t character() {
    if (peek() != '\\') return utf8::next(text_, at_);
    ++at_;
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<unsigned char>(c);
      default:
        --at_;
        complain("this escape is not known");
        return 0;
    }
  }

  std::uint32_t repetitions(std::uint32_t node) {
    for (int count = 0; !failed(); ++count) {
      if (count > 4) complain("more than 4 repetitions of one thing");
      if (take("?")) {
        node = repeat(node, 0, 1);
      } else if (take("*")) {
        node = repeat(node, 0, unbounded);
      } else if (take("+")) {
        node = repeat(node, 1, unbounded);
      } else if (peek() == '{') {
        node = counted(node);
      } else {
        break;
      }
    }
    return node;
  }

  std::uint32_t counted(std::uint32_t node) {
    ++at_;
    skip_space(false);
    const auto least = number();
    auto most = least;
    skip_space(false);
    if (take(",")) {
      skip_space(false);
      most = peek() == '}' ? unbounded : number();
      skip_space(false);
    }
    if (!take("}")) complain("'}' is missing");
    if (most < least) complain("a repetition's most is less than its least");
    return repeat(node, least, most);
  }

  std::uint32_t number() {
    std::uint32_t value = 0;
    const auto begin = at_;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + static_cast<std::uint32_t>(peek() - '0');
      if (value > grammar_limits::max_repeat) {
        complain("repetitions of more than " + std::to_string(grammar_limits::max_repeat));
        return 0;
      }
    }
    if (at_ == begin) complain("a number is expected here");
    return value;
  }

  std::uint32_t repeat(std::uint32_t inner, std::uint32_t least, std::uint32_t most) {
    gbnf_node node;
    node.what = gbnf_node::kind::repeat;
    node.children = {inner};
    node.least = least;
    node.most = most;
    return add(std::move(node));
  }

  void check_rules() {
    const auto around = rules_.find(std::string{gbnf_outer_root});
    const auto root = around != rules_.end() ? around : rules_.find("root");
    if (root == rules_.end() || !defined_[root->second]) {
      problem_ = "there is no rule 'root'";
      return;
    }
    out_.root = root->second;
    const auto missing = std::ranges::find(defined_, false);
    if (missing != defined_.end()) {
      const auto& name = out_.rules[static_cast<std::size_t>(missing - defined_.begin())].name;
      problem_ = "rule '" + name.substr(0, 100) + "' is used and not given";
    }
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string problem_;
  gbnf_grammar out_;
  std::unordered_map<std::string, std::uint32_t> rules_;
  std::vector<bool> defined_;
};

std::string escaped(char32_t c, bool in_class) {
  if (c == '"' && !in_class) return "\\\"";
  if (c == '\\') return "\\\\";
  if (in_class && (c == '[' || c == ']' || c == '-' || c == '^'))
    return std::string{"\\"} + static_cast<char>(c);
  if (c == '\n') return "\\n";
  if (c >= 0x20 && c < 0x7F) return {static_cast<char>(c)};
  char hex[12];
  std::snprintf(hex, sizeof hex,
                c <= 0xFF     ? "\\x%02X"
                : c <= 0xFFFF ? "\\u%04X"
                              : "\\U%08X",
                static_cast<unsigned>(c));
  return hex;
}

}  // namespace

std::vector<char_range> normalised(std::vector<char_range> ranges) {
  std::vector<char_range> cut;
  for (const auto& [low, high] : ranges) {
    // Surrogates are no characters, so a range is cut around them.
    if (low < 0xD800) cut.emplace_back(low, std::min<char32_t>(high, 0xD7FF));
    if (high > 0xDFFF && low <= unicode_last)
      cut.emplace_back(std::max<char32_t>(low, 0xE000), std::min(high, unicode_last));
  }
  std::ranges::sort(cut);
  std::vector<char_range> out;
  for (const auto& r : cut) {
    if (!out.empty() && r.first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, r.second);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

std::vector<char_range> complement_of(const std::vector<char_range>& ranges) {
  std::vector<char_range> out;
  char32_t from = 0;
  for (const auto& [low, high] : ranges) {
    if (low > from) out.emplace_back(from, low - 1);
    from = high + 1;
  }
  if (from <= unicode_last) out.emplace_back(from, unicode_last);
  return normalised(std::move(out));
}

result<gbnf_grammar> parse_gbnf(std::string_view text) {
  if (text.size() > grammar_limits::max_text_bytes) {
    return fail(ec::invalid_argument, "the grammar has " + std::to_string(text.size()) + " bytes, at most " +
                                          std::to_string(grammar_limits::max_text_bytes) + " are allowed");
  }
  if (!utf8::is_well_formed(text)) return fail(ec::invalid_argument, "the grammar is not UTF-8");
  return parser{text}.run();
}

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) out += escaped(utf8::next(text, at), false);
  return out + "\"";
}

std::string gbnf_class(const std::vector<char_range>& ranges) {
  std::string out = "[";
  for (const auto& [low, high] : ranges) {
    out += escaped(low, true);
    if (high != low) out += "-" + escaped(high, true);
  }
  return out + "]";
}

}  // namespace mooncaf
