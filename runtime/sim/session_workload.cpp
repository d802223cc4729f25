#include "runtime/sim/session_workload.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <queue>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "config/toml.hpp"
#include "config/value.hpp"
#include "runtime/sim/random.hpp"

namespace mooncaf::sim {

namespace {

/// A number of a description.
struct field {
  const char* key;
  std::variant<std::uint64_t workload_description::*, std::uint32_t workload_description::*,
               double workload_description::*>
      at;
  double min, max;
};

using description = workload_description;
constexpr field fields[] = {{"requests", &description::requests, 1, 1e9},
                            {"requests_per_s", &description::requests_per_s, 1e-6, 1e6},
                            {"users", &description::users, 0, 1e6},
                            {"turns", &description::turns, 1, 1000},
                            {"think_s", &description::think_s, 0, 1e6},
                            {"system_prompts", &description::system_prompts, 1, 1e6},
                            {"system_tokens", &description::system_tokens, 0, 1e6},
                            {"input_tokens", &description::input_tokens, 1, 1e6},
                            {"input_spread", &description::input_spread, 0, 1e6},
                            {"output_tokens", &description::output_tokens, 1, 1e5},
                            {"output_spread", &description::output_spread, 0, 1e5},
                            {"input_max", &description::input_max, 16, 1e7},
                            {"day_s", &description::day_s, 1, 1e7}};

double value_of(const description& d, const field& f) {
  return std::visit([&](auto at) { return static_cast<double>(d.*at); }, f.at);
}

/// @returns an error text, or nothing.
std::string read_field(description& d, const field& f, const config::toml_entry& e) {
  const auto value = config::parse_real(e.value);
  if (e.type != config::toml_type::number || !value) return "a number expected";
  if (*value < f.min || *value > f.max) {
    return e.value + " is out of range (" + config::format_real(f.min) + " to " + config::format_real(f.max) +
           ")";
  }
  const bool whole = !std::holds_alternative<double description::*>(f.at);
  if (whole && *value != std::floor(*value)) return "a whole number expected";
  std::visit([&](auto at) { d.*at = static_cast<std::remove_reference_t<decltype(d.*at)>>(*value); }, f.at);
  return {};
}

/// @returns an error text, or nothing.
std::string read_daily(description& d, const config::toml_entry& e) {
  constexpr std::size_t most = 1000;
  if (e.type != config::toml_type::string) return "factors in quotes expected, such as \"0.3 0.2 1 0.8\"";
  d.daily.clear();
  std::istringstream in{e.value};
  for (std::string word; in >> word;) {
    const auto factor = config::parse_real(word);
    if (!factor || *factor < 0 || *factor > 1000) return "'" + word + "' is no factor of 0 to 1000";
    d.daily.push_back(*factor);
  }
  if (d.daily.empty()) return {};
  if (d.daily.size() < 2 || d.daily.size() > most) return "2 to 1000 factors expected";
  const double sum = std::accumulate(d.daily.begin(), d.daily.end(), 0.0);
  if (sum < 1e-3 * static_cast<double>(d.daily.size()))
    return "somebody has to come: their mean must be at least 0.001";
  return {};
}

/// When as much of the day's curve, which is straight between its factors, has gone by since `at` as goes by
/// in `usual` seconds at a factor of 1.
double after_daily(const description& d, double at, double usual) {
  const auto n = d.daily.size();
  const double part = d.day_s / static_cast<double>(n);  // from one factor to the next
  const double day = part * std::accumulate(d.daily.begin(), d.daily.end(), 0.0);
  const double days = std::floor(usual / day);
  at += days * d.day_s;
  usual -= days * day;
  const double place = std::fmod(at, d.day_s) / part;
  auto i = std::min(static_cast<std::size_t>(place), n - 1);
  double into = (place - static_cast<double>(i)) * part;
  for (std::size_t parts = 0; parts <= n && usual > 0; ++parts) {
    const double next = d.daily[(i + 1) % n], slope = (next - d.daily[i]) / part;
    const double here = d.daily[i] + slope * into, left = std::max(part - into, 0.0);
    const double area = (here + next) / 2 * left;
    if (usual < area) {
      const double root = std::sqrt(std::max(here * here + 2 * slope * usual, 0.0));
      return at + std::min(2 * usual / (here + root), left);
    }
    usual -= area;
    at += left;
    into = 0;
    i = (i + 1) % n;
  }
  return at;
}

/// Lengths with a mean and a standard deviation.
struct lognormal {
  lognormal(double mean, double deviation)
      : sigma(std::sqrt(std::log1p(deviation * deviation / (mean * mean)))),
        mu(std::log(mean) - sigma * sigma / 2) {}
  double draw(random_source& random) const { return std::exp(mu + sigma * random.normal()); }
  double sigma, mu;
};

/// A conversation between two of its turns.
struct session {
  std::uint64_t number = 0;
  std::uint32_t tokens = 0;  ///< that were said and answered
  std::vector<std::uint64_t> ids;
};

class session_source final : public trace_source {
 public:
  session_source(const description& d, const session_options& o)
      : what_(d),
        options_(o),
        input_(d.input_tokens, d.input_spread),
        output_(d.output_tokens, d.output_spread),
        random_(o.seed) {
    const auto users = static_cast<std::uint64_t>(std::ceil(d.users * o.load));
    // They do not all come at once: the first turns are spread over a pause and an answer.
    for (std::uint64_t i = 0; i < users; ++i) begin_session(random_.uniform() * std::max(d.think_s, 1.0));
    if (d.users == 0) next_start_ = 0;
  }

  bool follows_answers() const override { return options_.token_s == 0; }
  double due_s() const override {
    if (given_ == what_.requests) return never;
    return turns_.empty() ? next_start_ : std::min(turns_.top().at, next_start_);
  }
  std::uint64_t session_given() const override { return latest_; }
  double share_given() const override {
    return static_cast<double>(given_) / static_cast<double>(what_.requests);
  }
  std::uint32_t block_tokens() const override { return options_.block_tokens; }

  result<bool> next(workload_record& out) override {
    const auto at = due_s();
    if (at == never) return false;
    ++given_;
    while (turns_.empty() || next_start_ < turns_.top().at) {
      begin_session(next_start_);
      next_start_ = start_after(next_start_);
    }
    auto s = std::move(const_cast<turn&>(turns_.top()).who);
    turns_.pop();
    give(std::move(s), at, out);
    if (options_.token_s > 0) answered(latest_, at + options_.token_s * out.output_tokens);
    return true;
  }

  void answered(std::uint64_t number, double at_s) override {
    const auto found = answering_.find(number);
    if (found == answering_.end()) return;
    auto s = std::move(found->second);
    answering_.erase(found);
    const bool ends = random_.uniform() * what_.turns < 1 || s.tokens + what_.input_tokens > what_.input_max;
    const double pause = random_.exponential(what_.think_s);
    if (!ends) turns_.push({at_s + pause, std::move(s)});
    else if (what_.users > 0) begin_session(at_s + pause);
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct turn {
    double at = 0;
    session who;
    bool operator<(const turn& o) const noexcept {
      return at != o.at ? at > o.at : who.number > o.who.number;
    }
  };

  /// Conversations begin at random.
  double start_after(double at) {
    const double usual = random_.exponential(what_.turns / (what_.requests_per_s * options_.load));
    return what_.daily.empty() ? at + usual : after_daily(what_, at, usual);
  }

  void begin_session(double at) {
    session s;
    s.number = sessions_++;
    const auto prompt = random_.below(what_.system_prompts);
    // Ids of system prompts lie above all others.
    for (std::uint64_t i = 0; i < what_.system_tokens / options_.block_tokens; ++i)
      s.ids.push_back(std::uint64_t{1} << 52 | prompt << 24 | i);
    s.tokens = what_.system_tokens;
    turns_.push({at, std::move(s)});
  }

  void give(session s, double at, workload_record& out) {
    const auto length = [&](const lognormal& l, double most) {
      return static_cast<std::uint32_t>(std::clamp(std::round(l.draw(random_)), 1.0, std::max(most, 1.0)));
    };
    const auto room = static_cast<double>(what_.input_max) - s.tokens;
    out.timestamp_ms = static_cast<std::int64_t>(at * 1000);
    out.input_tokens = s.tokens + length(input_, room);
    out.output_tokens = length(output_, 1e5);
    while (s.ids.size() < out.input_tokens / options_.block_tokens) s.ids.push_back(next_id_++);
    out.hash_ids = s.ids;
    if (out.input_tokens % options_.block_tokens != 0) out.hash_ids.push_back(next_id_++);
    s.tokens = out.input_tokens + out.output_tokens;
    latest_ = s.number;
    answering_.emplace(latest_, std::move(s));
  }

  description what_;
  session_options options_;
  lognormal input_, output_;
  random_source random_;
  std::priority_queue<turn> turns_;                       // that are due, or will be
  std::unordered_map<std::uint64_t, session> answering_;  // their turn is being answered
  double next_start_ = never;
  std::uint64_t given_ = 0, sessions_ = 0, next_id_ = 0, latest_ = 0;
};

/// Mean and standard deviation.
struct moments {
  double n = 0, sum = 0, squares = 0;
  void add(double v) { n += 1, sum += v, squares += v * v; }
  double mean() const { return n > 0 ? sum / n : 0; }
  double deviation() const { return n > 0 ? std::sqrt(std::max(squares / n - mean() * mean(), 0.0)) : 0; }
};

}  // namespace

result<workload_description> parse_workload(std::string_view text, std::string_view file) {
  const auto entries = config::parse_toml(text, file);
  if (!entries) return fail(entries.error());
  description d;
  for (const auto& e : *entries) {
    const auto bad = [&](const std::string& reason) {
      return fail(ec::invalid_argument,
                  std::string{file} + ":" + std::to_string(e.line) + ": " + e.key + ": " + reason);
    };
    if (e.section == "workload" && e.key == "daily") {
      if (const auto reason = read_daily(d, e); !reason.empty()) return bad(reason);
      continue;
    }
    const auto known = std::ranges::find_if(fields, [&](const field& f) { return e.key == f.key; });
    if (e.section != "workload" || known == std::end(fields)) return bad("no such key in [workload]");
    if (const auto reason = read_field(d, *known, e); !reason.empty()) return bad(reason);
  }
  if (d.system_tokens + d.input_tokens > d.input_max)
    return fail(ec::invalid_argument, std::string{file} + ": input_max is less than a first prompt has");
  if (d.users > 0 && !d.daily.empty())
    return fail(
        ec::invalid_argument,
        std::string{file} + ": daily bends the rate at which conversations begin; with users there is none");
  return d;
}

result<workload_description> load_workload(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return fail(ec::io_error, "cannot read " + path + ": " + std::strerror(errno));
  return parse_workload(text.str(), path);
}

std::string to_toml(const workload_description& d) {
  std::string out = "[workload]\n";
  for (const auto& f : fields) {
    char number[40];
    std::snprintf(number, sizeof number, "%.9g", value_of(d, f));
    out += std::string{f.key} + " = " + number + "\n";
  }
  if (d.daily.empty()) return out;
  out += "daily = \"";
  for (std::size_t i = 0; i < d.daily.size(); ++i)
    out += (i > 0 ? " " : "") + config::format_real(d.daily[i]);
  return out + "\"\n";
}

std::unique_ptr<trace_source> play_sessions(const workload_description& d, const session_options& options) {
  return std::make_unique<session_source>(d, options);
}

namespace {

/// Finds conversations in a trace.
class session_finder {
 public:
  session_finder(const std::vector<workload_record>& records, std::uint32_t block_tokens)
      : records_(records), block_(block_tokens), before_(records.size(), none) {
    std::unordered_map<std::uint64_t, std::size_t>
        ends;  // last full block of a request that nothing follows yet
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t r = 0; r < records.size(); ++r) {
      const auto& ids = records[r].hash_ids;
      for (auto i = full_blocks(r); i-- > 0;) {
        const auto at = ends.find(ids[i]);
        if (at == ends.end() || records[at->second].input_tokens >= records[r].input_tokens) continue;
        before_[r] = at->second;
        ends.erase(at);
        break;
      }
      // Where all of its full blocks were there before, they are others' system prompt, too.
      if (full_blocks(r) > 0 && !seen.contains(ids[full_blocks(r) - 1])) ends[ids[full_blocks(r) - 1]] = r;
      seen.insert(ids.begin(), ids.end());
    }
  }

  static constexpr std::size_t none = ~std::size_t{0};
  /// The turn that request `r` goes on from.
  std::size_t before(std::size_t r) const { return before_[r]; }

  /// Tokens that the first turn shares with another conversation's, per first turn; 0: with none.
  std::unordered_map<std::size_t, std::uint32_t> shared() const {
    std::unordered_map<std::uint64_t, std::uint32_t> users;  // conversations that have a block
    for_first_turns([&](std::size_t r, std::size_t i) { ++users[records_[r].hash_ids[i]]; });
    std::unordered_map<std::size_t, std::uint32_t> out;
    for_first_turns([&](std::size_t r, std::size_t i) {
      auto& blocks = out[r];
      if (blocks == i && users[records_[r].hash_ids[i]] > 1) ++blocks;
    });
    for (auto& [r, blocks] : out) blocks *= block_;
    return out;
  }

 private:
  std::size_t full_blocks(std::size_t r) const {
    return std::min<std::size_t>(records_[r].input_tokens / block_, records_[r].hash_ids.size());
  }
  template <class Visit>
  void for_first_turns(Visit&& visit) const {
    for (std::size_t r = 0; r < records_.size(); ++r) {
      for (std::size_t i = 0; before_[r] == none && i < full_blocks(r); ++i) visit(r, i);
    }
  }

  const std::vector<workload_record>& records_;
  std::uint32_t block_;
  std::vector<std::size_t> before_;
};

}  // namespace

/// A request that begins with an earlier one's prompt is the next turn of it; any other begins a
/// conversation.
workload_fit fit_workload(const std::vector<workload_record>& records, std::uint32_t block_tokens,
                          double token_s) {
  const session_finder sessions{records, std::max(block_tokens, 1u)};
  const auto shared = sessions.shared();
  moments input, output, pause, system;
  std::unordered_map<std::uint64_t, bool> prompts;
  workload_fit fit;
  std::uint32_t longest = 1;
  for (std::size_t r = 0; r < records.size(); ++r) {
    const auto& now = records[r];
    longest = std::max(longest, now.input_tokens);
    output.add(std::max(now.output_tokens, 1u));
    if (const auto b = sessions.before(r); b != session_finder::none) {
      const auto& then = records[b];
      const double said = double(then.input_tokens) + then.output_tokens;
      input.add(std::max(now.input_tokens - said, 1.0));
      pause.add(
          std::max(double(now.timestamp_ms - then.timestamp_ms) * 1e-3 - token_s * then.output_tokens, 0.0));
      continue;
    }
    ++fit.conversations;
    const auto at = shared.find(r);
    const auto common = at == shared.end() ? 0u : at->second;
    input.add(std::max<double>(now.input_tokens - common, 1));
    system.add(common);
    if (common > 0) prompts[now.hash_ids.front()] = true;
  }
  auto& d = fit.description;
  d.requests = records.size();
  const double span = static_cast<double>(records.back().timestamp_ms - records.front().timestamp_ms) * 1e-3;
  d.requests_per_s = span > 0 ? static_cast<double>(records.size()) / span : 1;
  d.turns = static_cast<double>(records.size()) /
            static_cast<double>(std::max<std::uint64_t>(fit.conversations, 1));
  if (pause.n > 0) d.think_s = pause.mean();
  d.system_prompts = std::max<std::uint32_t>(static_cast<std::uint32_t>(prompts.size()), 1);
  d.system_tokens = static_cast<std::uint32_t>(system.mean());
  d.input_tokens = input.mean(), d.input_spread = input.deviation();
  d.output_tokens = output.mean(), d.output_spread = output.deviation();
  const auto first_prompt = d.system_tokens + static_cast<std::uint32_t>(d.input_tokens) + 1;
  d.input_max = std::max(longest, first_prompt);
  for (const auto& f : fields) {
    std::visit(
        [&](auto at) {
          d.*at =
              static_cast<std::remove_reference_t<decltype(d.*at)>>(std::clamp(value_of(d, f), f.min, f.max));
        },
        f.at);
  }
  return fit;
}

}  // namespace mooncaf::sim
