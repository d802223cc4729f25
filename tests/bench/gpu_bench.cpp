// What a GPU makes of a model, beside the limits of its data sheet, as rows for the bench page.
//
//   mooncaf_gpu_bench [--gpu N] [--model dummy:SPEC] [--tflops 989] [--gb-per-s 3350] [--batch 256]
//   [--context 512]
//
// Peaks are an H100 SXM's (dense f16, HBM3) unless given. The model's weights are all of one type, so that
// their bytes on the device are known.

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/cuda/cuda_device.hpp"
#include "tests/bench/bench_model.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

struct settings {
  std::string model = "dummy:llama3-8b,type=q4_0";
  std::uint32_t gpu = 0, tflops = 989, gb_per_s = 3350, batch = 256, context = 512;
};

settings parse(int argc, char** argv) {
  settings s;
  const std::pair<std::string_view, std::uint32_t*> numbers[] = {{"--gpu", &s.gpu},
                                                                 {"--tflops", &s.tflops},
                                                                 {"--gb-per-s", &s.gb_per_s},
                                                                 {"--batch", &s.batch},
                                                                 {"--context", &s.context}};
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* const value = i + 1 < argc ? argv[++i] : nullptr;
    bool known = value != nullptr && name == "--model";
    if (known) s.model = value;
    for (const auto& [option, number] : numbers) {
      if (name != option || value == nullptr) continue;
      known = std::from_chars(value, value + std::strlen(value), *number).ec == std::errc{};
    }
    if (!known || !is_dummy_spec(s.model) || s.batch == 0 || s.context == 0)
      die("usage: mooncaf_gpu_bench [--gpu N] [--model dummy:SPEC] [--tflops N] [--gb-per-s N] [--batch N] "
          "[--context N]");
  }
  return s;
}

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Of a weight on the device, its scales included (gpu/cuda/cuda_weight.cpp).
double bytes_of_weight(ggml_type type) {
  switch (type) {
    case ggml_type::q4_0:
    case ggml_type::q4_1:
      return 0.5 + 4.0 / 32;
    case ggml_type::q4_k:
      return 0.5 + 8.0 / 32;
    case ggml_type::mxfp4:
      return 0.5 + 1.0 / 32;
    case ggml_type::q8_0:
      return 1 + 4.0 / 32;
    case ggml_type::q5_k:
      return 0.625 + 8.0 / 32;
    case ggml_type::q6_k:
      return 1 + 8.0 / 16;
    case ggml_type::f32:
      return 4;
    default:
      return 2;
  }
}

class gpu_bench {
 public:
  explicit gpu_bench(const settings& s)
      : s_(s),
        device_(unwrap(make_cuda_device({s.gpu}))),
        model_(load_model(*device_, s.model)),
        layout_(model_->layout(64, kv_dtype::f16)) {
    const auto longest = 4 * s.context + steps;
    const auto blocks = s.batch * layout_.blocks_for(s.context + steps) + layout_.blocks_for(longest);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, blocks * layout_.block_bytes())),
                  &std::free);
    if (!memory_) die("no memory for the KV of all sequences");
    if (auto pinned = device_->pin({memory_.get(), blocks * layout_.block_bytes()}, memory_); !pinned)
      std::printf("not pinned: %s\n", to_string(pinned.error()).c_str());
    runner_options options;
    options.layout = layout_;
    options.max_batch_tokens = std::max(512u, s.batch);
    options.max_logit_rows = s.batch;
    options.context_tokens = longest;
    options.device_blocks =
        unwrap(device_kv::make(*device_, layout_, blocks * layout_.block_bytes(), longest));
    runner_ = unwrap(model_runner::make(model_, *device_, options));
    const auto& c = model_->config();
    const double layer =
        double(c.dim) * c.q_dim() * 2 + double(c.dim) * c.kv_dim() * 2 + 3.0 * c.dim * c.ffn_dim;
    layer_weights_ = layer * c.n_layers;
    head_weights_ = double(c.dim) * c.vocab_size;
    std::printf("%s on %s\n\n| what | figure | of the limit |\n| --- | --- | --- |\n", s.model.c_str(),
                device_->info().name.c_str());
  }

  void prefill(std::uint32_t tokens) {
    forward_prompt(0, tokens, false);  // first sight of shapes, room for activations
    const auto s = seconds_of([&] { forward_prompt(0, tokens, false); });
    const auto& c = model_->config();
    const double attention = 2.0 * tokens * c.q_dim() * c.n_layers;  // half of 4, by causality
    const double flop = tokens * (2 * layer_weights_ + attention) + 2 * head_weights_;
    row("prefill " + std::to_string(tokens) + " tokens", tokens / s, "tokens/s", flop / s / 1e12 / s_.tflops,
        "FLOP/s");
  }

  void decode(std::uint32_t batch) {
    for (std::uint32_t i = 0; i < batch; ++i) forward_prompt(i, s_.context, true);
    std::vector<std::int32_t> last(batch, 1);
    std::vector<chosen_token> chosen(batch);
    const token_choice greedy;
    std::vector<batch_item> items(batch);
    const auto step = [&](std::uint32_t n) {
      for (std::uint32_t i = 0; i < batch; ++i) {
        items[i] = {{&last[i], 1}, s_.context + n, blocks_of(i, s_.context + steps)};
        items[i].sequence = 1 + i;
        items[i].choose = &greedy;
        items[i].chosen = &chosen[i];
      }
      run(items);
      for (std::uint32_t i = 0; i < batch; ++i) last[i] = chosen[i].id;
    };
    for (std::uint32_t n = 0; n < warm_up; ++n) step(n);
    const auto s = seconds_of([&] {
      for (std::uint32_t n = warm_up; n < steps; ++n) step(n);
    });
    const double per_step = s / (steps - warm_up);
    const double kv = double(batch) * s_.context * layout_.bytes_per_token();
    const double bytes = (layer_weights_ + head_weights_) * bytes_of_weight(model_->config().dummy_type) + kv;
    row("decode batch " + std::to_string(batch), batch / per_step, "tokens/s",
        bytes / per_step / 1e9 / s_.gb_per_s, "bytes/s");
  }

  /// Whole layers of blocks by copy engines, and rows of a batch by the kernel, beside one plain copy.
  void kv_io() {
    const auto queue = device_->make_copy_queue();
    const auto room = unwrap(device_->allocate(layout_.blocks_for(4 * s_.context) * layout_.block_bytes()));
    const device_bytes base{reinterpret_cast<std::byte*>(room->data())};
    const auto bytes = layout_.blocks_for(4 * s_.context) * layout_.block_bytes();
    std::vector<kv_copy> layers, rows;
    for (std::size_t at = 0; at < bytes; at += layout_.layer_bytes())
      layers.push_back({base + at, memory_.get() + at, layout_.layer_bytes(), 0, 1});
    for (std::size_t at = 0; at < bytes; at += layout_.layer_bytes())
      rows.push_back(
          {base + at, memory_.get() + at, layout_.row_bytes(), layout_.plane_bytes(), layout_.planes()});
    const kv_copy plain{base, memory_.get(), bytes, 0, 1};
    const auto rate = [&](std::span<const kv_copy> copies, bool load) {
      double moved = 0;
      for (const auto& c : copies) moved += double(c.bytes());
      const auto once = [&] {
        load ? queue->load(copies) : queue->store(copies);
        wait_for(queue->record());
      };
      once();
      return moved / seconds_of(once) / 1e9;
    };
    for (const bool load : {true, false}) {
      const std::string way = load ? "host to device" : "device to host";
      const auto limit = rate({&plain, 1}, load);
      row("KV " + way + ", one plain copy", limit, "GB/s", 1, "that copy");
      row("KV " + way + ", layers of blocks", rate(layers, load), "GB/s", rate(layers, load) / limit,
          "that copy");
      row("KV " + way + ", rows of tokens", rate(rows, load), "GB/s", rate(rows, load) / limit, "that copy");
    }
  }

 private:
  static constexpr std::uint32_t warm_up = 4, steps = 24;

  static void row(const std::string& what, double figure, const char* unit, double share, const char* of) {
    std::printf("| %s | %.1f %s | %.1f %% of %s |\n", what.c_str(), figure, unit, 100 * share, of);
    std::fflush(stdout);
  }
  std::span<std::byte* const> blocks_of(std::uint32_t sequence, std::uint32_t tokens) {
    const auto each = layout_.blocks_for(tokens);
    auto& mine = tables_[sequence];
    mine.clear();
    for (std::size_t i = 0; i < each; ++i)
      mine.push_back(memory_.get() + (sequence * each + i) * layout_.block_bytes());
    return mine;
  }
  void forward_prompt(std::uint32_t sequence, std::uint32_t tokens, bool answered) {
    const auto blocks = blocks_of(sequence, answered ? tokens + steps : tokens);
    std::vector<std::int32_t> prompt(tokens);
    for (std::uint32_t i = 0; i < tokens; ++i)
      prompt[i] = static_cast<std::int32_t>((i * 7919u + sequence) % model_->config().vocab_size);
    for (std::uint32_t at = 0; at < tokens; at += 512) {
      batch_item item{std::span{prompt}.subspan(at, std::min(512u, tokens - at)), at, blocks};
      item.sequence = 1 + sequence;
      run({&item, 1});
    }
  }
  void run(std::span<const batch_item> items) {
    if (auto done = runner_->forward(items, {}); !done) die(to_string(done.error()));
  }

  const settings s_;
  std::shared_ptr<std::byte> memory_;
  std::unique_ptr<device> device_;
  std::shared_ptr<const model> model_;
  kv_layout layout_;
  std::unique_ptr<model_runner> runner_;
  std::vector<std::vector<std::byte*>> tables_{std::max(s_.batch, 1u)};
  double layer_weights_ = 0, head_weights_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto s = parse(argc, argv);
  gpu_bench b(s);
  b.kv_io();
  for (const auto tokens : {s.context, 4 * s.context}) b.prefill(tokens);
  for (std::uint32_t batch = 1; batch <= s.batch; batch *= 4) b.decode(batch);
}
