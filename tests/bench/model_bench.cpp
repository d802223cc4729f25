// Prefill and decode speed of one model on the host device.
//
//   mooncaf_model_bench --model FILE.gguf|dummy:SPEC [--threads N] [--chunk 512] [--profile] [--figures]
//
// --profile also says where the time went; --figures ends with one line of JSON for model_vs_llamacpp.py.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gpu/host/host_device.hpp"
#include "runtime/model/model_runner.hpp"
#include "runtime/model/sampler.hpp"
#include "tests/bench/bench_model.hpp"
#include "tests/bench/model_profile.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

struct settings {
  std::string model_spec;
  std::string isa;  ///< empty: the best that the processor has
  unsigned threads = 0;
  std::uint32_t chunk_tokens = 512;
  bool profile = false;
  bool figures = false;
};

settings parse(int argc, char** argv) {
  settings s;
  if (const char* path = std::getenv("MOONCAF_MODEL")) s.model_spec = path;
  const auto number = [&](const char* text) {
    std::uint32_t n = 0;
    if (std::from_chars(text, text + std::strlen(text), n).ec != std::errc{} || n == 0)
      die(std::string("not a positive number: ") + text);
    return n;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--profile") s.profile = true;
    else if (arg == "--figures") s.figures = true;
    else if (arg == "--model" && more) s.model_spec = argv[++i];
    else if (arg == "--threads" && more) s.threads = number(argv[++i]);
    else if (arg == "--isa" && more) s.isa = argv[++i];
    else if (arg == "--chunk" && more) s.chunk_tokens = number(argv[++i]);
    else
      die("usage: mooncaf_model_bench --model FILE|dummy:SPEC [--threads N] [--chunk N] "
          "[--isa avx512-vnni|avx2|portable] [--profile] [--figures]");
  }
  if (s.model_spec.empty()) die("no model: give --model, or set MOONCAF_MODEL (see examples/fetch_model.sh)");
  return s;
}

/// KV memory of one sequence.
struct sequence {
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
  std::vector<std::int32_t> tokens;

  sequence(const kv_layout& layout, std::size_t capacity_tokens, std::size_t prompt_tokens,
           std::uint32_t vocab, std::uint32_t seed) {
    const auto n = layout.blocks_for(capacity_tokens);
    memory.resize(n * layout.block_bytes());
    for (std::size_t i = 0; i < n; ++i) blocks.push_back(memory.data() + i * layout.block_bytes());
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < prompt_tokens; ++i)
      tokens.push_back(static_cast<std::int32_t>(random() % vocab));
  }
};

class model_bench {
 public:
  explicit model_bench(const settings& s)
      : settings_(s),
        device_(unwrap(try_make_host_device({.threads = s.threads, .isa = s.isa}))),
        profiled_(*device_, times_),
        model_(load_model(*device_, s.model_spec)) {
    runner_options options;
    options.layout = model_->layout(64, kv_dtype::f16);
    options.max_batch_tokens = std::max(s.chunk_tokens, 8u);
    options.max_logit_rows = 8;
    runner_ =
        unwrap(model_runner::make(model_, s.profile ? static_cast<device&>(profiled_) : *device_, options));
    std::printf("%s on %s, chunks of %u tokens\n", s.model_spec.c_str(), device_->info().name.c_str(),
                s.chunk_tokens);
    prefill_once(64);  // pages of the file, threads, caches
  }

  double prefill(std::size_t tokens, int repeats) {
    std::vector<double> seconds;
    times_.clear();
    for (int i = 0; i < repeats; ++i) seconds.push_back(prefill_once(tokens));
    double total = 0;
    for (const double s : seconds) total += s;
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    const double per_s = static_cast<double>(tokens) / seconds[static_cast<std::size_t>(repeats / 2)];
    std::printf("prefill %5zu tokens: %8.0f tokens/s\n", tokens, per_s);
    if (settings_.profile) times_.print(total);
    return per_s;
  }

  /// Greedy steps of `batch` sequences with a short context, sampler included.
  double decode(std::size_t batch, std::size_t context, std::size_t steps) {
    const auto& c = model_->config();
    const auto& layout = runner_->options().layout;
    std::vector<sequence> sequences;
    std::vector<sampler> samplers;
    sampling_params greedy;
    greedy.temperature = 0;
    std::vector<float> logits(batch * c.vocab_size);
    std::vector<batch_item> items(batch);
    for (std::size_t i = 0; i < batch; ++i) {
      sequences.emplace_back(layout, context + steps, context, c.vocab_size,
                             7 + static_cast<std::uint32_t>(i));
      samplers.emplace_back(greedy, std::span<const std::int32_t>{}, std::span<const std::int32_t>{},
                            c.vocab_size);
      const batch_item prompt{sequences[i].tokens, 0, sequences[i].blocks, false};
      run({&prompt, 1}, {});
    }
    times_.clear();
    std::vector<std::int32_t> last(batch, 1);
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < batch; ++i)
        items[i] = {{&last[i], 1}, static_cast<std::uint32_t>(context + step), sequences[i].blocks, true};
      run(items, logits);
      for (std::size_t i = 0; i < batch; ++i) {
        last[i] = samplers[i].next(std::span(logits).subspan(i * c.vocab_size, c.vocab_size)).id;
        samplers[i].accept(last[i]);
      }
    }
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double per_s = static_cast<double>(batch * steps) / s;
    std::printf("decode  batch %5zu: %8.0f tokens/s\n", batch, per_s);
    if (settings_.profile) times_.print(s);
    return per_s;
  }

 private:
  double prefill_once(std::size_t tokens) {
    const auto& c = model_->config();
    const sequence seq(runner_->options().layout, tokens, tokens, c.vocab_size, 3);
    std::vector<float> logits(c.vocab_size);
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < tokens; at += settings_.chunk_tokens) {
      const auto n = std::min<std::size_t>(settings_.chunk_tokens, tokens - at);
      const bool is_last = at + n == tokens;
      const batch_item item{std::span(seq.tokens).subspan(at, n), static_cast<std::uint32_t>(at), seq.blocks,
                            is_last};
      run({&item, 1}, is_last ? std::span<float>(logits) : std::span<float>{});
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void run(std::span<const batch_item> items, std::span<float> logits) {
    if (auto done = runner_->forward(items, logits); !done) die(to_string(done.error()));
  }

  settings settings_;
  std::unique_ptr<device> device_;
  mooncaf::bench::operation_times times_;
  mooncaf::bench::profiled_device profiled_;
  std::shared_ptr<const model> model_;
  std::unique_ptr<model_runner> runner_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto s = parse(argc, argv);
  model_bench b(s);
  const double p512 = b.prefill(512, 3);
  const double p4096 = b.prefill(4096, 1);
  const double d1 = b.decode(1, 16, 128);
  const double d8 = b.decode(8, 16, 128);
  if (s.figures)
    std::printf(
        "FIGURES {\"prefill_512\": %.1f, \"prefill_4096\": %.1f, \"decode_1\": %.1f, \"decode_8\": %.1f}\n",
        p512, p4096, d1, d8);
}
