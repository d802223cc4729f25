#include "actors/engines/engine_probe.hpp"

#include <algorithm>
#include <future>
#include <memory>
#include <random>
#include <thread>

#include "runtime/log/log.hpp"

namespace mooncaf {

namespace {

constexpr auto answer_limit = std::chrono::seconds(10);
constexpr auto look_interval = std::chrono::milliseconds(200);
constexpr auto told_every = std::chrono::seconds(5);
/// Steps that a decode sample is the mean of.
constexpr std::uint32_t steps = 8;

/// When an answer's tokens came.
struct timed_answer {
  time_point first{}, last{};
  std::uint32_t tokens = 0;
  result<void> outcome{};
};

/// Questions with new prompts.
class timed_calls {
 public:
  timed_calls(engine_client& engine, const completion_terms& terms, std::uint32_t vocabulary)
      : engine_(engine), terms_(terms), ids_(0, static_cast<std::int32_t>(std::max(vocabulary, 2u)) - 1) {}

  std::vector<std::int32_t> prompt(std::size_t tokens) {
    std::vector<std::int32_t> out(tokens);
    for (auto& id : out) id = ids_(random_);
    return out;
  }

  /// Asks for `tokens` tokens behind each prompt, all at once.
  std::vector<timed_answer> ask(const std::vector<std::vector<std::int32_t>>& prompts, std::uint32_t tokens) {
    std::vector<std::future<timed_answer>> coming;
    for (const auto& prompt : prompts) coming.push_back(begin(prompt, tokens));
    std::vector<timed_answer> out;
    for (auto& answer : coming) out.push_back(answer.get());
    return out;
  }

 private:
  std::future<timed_answer> begin(const std::vector<std::int32_t>& prompt, std::uint32_t tokens) {
    struct under_way {
      timed_answer answer;
      std::promise<timed_answer> promise;
    };
    const auto call = std::make_shared<under_way>();
    work_order order;
    order.tokens = prompt;
    order.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    order.root = terms_.root;
    order.sampling.temperature = 0;
    order.sampling.max_tokens = tokens;
    order.sampling.ignore_eos = true;
    auto future = call->promise.get_future();
    const auto body = completion_body(order, terms_);
    if (!body) {
      call->answer.outcome = fail(body.error());
      call->promise.set_value(call->answer);
      return future;
    }
    engine_.complete(++calls_, terms_.make, *body,
                     {[call](const completion_piece& piece) {
                        if (piece.tokens.empty()) return;
                        call->answer.last = clock_type::now();
                        if (call->answer.tokens == 0) call->answer.first = call->answer.last;
                        call->answer.tokens += static_cast<std::uint32_t>(piece.tokens.size());
                      },
                      [call](const error& why, bool) {
                        if (why.code != ec::none) call->answer.outcome = fail(why);
                        else if (call->answer.tokens == 0)
                          call->answer.outcome =
                              fail(ec::unsupported,
                                   "the engine's answers have no token ids, as vLLM's and SGLang's have");
                        call->promise.set_value(call->answer);
                      }});
    return future;
  }

  engine_client& engine_;
  const completion_terms& terms_;
  std::mt19937 random_{std::random_device{}()};
  std::uniform_int_distribution<std::int32_t> ids_;
  std::uint64_t calls_ = 0;
};

/// Shapes of passes that fit the engine: (new, cached tokens).
std::vector<pass_shape> prompts_that_fit(std::uint32_t longest) {
  std::vector<pass_shape> out;
  for (const auto& shape : {pass_shape{32, 0}, {128, 0}, {512, 0}, {64, 1024}, {2048, 0}})
    if (shape[0] + shape[1] + 1 <= longest) out.push_back(shape);
  return out;
}

}  // namespace

result<engine_facts> meet_engine(engine_client& engine, const std::string& model) {
  auto told = clock_type::now() - told_every;
  for (;;) {
    const auto health = engine.get("/health", answer_limit);
    if (health) break;
    if (health.error().code == ec::invalid_argument) return fail(health.error());
    if (clock_type::now() - told >= told_every) {
      log_info("engine", {{"waiting for", to_string(engine.at())}, {"reason", health.error().detail}});
      told = clock_type::now();
    }
    std::this_thread::sleep_for(look_interval);
  }
  const auto models = engine.get("/v1/models", answer_limit);
  if (!models) return fail(models.error());
  auto facts = read_models(*models, model);
  if (!facts) return facts;
  if (const auto metrics = engine.get("/metrics", answer_limit))
    facts->cache_tokens = cache_tokens_in(*metrics);
  return facts;
}

result<std::pair<std::vector<timing_sample>, std::vector<timing_sample>>> time_engine(
    engine_client& engine, const completion_terms& terms, const engine_limits& limits) {
  timed_calls calls{engine, terms, limits.vocabulary};
  const auto longest =
      terms.context_tokens == 0 ? limits.budget_tokens : std::min(terms.context_tokens, limits.budget_tokens);
  const auto shapes = prompts_that_fit(longest);
  // The first call of all compiles kernels in some engines.
  for (const auto& warm : calls.ask({calls.prompt(16)}, 4))
    if (!warm.outcome) return fail(warm.outcome.error());
  const auto prefill = best_of_rounds(
      shapes,
      [&](std::size_t n) -> result<duration> {
        auto prompt = calls.prompt(static_cast<std::size_t>(shapes[n][1]));
        if (!prompt.empty())
          for (const auto& before : calls.ask({prompt}, 1))
            if (!before.outcome) return fail(before.outcome.error());
        const auto fresh = calls.prompt(static_cast<std::size_t>(shapes[n][0]));
        prompt.insert(prompt.end(), fresh.begin(), fresh.end());
        const auto asked = clock_type::now();
        const auto answers = calls.ask({prompt}, 1);
        if (!answers.front().outcome) return fail(answers.front().outcome.error());
        return answers.front().first - asked;
      },
      [] { return clock_type::now(); });
  if (!prefill) return fail(prefill.error());
  // (answers at once, tokens of context of all of them)
  std::vector<pass_shape> batches;
  for (const auto& [batch, context] : {std::pair{1, 64}, {1, 1024}, {4, 64}, {8, 64}})
    if (static_cast<std::uint32_t>(batch) <= limits.max_batch &&
        context + static_cast<std::int64_t>(steps) + 1 <= longest)
      batches.push_back({batch, batch * (context + static_cast<std::int64_t>(steps) / 2)});
  const auto decode = best_of_rounds(
      batches,
      [&](std::size_t n) -> result<duration> {
        const auto context = batches[n][1] / batches[n][0] - steps / 2;
        std::vector<std::vector<std::int32_t>> prompts;
        for (std::int64_t i = 0; i < batches[n][0]; ++i)
          prompts.push_back(calls.prompt(static_cast<std::size_t>(context)));
        duration slowest{};
        for (const auto& answer : calls.ask(prompts, steps + 1)) {
          if (!answer.outcome) return fail(answer.outcome.error());
          if (answer.tokens > 1)
            slowest = std::max(slowest, (answer.last - answer.first) / (answer.tokens - 1));
        }
        return slowest;
      },
      [] { return clock_type::now(); });
  if (!decode) return fail(decode.error());
  return std::pair{*prefill, *decode};
}

}  // namespace mooncaf
