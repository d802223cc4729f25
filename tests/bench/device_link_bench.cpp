// What overlapping buys where KV is behind a link: time to the first logits of a prompt whose prefix lies in
// the host's memory, on the linked device, beside loading and computing one after the other.
//
//   mooncaf_device_link_bench --model FILE.gguf|dummy:SPEC [--mib-per-s N]

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/linked/linked_device.hpp"
#include "runtime/model/model_runner.hpp"
#include "tests/bench/bench_model.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

constexpr std::uint32_t prompt_tokens = 2048;
constexpr int rounds = 5;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class link_bench {
 public:
  link_bench(const std::string& spec, std::size_t bytes_per_s)
      : device_(unwrap(make_linked_device({{}, {bytes_per_s, std::chrono::microseconds(10)}, 2}))),
        model_(load_model(*device_, spec)),
        layout_(model_->layout(64, kv_dtype::f16)),
        memory_(layout_.blocks_for(prompt_tokens) * layout_.block_bytes()),
        logits_(model_->config().vocab_size) {
    runner_options options;
    options.layout = layout_;
    options.max_batch_tokens = prompt_tokens;
    options.device_blocks = unwrap(device_kv::make(*device_, layout_, 2 * memory_.size(), prompt_tokens));
    runner_ = unwrap(model_runner::make(model_, *device_, options));
    for (std::size_t at = 0; at < memory_.size(); at += layout_.block_bytes())
      blocks_.push_back(memory_.data() + at);
    std::mt19937 random(5);
    for (std::uint32_t i = 0; i < prompt_tokens; ++i)
      tokens_.push_back(static_cast<std::int32_t>(random() % model_->config().vocab_size));
    pass(0, 1);  // fills the host's blocks
  }

  /// Seconds of a pass over the tokens from `start` on.
  /// @param sequence  0: nothing of the prefix is on the device; else what an earlier pass left there.
  double pass(std::uint32_t start, std::uint64_t sequence) {
    const batch_item item{std::span{tokens_}.subspan(start), start, blocks_, true, {}, 0, sequence};
    const auto begin = std::chrono::steady_clock::now();
    if (auto done = runner_->forward({&item, 1}, logits_); !done) die(to_string(done.error()));
    return seconds_since(begin);
  }

  /// Seconds of copying the blocks of `tokens` positions to the device, layer by layer, and nothing else.
  double load(std::uint32_t tokens) {
    const auto room = unwrap(device_->allocate(memory_.size()));
    const device_bytes base{reinterpret_cast<std::byte*>(room->data())};
    const auto queue = device_->make_copy_queue();
    std::vector<kv_copy> copies;
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t layer = 0; layer < layout_.n_layers; ++layer) {
      copies.clear();
      for (std::size_t b = 0; b < layout_.blocks_for(tokens); ++b) {
        const auto at = layout_.offset(layer, 0, false, 0);
        copies.push_back(
            {base + b * layout_.block_bytes() + at, blocks_[b] + at, layout_.layer_bytes(), 0, 1});
      }
      queue->load(copies);
    }
    wait_for(queue->record());
    return seconds_since(begin);
  }

 private:
  std::unique_ptr<device> device_;
  std::shared_ptr<const model> model_;
  kv_layout layout_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> blocks_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  std::unique_ptr<model_runner> runner_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string spec;
  std::size_t mib_per_s = 512;
  if (const char* path = std::getenv("MOONCAF_MODEL")) spec = path;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--model") == 0) spec = argv[i + 1];
    else if (std::strcmp(argv[i], "--mib-per-s") == 0)
      std::from_chars(argv[i + 1], argv[i + 1] + std::strlen(argv[i + 1]), mib_per_s);
    else die("usage: mooncaf_device_link_bench --model FILE|dummy:SPEC [--mib-per-s N]");
  }
  if (spec.empty() || mib_per_s == 0) die("no model or no link: give --model, or set MOONCAF_MODEL");
  link_bench bench(spec, mib_per_s << 20);
  std::printf("%s, %u tokens, link of %zu MiB/s; milliseconds, best of %d\n", spec.c_str(), prompt_tokens,
              mib_per_s, rounds);
  std::printf("%8s %8s %8s %8s %10s %10s\n", "prefix", "load", "compute", "ttft", "/max", "/sum");
  for (const std::uint32_t percent : {0u, 50u, 75u, 88u, 94u, 97u}) {
    const auto start = prompt_tokens / 64 * percent / 100 * 64;
    double load = 1e9, compute = 1e9, ttft = 1e9;
    for (int i = 0; i < rounds; ++i) {
      load = std::min(load, start == 0 ? 0 : bench.load(start));
      compute = std::min(compute, bench.pass(start, 1));
      ttft = std::min(ttft, bench.pass(start, 0));
    }
    std::printf("%7u%% %8.1f %8.1f %8.1f %10.2f %10.2f\n", start * 100 / prompt_tokens, 1e3 * load,
                1e3 * compute, 1e3 * ttft, ttft / std::max(load, compute), ttft / (load + compute));
  }
}
