#include "runtime/tools/python_call.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/tools/held_text.hpp"

namespace mooncaf {

namespace {

using json = nlohmann::ordered_json;

constexpr int python_depth_max = 100;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

void put_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

/// Literals, one after the other. Each reader says whether its own kind was there.
class literal_reader {
 public:
  explicit literal_reader(std::string_view text) : text_(text) {}

  bool arguments(json& out) {
    out = json::object();
    while (!at_end()) {
      std::string key;
      if (!name(key) || !mark('=') || !value(out[key], 0)) return false;
      if (!mark(',')) return at_end();
    }
    return true;
  }

 private:
  void skip() {
    while (pos_ < text_.size() && std::string_view{" \t\r\n"}.find(text_[pos_]) != std::string_view::npos)
      ++pos_;
  }
  bool at_end() {
    skip();
    return pos_ == text_.size();
  }
  bool mark(char c) {
    if (at_end() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  bool name(std::string& out) {
    if (at_end() || !is_letter(text_[pos_])) return false;
    while (pos_ < text_.size() && (is_letter(text_[pos_]) || is_digit(text_[pos_]))) out += text_[pos_++];
    return true;
  }

  bool value(json& out, int depth) {
    if (at_end() || depth > python_depth_max) return false;
    const char c = text_[pos_];
    if (c == '"' || c == '\'') return string(out);
    if (c == '[') return list(out, ']', depth);
    if (c == '(') return list(out, ')', depth);
    if (c == '{') return dictionary(out, depth);
    if (is_letter(c)) return constant(out);
    return number(out);
  }

  bool constant(json& out) {
    std::string word;
    name(word);
    if (word == "True" || word == "true") out = true;
    else if (word == "False" || word == "false") out = false;
    else if (word == "None" || word == "null") out = nullptr;
    else return false;
    return true;
  }

  bool number(json& out) {
    const auto begin = pos_;
    while (pos_ < text_.size() && (is_digit(text_[pos_]) || is_letter(text_[pos_]) ||
                                   std::string_view{"+-."}.find(text_[pos_]) != std::string_view::npos))
      ++pos_;
    out = json::parse(text_.substr(begin, pos_ - begin), nullptr, false);
    return out.is_number();
  }

  bool list(json& out, char end, int depth) {
    out = json::array();
    ++pos_;
    while (!mark(end)) {
      json item;
      if (!value(item, depth + 1)) return false;
      out.push_back(std::move(item));
      if (!mark(',')) return mark(end);
    }
    return true;
  }

  bool dictionary(json& out, int depth) {
    out = json::object();
    ++pos_;
    while (!mark('}')) {
      json key, item;
      if (!value(key, depth + 1) || !key.is_string() || !mark(':') || !value(item, depth + 1)) return false;
      out[key.get<std::string>()] = std::move(item);
      if (!mark(',')) return mark('}');
    }
    return true;
  }

  bool string(json& out) {
    const char quote = text_[pos_++];
    std::string said;
    while (pos_ < text_.size() && text_[pos_] != quote) {
      if (text_[pos_] != '\\') said += text_[pos_++];
      else if (!escape(said)) return false;
    }
    if (pos_ == text_.size()) return false;
    ++pos_;
    out = std::move(said);
    return true;
  }

  bool escape(std::string& said) {
    if (++pos_ == text_.size()) return false;
    const char c = text_[pos_++];
    if (c == 'n') said += '\n';
    else if (c == 't') said += '\t';
    else if (c == 'r') said += '\r';
    else if (c == '\\' || c == '\'' || c == '"') said += c;
    else if (c == '\n') return true;  // the line goes on
    else if (c == 'x') return code(said, 2);
    else if (c == 'u') return code(said, 4);
    else if (c == 'U') return code(said, 8);
    else (said += '\\') += c;
    return true;
  }

  bool code(std::string& said, std::size_t digits) {
    std::uint32_t c = 0;
    if (text_.size() - pos_ < digits) return false;
    const auto* end = text_.data() + pos_ + digits;
    if (std::from_chars(text_.data() + pos_, end, c, 16).ptr != end || c > 0x10FFFF) return false;
    pos_ += digits;
    put_utf8(said, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
    return true;
  }

  std::string_view text_;
  std::size_t pos_ = 0;
};

}  // namespace

python_scanner::state python_scanner::take(char c) {
  if (depth_ == 0) {
    if (c == '(' && name_size_ > 0) {
      depth_ = 1;
      return state::open;
    }
    const bool fits = is_letter(c) || (name_size_ > 0 && (is_digit(c) || c == '.' || c == '-'));
    return fits && ++name_size_ < held_text::longest_name ? state::open : state::broken;
  }
  if (quote_ != 0) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == quote_) quote_ = 0;
    return state::open;
  }
  if (c == '"' || c == '\'') quote_ = c;
  if ((c == '(' || c == '[' || c == '{') && ++depth_ > python_depth_max) return state::broken;
  if (c == ')' || c == ']' || c == '}') --depth_;
  return depth_ == 0 ? state::closed : state::open;
}

std::optional<std::string> python_arguments(std::string_view inside) {
  json out;
  if (!literal_reader{inside}.arguments(out)) return std::nullopt;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace mooncaf
