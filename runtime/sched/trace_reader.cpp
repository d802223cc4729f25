#include "runtime/sched/trace_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace mooncaf {

namespace {

constexpr std::size_t longest_line = std::size_t{64} << 20;
constexpr std::uint32_t most_weight = 1'000'000;

/// A cursor over one line. Errors are texts; the caller adds file and line.
class line_parser {
 public:
  line_parser(std::string_view text, const trace_options& options) : rest_(text), options_(options) {}

  /// @returns the reason of a failure, empty on success.
  std::string parse(trace_record& out) {
    if (!take('{')) return "not a JSON object";
    if (!take('}')) {
      do {
        if (auto reason = member(out); !reason.empty()) return reason;
      } while (take(','));
      if (!take('}')) return "',' or '}' expected " + where();
    }
    skip_space();
    if (!rest_.empty()) return "text after the object: " + where();
    return check(out);
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t' || rest_.front() == '\r')) {
      rest_.remove_prefix(1);
    }
  }
  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string where() const {
    return rest_.empty() ? "at the end of the line" : "at '" + std::string{rest_.substr(0, 16)} + "'";
  }

  std::string member(trace_record& out) {
    std::string_view key;
    if (!string(key)) return "a field's name expected " + where();
    if (!take(':')) return "':' expected " + where();
    if (key == "timestamp") return once(0, key, [&] { return timestamp(out.timestamp_ms); });
    if (key == "input_length") return once(1, key, [&] { return length(out.input_tokens, 1); });
    if (key == "output_length") return once(2, key, [&] { return length(out.output_tokens, 0); });
    if (key == "hash_ids") return once(3, key, [&] { return ids(out.hash_ids); });
    if (key == "tenant")
      return once(4, key, [&] { return number(out.share.owner, std::uint64_t{0}, ~std::uint64_t{0}); });
    if (key == "share") return once(5, key, [&] { return number(out.share.weight, 1u, most_weight); });
    return skip_value(0) ? "" : "a value expected " + where();
  }

  template <class Read>
  std::string once(unsigned bit, std::string_view key, Read&& read) {
    const std::string name{key};
    if (seen_ >> bit & 1) return name + " given twice";
    seen_ |= 1u << bit;
    const auto reason = read();
    return reason.empty() ? "" : name + ": " + reason;
  }

  /// A raw string; escapes are skipped over, none of our names has any.
  bool string(std::string_view& out) {
    if (!take('"')) return false;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '\\') {
        ++i;
      } else if (rest_[i] == '"') {
        out = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return true;
      }
    }
    return false;
  }

  /// The characters of a number, none if there is no number.
  std::string_view number_text() {
    skip_space();
    const auto end = std::min(rest_.find_first_not_of("0123456789+-.eE"), rest_.size());
    const auto text = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return text;
  }

  template <class Int>
  static bool whole(std::string_view text, Int& out) {
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
    return code == std::errc{} && end == text.data() + text.size();
  }

  std::string timestamp(std::int64_t& out) {
    constexpr std::int64_t most = 1'000'000'000'000;  // ms: 31 years
    const auto text = number_text();
    if (text.empty()) return "a number expected " + where();
    if (!whole(text, out)) {
      // Some generators write milliseconds with a fraction.
      double value = 0;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
        return "'" + std::string{text} + "' is no number";
      }
      if (std::abs(value) > static_cast<double>(most)) return "'" + std::string{text} + "' is out of range";
      out = static_cast<std::int64_t>(value);
    }
    if (out < 0 || out > most) return "'" + std::string{text} + "' is out of range [0, 10^12] ms";
    return {};
  }

  template <class Int>
  std::string number(Int& out, Int least, Int most) {
    const auto text = number_text();
    if (text.empty()) return "a whole number expected " + where();
    if (!whole(text, out) || out < least || out > most) {
      return "'" + std::string{text} + "' is not in [" + std::to_string(least) + ", " + std::to_string(most) +
             "]";
    }
    return {};
  }
  std::string length(std::uint32_t& out, std::uint32_t least) {
    return number(out, least, options_.max_tokens);
  }

  std::string ids(std::vector<std::uint64_t>& out) {
    if (!take('[')) return "a list expected " + where();
    if (take(']')) return {};
    do {
      const auto text = number_text();
      std::uint64_t id = 0;
      if (!whole(text, id))
        return text.empty() ? "a whole number expected " + where()
                            : "'" + std::string{text} + "' is no whole number from 0 to 2^64 - 1";
      out.push_back(id);
    } while (take(','));
    if (!take(']')) return "',' or ']' expected " + where();
    return {};
  }

  /// Skips a value of a field that we do not know.
  bool skip_value(int depth) {
    skip_space();
    if (rest_.empty() || depth > 32) return false;
    std::string_view text;
    if (rest_.front() == '"') return string(text);
    const char open = rest_.front();
    if (open != '{' && open != '[') {
      const auto end = std::min(rest_.find_first_of(",}] \t\r"), rest_.size());
      text = rest_.substr(0, end);
      rest_.remove_prefix(end);
      double value = 0;
      return text == "true" || text == "false" || text == "null" ||
             std::from_chars(text.data(), text.data() + text.size(), value).ptr == text.data() + text.size();
    }
    const char close = open == '{' ? '}' : ']';
    rest_.remove_prefix(1);
    if (take(close)) return true;
    do {
      if (open == '{' && !(string(text) && take(':'))) return false;
      if (!skip_value(depth + 1)) return false;
    } while (take(','));
    return take(close);
  }

  std::string check(const trace_record& out) const {
    constexpr const char* names[] = {"timestamp", "input_length", "output_length", "hash_ids"};
    for (unsigned bit = 0; bit < 4; ++bit) {
      if ((seen_ >> bit & 1) == 0) return std::string{names[bit]} + " is missing";
    }
    if (auto reason = repeated(out.hash_ids); !reason.empty()) return reason;
    if (options_.block_tokens == 0) return {};
    const auto blocks = (std::uint64_t{out.input_tokens} + options_.block_tokens - 1) / options_.block_tokens;
    if (out.hash_ids.size() == blocks) return {};
    return "hash_ids has " + std::to_string(out.hash_ids.size()) + " entries, " +
           std::to_string(out.input_tokens) + " tokens make " + std::to_string(blocks) + " blocks of " +
           std::to_string(options_.block_tokens);
  }

  /// An id names a prefix, so that a prompt has each but once. Traces number their blocks as they come: ids
  /// nearly always ascend.
  static std::string repeated(const std::vector<std::uint64_t>& ids) {
    if (std::ranges::adjacent_find(ids, std::greater_equal{}) == ids.end()) return {};
    auto sorted = ids;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    return twice == sorted.end() ? "" : "hash_ids: " + std::to_string(*twice) + " stands twice";
  }

  std::string_view rest_;
  const trace_options& options_;
  unsigned seen_ = 0;
};

}  // namespace

trace_reader::trace_reader(trace_options options, std::function<void(trace_record&&)> sink)
    : options_(std::move(options)), sink_(std::move(sink)) {}

result<void> trace_reader::line(std::string_view text) {
  ++line_number_;
  const auto bad = [&](const std::string& reason) {
    return fail(ec::corrupt, options_.name + ":" + std::to_string(line_number_) + ": " + reason);
  };
  if (line_number_ == 1 && text.starts_with("\x1f\x8b")) return bad("compressed with gzip; unpack it first");
  if (line_number_ == 1 && text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  trace_record record;
  record.hash_ids.reserve(64);
  if (const auto reason = line_parser{text, options_}.parse(record); !reason.empty()) return bad(reason);
  if (const auto reason = narrow(record); !reason.empty() && options_.block_tokens == 0) return bad(reason);
  if (options_.require_sorted && record.timestamp_ms < latest_ms_) {
    return bad("timestamp " + std::to_string(record.timestamp_ms) + " is before " +
               std::to_string(latest_ms_) + " of an earlier line");
  }
  latest_ms_ = std::max(latest_ms_, record.timestamp_ms);
  ++records_;
  sink_(std::move(record));
  return {};
}

std::string trace_reader::narrow(const trace_record& r) {
  const std::uint64_t n = r.hash_ids.size(), tokens = r.input_tokens;
  const auto said = [&] {
    return "hash_ids has " + std::to_string(n) + " entries for " + std::to_string(tokens) + " tokens";
  };
  if (n == 0 || n > tokens) return said();
  const auto least = (tokens + n - 1) / n;
  const auto most = n == 1 ? possible_.most : (tokens - 1) / (n - 1);
  if (least > most || least > possible_.most || most < possible_.least) {
    return said() + ", but the lines before have blocks of " + std::to_string(possible_.least) +
           (possible_.most == ~std::uint64_t{0} ? " tokens or more"
                                                : " to " + std::to_string(possible_.most) + " tokens");
  }
  possible_ = {std::max(possible_.least, least), std::min(possible_.most, most)};
  return {};
}

result<void> trace_reader::feed(std::string_view piece) {
  while (!piece.empty()) {
    const auto end = piece.find('\n');
    if (end == std::string_view::npos || !pending_.empty()) pending_ += piece.substr(0, end);
    if (pending_.size() > longest_line) {
      return fail(ec::corrupt,
                  options_.name + ":" + std::to_string(line_number_ + 1) + ": line of more than 64 MiB");
    }
    if (end == std::string_view::npos) return {};
    const auto text = pending_.empty() ? piece.substr(0, end) : std::string_view{pending_};
    if (auto read = line(text); !read) return read;
    pending_.clear();
    piece.remove_prefix(end + 1);
  }
  return {};
}

result<std::size_t> trace_reader::finish() {
  if (!pending_.empty()) {
    if (auto read = line(pending_); !read) return fail(read.error());
    pending_.clear();
  }
  return records_;
}

result<std::size_t> read_trace(std::string_view text, const trace_options& options,
                               const std::function<void(trace_record&&)>& sink) {
  trace_reader reader{options, sink};
  if (auto fed = reader.feed(text); !fed) return fail(fed.error());
  return reader.finish();
}

result<std::vector<trace_record>> read_trace(std::string_view text, const trace_options& options) {
  std::vector<trace_record> all;
  if (auto read = read_trace(text, options, [&](trace_record&& r) { all.push_back(std::move(r)); }); !read) {
    return fail(read.error());
  }
  return all;
}

}  // namespace mooncaf
