#include "runtime/text/jinja/lexer.hpp"

#include <algorithm>

#include "runtime/base/utf8.hpp"
#include "runtime/text/jinja/value.hpp"

namespace mooncaf::jinja {

namespace {

using token_kind = token::kind;

bool is_blank(char c) { return c == ' ' || (c >= 9 && c <= 13); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// Line ends as "\n", without the one at the very end.
std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class lexer {
 public:
  explicit lexer(std::string_view source) : text_(normalised(source)) {}

  std::vector<token> run() {
    while (at_ < text_.size()) read_data();
    add(token_kind::end, {});
    return std::move(out_);
  }

 private:
  [[noreturn]] void complain(const std::string& what) const {
    throw template_error{"line " + std::to_string(line_) + ": " + what};
  }

  void add(token_kind what, std::string said) { out_.push_back({what, std::move(said), line_}); }
  bool here(std::string_view part) const { return std::string_view{text_}.substr(at_).starts_with(part); }

  void advance(std::size_t n) {
    line_ +=
        static_cast<std::uint32_t>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                              text_.begin() + static_cast<std::ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }
  void skip_space() {
    std::size_t n = 0;
    while (at_ + n < text_.size() && is_blank(text_[at_ + n])) ++n;
    advance(n);
  }

  /// Adds the text up to `end` as the sign of the tag there wants it, and stands before the tag.
  void add_data(std::size_t end, char sign, bool line_tag) {
    std::string_view data{text_.data() + at_, end - at_};
    if (sign == '-') {
      while (!data.empty() && is_blank(data.back())) data.remove_suffix(1);
    } else if (sign != '+' && line_tag) {
      const auto newline = data.rfind('\n');
      const auto line = newline == std::string_view::npos ? 0 : newline + 1;
      const bool whole = line > 0 || at_ == 0 || text_[at_ - 1] == '\n';
      if (whole && std::all_of(data.begin() + static_cast<std::ptrdiff_t>(line), data.end(), is_blank))
        data = data.substr(0, line);
    }
    if (!data.empty()) add(token_kind::data, std::string{data});
    advance(end - at_);
  }

  /// Steps over the end of a tag or comment, if it is here: `close`, with its sign and the white space
  /// behind.
  bool leave(std::string_view close, bool takes_line_end) {
    const bool minus = here("-" + std::string{close}),
               plus = takes_line_end && here("+" + std::string{close});
    if (!minus && !plus && !here(close)) return false;
    advance(close.size() + (minus || plus));
    if (minus) skip_space();
    else if (!plus && takes_line_end && here("\n")) advance(1);
    return true;
  }

  void read_data() {
    std::size_t tag = at_;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        add(token_kind::data, text_.substr(at_));
        return advance(text_.size() - at_);
      }
      const char next = text_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    const char opened = text_[tag + 1];
    const char sign =
        tag + 2 < text_.size() && (text_[tag + 2] == '-' || text_[tag + 2] == '+') ? text_[tag + 2] : 0;
    add_data(tag, sign, opened != '{');
    advance(2 + (sign != 0));
    if (opened == '#') return read_comment();
    if (opened == '%' && read_raw()) return;
    add(opened == '%' ? token_kind::block_begin : token_kind::print_begin, {});
    read_tag(opened == '%');
  }

  void read_comment() {
    const auto opened = line_;
    while (at_ < text_.size()) {
      if (leave("#}", true)) return;
      advance(1);
    }
    line_ = opened;
    complain("a comment has no end");
  }

  /// {% raw %} … {% endraw %}, if that begins behind the opening here.
  bool read_raw() {
    const auto start = at_;
    const auto line = line_;
    skip_space();
    const bool named = here("raw") && (advance(3), true);
    if (named) skip_space();
    if (!named || !leave("%}", false)) {
      at_ = start;
      line_ = line;
      return false;
    }
    for (auto tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 2)) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : 0;
      auto word = tag + 2 + (sign == '-' || sign == '+');
      while (word < text_.size() && is_blank(text_[word])) ++word;
      if (!std::string_view{text_}.substr(word).starts_with("endraw")) continue;
      add_data(tag, sign, true);
      advance(word + 6 - tag);
      skip_space();
      if (!leave("%}", true)) complain("{% endraw %} takes nothing");
      return true;
    }
    complain("{% raw %} has no {% endraw %}");
  }

  void read_tag(bool is_block) {
    std::string open;  // brackets
    while (true) {
      skip_space();
      if (at_ >= text_.size()) complain("a tag has no end");
      if (open.empty() && leave(is_block ? "%}" : "}}", is_block))
        return add(is_block ? token_kind::block_end : token_kind::print_end, {});
      const char c = text_[at_];
      if (begins_name(c)) {
        read_name();
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else {
        read_symbol(open);
      }
    }
  }

  void read_name() {
    auto end = at_;
    while (end < text_.size() && (begins_name(text_[end]) || is_digit(text_[end]))) ++end;
    add(token_kind::name, text_.substr(at_, end - at_));
    at_ = end;
  }

  void read_number() {
    auto end = at_;
    std::string said;
    const auto digits = [&] {
      while (end < text_.size() && (is_digit(text_[end]) || (text_[end] == '_' && end > at_))) {
        if (text_[end] != '_') said += text_[end];
        ++end;
      }
    };
    const auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    digits();
    bool whole = true;
    // "x.0.y" is two items, not a number.
    const bool is_item = at_ > 0 && text_[at_ - 1] == '.';
    if (!is_item && end < text_.size() && text_[end] == '.' && digit_at(end + 1)) {
      said += text_[end++];
      digits();
      whole = false;
    }
    if (!is_item && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const bool sign = end + 1 < text_.size() && (text_[end + 1] == '-' || text_[end + 1] == '+');
      if (digit_at(end + 1 + sign)) {
        said += text_.substr(end, 1 + sign);
        end += 1 + sign;
        digits();
        whole = false;
      }
    }
    add(whole ? token_kind::integer : token_kind::number, said);
    at_ = end;
  }

  void read_string(char quote) {
    const auto line = line_;
    std::string said;
    advance(1);
    while (true) {
      if (at_ >= text_.size()) {
        line_ = line;
        complain("a string has no end");
      }
      const char c = text_[at_];
      if (c == quote) break;
      if (c == '\\' && at_ + 1 < text_.size()) {
        read_escape(said);
      } else {
        said += c;
        advance(1);
      }
    }
    advance(1);
    add(token_kind::string, std::move(said));
  }

  /// As in Python's strings.
  void read_escape(std::string& said) {
    const char c = text_[at_ + 1];
    constexpr std::string_view letters = "abfnrtv\\'\"", meant = "\a\b\f\n\r\t\v\\'\"";
    if (const auto i = letters.find(c); i != std::string_view::npos) {
      said += meant[i];
      return advance(2);
    }
    if (c == '\n') return advance(2);
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    std::size_t n = 0;
    char32_t code = 0;
    if (digits > 0) {
      for (; n < digits && at_ + 2 + n < text_.size(); ++n) {
        const char d = text_[at_ + 2 + n];
        const int v = is_digit(d)            ? d - '0'
                      : d >= 'a' && d <= 'f' ? d - 'a' + 10
                      : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                             : -1;
        if (v < 0) break;
        code = code * 16 + static_cast<char32_t>(v);
      }
      const bool character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
      if (n != digits || !character) complain("an escape is no character");
      utf8::append(said, code);
      return advance(2 + n);
    }
    for (; n < 3 && at_ + 1 + n < text_.size() && text_[at_ + 1 + n] >= '0' && text_[at_ + 1 + n] <= '7'; ++n)
      code = code * 8 + static_cast<char32_t>(text_[at_ + 1 + n] - '0');
    if (n > 0) {
      utf8::append(said, code);
      return advance(1 + n);
    }
    said += '\\';
    advance(1);
  }

  void read_symbol(std::string& open) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!here(two)) continue;
      add(token_kind::symbol, std::string{two});
      return advance(2);
    }
    const char c = text_[at_];
    if (std::string_view{"+-/*%~[](){}><=.:|,;"}.find(c) == std::string_view::npos)
      complain(std::string{"'"} + c + "' is not understood");
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) complain(std::string{"'"} + c + "' closes nothing");
      open.pop_back();
    }
    add(token_kind::symbol, std::string(1, c));
    advance(1);
  }

  const std::string text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  std::vector<token> out_;
};

}  // namespace

std::vector<token> lex(std::string_view source) { return lexer{source}.run(); }

}  // namespace mooncaf::jinja
