#include "runtime/sim/disturbance.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/value.hpp"

namespace mooncaf::sim {

namespace {

constexpr const char* names[] = {"slow", "link", "restart", "burst", "fail"};

std::vector<std::string> words_of(std::string_view line) {
  std::istringstream in{std::string{line.substr(0, line.find('#'))}};
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

/// Words of a line, taken one after the other.
class line_reader {
 public:
  explicit line_reader(std::vector<std::string> words) : words_(std::move(words)) {}

  /// @returns an error text, or nothing.
  std::string read(disturbance& d) {
    if (auto bad = time(d.at_s, "when it begins"); !bad.empty()) return bad;
    if (auto bad = time(d.for_s, "how long it lasts"); !bad.empty()) return bad;
    if (d.for_s <= 0) return "it must last longer than 0s";
    const auto kind = take();
    const auto at = std::ranges::find(names, kind);
    if (at == std::end(names)) return "'" + kind + "' is none of slow, link, restart, burst, fail";
    d.kind = static_cast<disturbance_kind>(at - std::begin(names));
    if (d.kind == disturbance_kind::restart && next() == "one_by_one") d.one_by_one = !take().empty();
    if (d.kind != disturbance_kind::burst) {
      if (auto bad = whom(d); !bad.empty()) return bad;
    }
    const bool how_much = d.kind != disturbance_kind::restart && d.kind != disturbance_kind::fail;
    if (auto bad = how_much ? factor(d) : d.kind == disturbance_kind::fail ? failures(d) : ""; !bad.empty())
      return bad;
    return at_ == words_.size() ? "" : "'" + next() + "' is one word too many";
  }

 private:
  std::string next() const { return at_ < words_.size() ? words_[at_] : std::string{}; }
  std::string take() {
    auto word = next();
    at_ += at_ < words_.size() ? 1 : 0;
    return word;
  }

  std::string time(double& seconds, const char* what) {
    const auto word = take();
    const auto t = config::parse_duration(word);
    constexpr auto most = std::chrono::hours{250};
    if (!t || t->count() < 0 || *t > most)
      return "'" + word + "' is not a time of at most 250h with its unit: " + what;
    seconds = static_cast<double>(t->count()) * 1e-9;
    return {};
  }

  std::string whom(disturbance& d) {
    const auto role = take();
    const auto named = from_word<worker_role>(role);
    if (!named) return "'" + role + "' is none of prefill, decode, node";
    d.role = *named;
    const auto which = take();
    if (which == "all") {
      d.last = all_of_them;
      return {};
    }
    const auto dash = which.find('-');
    const auto first = config::parse_integer(which.substr(0, dash));
    const auto last = dash == std::string::npos ? first : config::parse_integer(which.substr(dash + 1));
    if (!first || !last || *first > *last || *last > all_of_them)
      return "'" + which + "' is not all, a number, or FROM-TO: which instances";
    d.first = static_cast<std::uint32_t>(*first);
    d.last = static_cast<std::uint32_t>(*last);
    return {};
  }

  /// [mtbf TIME mttr TIME] [unseen TIME]
  std::string failures(disturbance& d) {
    if (next() == "mtbf") {
      take();
      if (auto bad = time(d.mtbf_s, "mean time between failures"); !bad.empty()) return bad;
      if (take() != "mttr") return "mtbf TIME needs mttr TIME behind it: how long they are away on average";
      if (auto bad = time(d.mttr_s, "how long they are away on average"); !bad.empty()) return bad;
      if (d.mtbf_s < 1 || d.mttr_s < 1) return "mtbf and mttr must be at least 1s";
    }
    if (next() != "unseen") return {};
    take();
    return time(d.unseen_s, "how long nobody notices");
  }

  std::string factor(disturbance& d) {
    const auto word = take();
    const auto x = word.starts_with('x') ? config::parse_real(word.substr(1)) : std::nullopt;
    if (!x || *x < 1e-3 || *x > 1000) return "'" + word + "' is not x0.001 to x1000: how much";
    d.factor = *x;
    return {};
  }

  std::vector<std::string> words_;
  std::size_t at_ = 0;
};

std::string shown(double seconds) {
  return config::format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9 + 0.5)});
}

}  // namespace

result<std::vector<disturbance>> parse_disturbances(std::string_view text, std::string_view file) {
  std::vector<disturbance> all;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    auto words = words_of(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (words.empty()) continue;
    disturbance d;
    if (const auto bad = line_reader{std::move(words)}.read(d); !bad.empty())
      return fail(ec::invalid_argument, std::string{file} + ":" + std::to_string(number) + ": " + bad);
    all.push_back(d);
  }
  return all;
}

result<std::vector<disturbance>> load_disturbances(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + path + ": " + std::strerror(errno));
  return parse_disturbances(text.str(), path);
}

std::string to_string(const disturbance& d) {
  auto out = shown(d.at_s) + " " + shown(d.for_s) + " " + names[static_cast<std::size_t>(d.kind)];
  if (d.one_by_one) out += " one_by_one";
  if (d.kind != disturbance_kind::burst) {
    out += " " + std::string{to_string(d.role)} + " ";
    if (d.first == 0 && d.last == all_of_them) out += "all";
    else out += std::to_string(d.first) + (d.last > d.first ? "-" + std::to_string(d.last) : "");
  }
  if (d.mtbf_s > 0) out += " mtbf " + shown(d.mtbf_s) + " mttr " + shown(d.mttr_s);
  if (d.unseen_s > 0) out += " unseen " + shown(d.unseen_s);
  if (d.kind != disturbance_kind::restart && d.kind != disturbance_kind::fail)
    out += " x" + config::format_real(d.factor);
  return out;
}

double with_bursts(const std::vector<disturbance>& all, double at_s) {
  double comes = at_s;
  for (const auto& d : all) {
    if (d.kind != disturbance_kind::burst || comes <= d.at_s) continue;
    // Requests that would come within for_s * factor come within for_s.
    const double within = std::min(comes - d.at_s, d.for_s * d.factor);
    comes -= within - within / d.factor;
  }
  return comes;
}

}  // namespace mooncaf::sim
