#include "config/toml.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "runtime/base/utf8.hpp"

namespace mooncaf::config {

namespace {

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/// One line; every step takes from its front. A failed step leaves a reason in `problem`.
class line_reader {
 public:
  explicit line_reader(std::string_view line) : rest_(line) {}

  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool at_end() {
    skip_space();
    return rest_.empty() || rest_.front() == '#';
  }
  bool take(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_name(std::string& out) {
    skip_space();
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_key_char);
    out.assign(rest_.begin(), end);
    rest_.remove_prefix(out.size());
    return !out.empty() || because("a name of letters, digits, _ and - is expected here");
  }
  bool take_value(toml_entry& entry) {
    skip_space();
    if (rest_.starts_with("\"\"\"") || rest_.starts_with("'''"))
      return because("multi-line strings are not supported");
    if (rest_.starts_with('[')) return because("arrays are not supported; lists are strings with commas");
    if (rest_.starts_with('{')) return because("inline tables are not supported");
    if (rest_.starts_with('\'')) return take_literal(entry.value);
    if (rest_.starts_with('"')) return take_string(entry.value);
    return take_bare(entry);
  }

  std::string problem;

 private:
  bool because(std::string why) {
    problem = std::move(why);
    return false;
  }
  bool take_literal(std::string& out) {
    const std::size_t end = rest_.find('\'', 1);
    if (end == std::string_view::npos) return because("the string has no closing quote");
    out = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool take_string(std::string& out) {
    rest_.remove_prefix(1);
    while (!rest_.empty() && rest_.front() != '"') {
      if (rest_.front() == '\\') {
        if (!take_escape(out)) return false;
        continue;
      }
      out += rest_.front();
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) return because("the string has no closing quote");
    rest_.remove_prefix(1);
    return true;
  }
  bool take_escape(std::string& out) {
    const char kind = rest_.size() > 1 ? rest_[1] : '\0';
    if (kind == 'u' || kind == 'U') {
      const std::size_t digits = kind == 'u' ? 4 : 8;
      const std::string_view hex = rest_.substr(2, digits);
      std::uint32_t c = 0;
      const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), c, 16);
      if (hex.size() != digits || read.ptr != hex.data() + digits || c > 0x10FFFF ||
          (c >= 0xD800 && c < 0xE000))
        return because("the \\u escape is not a character");
      utf8::append(out, c);
      rest_.remove_prefix(2 + digits);
      return true;
    }
    constexpr std::string_view names = "btnfr\"\\", values = "\b\t\n\f\r\"\\";
    const std::size_t at = names.find(kind);
    if (at == std::string_view::npos)
      return because("unknown escape in the string; write \\\\ for a backslash");
    out += values[at];
    rest_.remove_prefix(2);
    return true;
  }
  bool take_bare(toml_entry& entry) {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t#"));
    if (word.empty()) return because("the value is missing");
    rest_.remove_prefix(word.size());
    entry.value = word;
    if (word == "true" || word == "false") {
      entry.type = toml_type::boolean;
      return true;
    }
    entry.type = toml_type::number;
    std::erase(entry.value, '_');
    if (entry.value.starts_with('+')) entry.value.erase(0, 1);
    double ignored = 0;
    const char* end = entry.value.data() + entry.value.size();
    const auto read = std::from_chars(entry.value.data(), end, ignored);
    if (read.ec == std::errc{} && read.ptr == end) return true;
    return because("\"" + std::string{word} + "\" is no number, true or false; put text in quotes");
  }

  std::string_view rest_;
};

/// Control characters have no place in a configuration and make error texts unreadable.
bool is_plain(std::string_view line) {
  return std::none_of(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F;
  });
}

class toml_reader {
 public:
  bool read_line(std::string_view text, std::size_t number) {
    line_reader line(text);
    if (!is_plain(text)) return stop("control characters are not allowed");
    if (!utf8::is_well_formed(text)) return stop("the line is not UTF-8");
    if (line.at_end()) return true;
    if (line.take('[')) return read_section(line);
    toml_entry entry{section_, {}, {}, toml_type::string, number};
    if (!line.take_name(entry.key)) return stop(line.problem);
    if (line.take('.')) return stop("dotted keys are not supported; use a [section]");
    if (!line.take('=')) return stop("\"=\" is expected after \"" + entry.key + "\"");
    if (!line.take_value(entry)) return stop(line.problem);
    if (!line.at_end()) return stop("nothing but a comment may follow the value of \"" + entry.key + "\"");
    if (!keys_.insert({section_, entry.key}).second) return stop("\"" + entry.key + "\" is given twice");
    entries.push_back(std::move(entry));
    return true;
  }

  std::vector<toml_entry> entries;
  std::string problem;

 private:
  bool stop(std::string why) {
    problem = std::move(why);
    return false;
  }
  bool read_section(line_reader& line) {
    if (line.take('[')) return stop("arrays of tables are not supported");
    if (!line.take_name(section_)) return stop(line.problem);
    if (line.take('.')) return stop("sections inside sections are not supported");
    if (!line.take(']') || !line.at_end()) return stop("a section is written [name] on a line of its own");
    if (!sections_.insert(section_).second) return stop("section [" + section_ + "] is given twice");
    return true;
  }

  std::string section_;
  std::set<std::string> sections_;
  std::set<std::pair<std::string, std::string>> keys_;
};

}  // namespace

result<std::vector<toml_entry>> parse_toml(std::string_view text, std::string_view name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  toml_reader reader;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!reader.read_line(line, number))
      return fail(ec::invalid_argument,
                  std::string{name} + ":" + std::to_string(number) + ": " + reader.problem);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader.entries);
}

std::string toml_quoted(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace mooncaf::config
