#include "tests/campaign/steady_cluster.hpp"

#include "tests/campaign/machine.hpp"

namespace mooncaf::campaign {

namespace {

constexpr duration answer_limit = 1h;  ///< to the end of the last answer

/// Counts how answers end.
struct end_counter final : token_sink {
  explicit end_counter(steady_outcome& to) : out(to) {}
  void prompt(std::span<const std::int32_t>, std::span<const sampled_token>) override {}
  bool token(const sampled_token&) override { return true; }
  void finished(finish_reason, const generation_report&) override { ++out.finished; }
  void failed(const error&, std::chrono::seconds) override { ++out.failed; }
  steady_outcome& out;
};

class steady_run {
 public:
  explicit steady_run(const steady_cluster& what) : w_(1) {
    w_.luck.hold_still();
    w_.core = what.core;
    w_.queue = what.queue;
    w_.layout = {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .block_tokens = block_tokens};
    w_.root = hash_text128("steady");
    w_.journal = [this](std::string_view bytes, bool) {
      out_.journal += bytes;
      return journal::written::whole;
    };
  }

  steady_outcome run(const steady_cluster& what, std::span<const steady_request> requests) {
    auto pace = std::make_shared<steady_pace>(what.pace);
    for (const auto& r : requests) pace->answers.push_back(r.answer);
    w_.steady = std::move(pace);
    start({.conductor = true, .gateway = true});
    for (std::size_t i = 0; i < what.prefill; ++i) start({.prefill = true, .slots = what.slots});
    for (std::size_t i = 0; i < what.decode; ++i) start({.decode = true, .slots = what.slots});
    for (std::size_t i = 0; i < requests.size(); ++i)
      w_.time.at(requests[i].when, [this, &r = requests[i], i] { submit(r, i); });
    const auto end = (requests.empty() ? steady_begin : requests.back().when) + answer_limit;
    while (out_.finished + out_.failed < requests.size() && w_.time.now() < end)
      w_.time.run_until(w_.time.now() + 1s);
    w_.machines.front()->conductor->core.close();
    return std::move(out_);
  }

 private:
  void start(const roles& as) {
    const auto p = w_.net.start();
    w_.machines.push_back(std::make_unique<machine>(w_, p, as, nullptr));
    w_.machines.back()->start();
  }

  void submit(const steady_request& r, std::uint64_t number) {
    generation g;
    g.prompt = r.prompt;
    g.sampling.max_tokens = r.max_tokens;
    g.sampling.seed = number;
    g.priority = r.priority;
    g.share = r.share;
    g.sink = std::make_shared<end_counter>(out_);
    auto request = std::make_shared<client_request>();
    request->arrived = w_.time.now();
    request->generations.push_back(std::move(g));
    auto& gateway = *w_.machines.front()->gateway;
    gateway.core.submit(request, w_.time.now());
    gateway.act();
  }

  world w_;
  steady_outcome out_;
};

}  // namespace

steady_outcome serve(const steady_cluster& what, std::span<const steady_request> requests) {
  return steady_run{what}.run(what, requests);
}

}  // namespace mooncaf::campaign
