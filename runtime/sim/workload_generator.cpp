#include "runtime/sim/workload_generator.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>
#include <vector>

#include "runtime/sim/random.hpp"

namespace mooncaf::sim {

namespace {

/// The character of a kind of workload; lengths are medians of lognormal distributions.
struct shape {
  std::uint32_t shared_prompts;  ///< system prompts, tools or documents to choose from
  double shared_tokens, shared_spread;
  bool fresh_shared;                  ///< each session has its own (documents)
  double first_tokens, first_spread;  ///< of a session's first own text
  double turn_tokens, turn_spread;    ///< that each further turn adds
  double output_tokens, output_spread;
  double continues;  ///< chance of a further turn
  double pause_s;    ///< before it, on average
};

shape shape_of(workload_kind kind) {
  switch (kind) {
    case workload_kind::chat:
      return {8, 600, 0.5, false, 4500, 1.3, 1800, 1.2, 280, 0.9, 0.62, 45};
    case workload_kind::agent:
      return {40, 5000, 0.5, false, 900, 1.0, 700, 0.9, 120, 1.0, 0.55, 6};
    case workload_kind::long_doc:
      return {1, 26000, 0.8, true, 120, 0.8, 120, 0.8, 150, 0.7, 0.5, 30};
  }
  return {};
}

/// A conversation between two of its turns.
struct open_session {
  double at = 0;  ///< seconds of its next turn
  std::uint64_t number = 0;
  double tokens = 0;               ///< that the next turn repeats
  std::vector<std::uint64_t> ids;  ///< of full blocks so far

  bool operator<(const open_session& o) const noexcept { return at != o.at ? at > o.at : number > o.number; }
};

class generator final : public trace_source {
 public:
  generator(const workload_options& options, double input_scale, double output_scale)
      : options_(options),
        shape_(shape_of(options.kind)),
        input_scale_(input_scale),
        output_scale_(output_scale),
        random_(options.seed) {
    shared_.resize(shape_.shared_prompts);
    next_start_ = 0;
  }

  result<bool> next(workload_record& out) override {
    if (made_ == options_.requests) return false;
    ++made_;
    while (sessions_.empty() || next_start_ <= sessions_.top().at) start_session();
    auto s = sessions_.top();
    sessions_.pop();
    turn(s, out);
    return true;
  }

 private:
  struct prompt {
    std::vector<std::uint64_t> ids;
    double tokens = 0;
  };

  double length(double median, double spread) {
    return median * input_scale_ * std::exp(spread * random_.normal());
  }

  void start_session() {
    open_session s;
    s.at = next_start_;
    s.number = sessions_made_++;
    const double turns = 1 / (1 - shape_.continues);
    const double gap = turns / options_.rate;
    // A burst: several sessions at the same moment, and longer pauses, for the same rate.
    if (random_.uniform() * (1 + options_.burstiness) < 1) {
      next_start_ += random_.exponential(gap * (1 + options_.burstiness));
    }
    auto& shared = shape_.fresh_shared ? scratch_ : shared_[zipf()];
    if (shape_.fresh_shared || shared.tokens == 0) {
      shared.tokens = length(shape_.shared_tokens, shape_.shared_spread);
      shared.ids.clear();
      extend(shared.ids, shared.tokens);
    }
    s.ids = shared.ids;
    s.tokens = shared.tokens + length(shape_.first_tokens, shape_.first_spread);
    sessions_.push(std::move(s));
  }

  /// Prompts are used with a frequency that falls with their number.
  std::size_t zipf() {
    const double n = shape_.shared_prompts;
    return std::min<std::size_t>(static_cast<std::size_t>(std::pow(n + 1, random_.uniform()) - 1),
                                 shared_.size() - 1);
  }

  void extend(std::vector<std::uint64_t>& ids, double tokens) {
    const auto full = static_cast<std::size_t>(tokens / options_.block_tokens);
    while (ids.size() < full) ids.push_back(next_id_++);
  }

  void turn(open_session& s, workload_record& out) {
    const auto limit = static_cast<double>(options_.input_max);
    out.timestamp_ms = static_cast<std::int64_t>(s.at * 1000);
    out.input_tokens = static_cast<std::uint32_t>(std::clamp(s.tokens, 1.0, limit));
    out.output_tokens = static_cast<std::uint32_t>(
        std::clamp(shape_.output_tokens * output_scale_ * std::exp(shape_.output_spread * random_.normal()),
                   1.0, 8192.0));
    extend(s.ids, out.input_tokens);
    const auto blocks = (std::size_t{out.input_tokens} + options_.block_tokens - 1) / options_.block_tokens;
    out.hash_ids.assign(s.ids.begin(),
                        s.ids.begin() + static_cast<std::ptrdiff_t>(std::min(blocks, s.ids.size())));
    if (out.hash_ids.size() < blocks) out.hash_ids.push_back(next_id_++);
    s.tokens += out.output_tokens + length(shape_.turn_tokens, shape_.turn_spread);
    if (s.tokens > limit || random_.uniform() >= shape_.continues) return;
    s.at += 1 + random_.exponential(shape_.pause_s);
    sessions_.push(std::move(s));
  }

  workload_options options_;
  shape shape_;
  double input_scale_, output_scale_;
  random_source random_;
  std::vector<prompt> shared_;
  prompt scratch_;
  std::priority_queue<open_session> sessions_;
  double next_start_ = 0;
  std::uint64_t made_ = 0, sessions_made_ = 0, next_id_ = 0;
};

struct means {
  double input = 0, output = 0;
};

means sample_means(workload_options options, double input_scale, double output_scale) {
  options.requests = std::min<std::uint64_t>(std::max<std::uint64_t>(options.requests, 1), 20'000);
  generator g{options, input_scale, output_scale};
  means m;
  workload_record r;
  const auto n = static_cast<double>(options.requests);
  while (*g.next(r)) {
    m.input += r.input_tokens / n;
    m.output += r.output_tokens / n;
  }
  return m;
}

}  // namespace

result<std::unique_ptr<trace_source>> generate(const workload_options& options) {
  const auto sensible = [](double v, double least, double most) { return v >= least && v <= most; };
  if (!sensible(options.rate, 1e-6, 1e6))
    return fail(ec::invalid_argument, "rate must be 10^-6 to 10^6 a second");
  if (!sensible(options.burstiness, 0, 1e4))
    return fail(ec::invalid_argument, "burstiness must be 0 to 10^4");
  if (options.input_mean != 0 && !sensible(options.input_mean, 16, options.input_max)) {
    return fail(ec::invalid_argument, "the mean input must be 16 tokens to the longest input");
  }
  if (options.output_mean != 0 && !sensible(options.output_mean, 1, 8192)) {
    return fail(ec::invalid_argument, "the mean output must be 1 to 8192 tokens");
  }
  if (options.block_tokens == 0) return fail(ec::invalid_argument, "blocks have at least one token");
  double input = 1, output = 1;
  for (int round = 0; round < 4 && (options.input_mean > 0 || options.output_mean > 0); ++round) {
    const auto m = sample_means(options, input, output);
    if (options.input_mean > 0) input *= options.input_mean / std::max(m.input, 1.0);
    if (options.output_mean > 0) output *= options.output_mean / std::max(m.output, 1.0);
  }
  return std::make_unique<generator>(options, input, output);
}

std::string to_json_line(const workload_record& r) {
  std::string line = "{\"timestamp\": " + std::to_string(r.timestamp_ms) +
                     ", \"input_length\": " + std::to_string(r.input_tokens) +
                     ", \"output_length\": " + std::to_string(r.output_tokens) + ", \"hash_ids\": [";
  for (std::size_t i = 0; i < r.hash_ids.size(); ++i)
    line += (i == 0 ? "" : ", ") + std::to_string(r.hash_ids[i]);
  line += "]";
  if (r.share.owner != 0) line += ", \"tenant\": " + std::to_string(r.share.owner);
  if (r.share.weight != 1) line += ", \"share\": " + std::to_string(r.share.weight);
  return line + "}";
}

}  // namespace mooncaf::sim
