// How near the host kernels come to this machine's limits, measured in the same run.
//
//   mooncaf_kernel_bench [--threads N] [--isa NAME]
//
// Products: the matrices of SmolLM2-135M (30 layers, Q4_1), without attention, at 1 to 512 tokens. Limits
// beside them: how fast the weights can be read from memory at all, and what a loop of nothing but 8-bit
// multiply-adds reaches. Attention: one layer of the same model, keys and values in f16. A shared machine
// disturbs single runs, so each figure is the fastest of many short ones.

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/host/host_device.hpp"

using namespace mooncaf;

namespace {

constexpr std::size_t n_layers = 30, dim = 576, kv_dim = 192, ffn_dim = 1536;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double fastest(const std::vector<double>& v) { return *std::ranges::min_element(v); }

void on_all(unsigned threads, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (auto& t : others) t.join();
}

/// Bytes per second that `threads` read from memory that no cache holds.
double read_limit(unsigned threads) {
  std::vector<std::uint64_t> memory(std::size_t{16} << 20, 1);  // 128 MiB
  std::vector<double> times;
  for (int i = 0; i < 8; ++i) {
    times.push_back(seconds_of([&] {
      on_all(threads, [&](unsigned t) {
        const auto share = memory.size() / threads;
        std::uint64_t sum[8] = {};
        for (auto at = t * share; at < (t + 1) * share; at += 8) {
          for (int k = 0; k < 8; ++k) sum[k] += memory[at + static_cast<std::size_t>(k)];
        }
        volatile std::uint64_t keep = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
        static_cast<void>(keep);
      });
    }));
  }
  return static_cast<double>(memory.size() * 8) / fastest(times);
}

/// 8-bit multiply-adds per second (each counted as two operations) of one thread, 0 without VNNI.
__attribute__((target("avx512f,avx512vnni"))) double vnni_limit() {
  if (!__builtin_cpu_supports("avx512vnni")) return 0;
  constexpr int chains = 12, rounds = 50'000;
  __m512i acc[chains], u = _mm512_set1_epi32(0x03030303), s = _mm512_set1_epi32(0x05050505);
  for (auto& a : acc) a = u;
  std::vector<double> times;
  for (int r = 0; r < 40; ++r) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
      for (auto& a : acc) a = _mm512_dpbusd_epi32(a, u, s);
#pragma GCC unroll 12
      for (auto& a : acc) asm volatile("" : "+v"(a));
    }
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return 128.0 * chains * rounds / fastest(times);
}

struct layer {
  std::unique_ptr<weight> q, k, v, o, gate, up, down;
};

class bench {
 public:
  explicit bench(device& d) : device_(d), queue_(d.make_queue(0)) {
    for (std::size_t i = 0; i < n_layers; ++i) {
      layers_.push_back({make(dim, dim), make(kv_dim, dim), make(kv_dim, dim), make(dim, dim),
                         make(ffn_dim, dim), make(ffn_dim, dim), make(dim, ffn_dim)});
      for (const auto* w : {&layers_[i].q, &layers_[i].k, &layers_[i].v, &layers_[i].o, &layers_[i].gate,
                            &layers_[i].up, &layers_[i].down}) {
        weights_ += (*w)->rows() * (*w)->cols();
      }
    }
    memory_ = std::move(*device_.allocate(max_tokens * (3 * dim + 2 * kv_dim + 2 * ffn_dim) * sizeof(float)));
    for (std::size_t i = 0; i < memory_->size_bytes() / sizeof(float); ++i) memory_->data()[i] = uniform();
  }

  std::size_t weights() const { return weights_; }

  /// Tokens per second through all products of all layers, `tokens` at once.
  double products(std::size_t tokens) {
    auto* at = memory_->data();
    const auto take = [&](std::size_t cols) {
      const tensor t{at, tokens, cols, cols};
      at += max_tokens * cols;
      return t;
    };
    const auto x = take(dim), q = take(dim), out = take(dim), k = take(kv_dim), v = take(kv_dim);
    const auto gate = take(ffn_dim), up = take(ffn_dim);
    const device_turn turn(*queue_);
    std::vector<double> times;
    const int rounds = tokens >= 512 ? 2 : tokens >= 64 ? 6 : 20;
    for (int r = 0; r < rounds; ++r) {
      for (const auto& l : layers_) {
        times.push_back(seconds_of([&] {
          const std::array a{linear_job{l.q.get(), nullptr, q}, linear_job{l.k.get(), nullptr, k},
                             linear_job{l.v.get(), nullptr, v}};
          queue_->linear(x, a);
          const std::array b{linear_job{l.o.get(), nullptr, out}};
          queue_->linear(x, b);
          const std::array c{linear_job{l.gate.get(), nullptr, gate}, linear_job{l.up.get(), nullptr, up}};
          queue_->linear(x, c);
          const std::array e{linear_job{l.down.get(), nullptr, out}};
          queue_->linear(up, e);
          queue_->synchronize();
        }));
      }
    }
    return static_cast<double>(tokens) / (fastest(times) * n_layers);
  }

  /// Milliseconds of one layer's attention for `queries` last positions of `sequences` contexts of `context`
  /// tokens.
  double attention_ms(std::size_t sequences, std::uint32_t queries, std::uint32_t context,
                      kv_dtype dtype = kv_dtype::f16) {
    const kv_layout layout{1, 3, 64, 64, dtype};
    const auto blocks = layout.blocks_for(context);
    std::vector<std::byte> kv(sequences * blocks * layout.block_bytes());
    std::vector<std::vector<device_bytes>> tables(sequences);
    std::vector<attention_seq> seqs;
    const auto width = std::size_t{layout.n_kv_heads} * layout.head_dim;
    std::vector<float> k(context * width), v(context * width);
    for (auto* numbers : {&k, &v})
      for (auto& x : *numbers) x = uniform();
    const device_turn turn(*queue_);
    for (std::size_t s = 0; s < sequences; ++s) {
      for (std::size_t b = 0; b < blocks; ++b)
        tables[s].push_back({kv.data() + (s * blocks + b) * layout.block_bytes()});
      seqs.push_back({static_cast<std::uint32_t>(s * queries), queries, context, tables[s]});
      const attention_seq whole{0, context, context, tables[s]};
      queue_->kv_write(layout, 0, {k.data(), context, width, width}, {v.data(), context, width, width},
                       {&whole, 1});
    }
    const auto rows = sequences * queries;
    std::vector<float> q(rows * dim), out(rows * dim);
    for (auto& x : q) x = uniform();
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      times.push_back(seconds_of([&] {
        queue_->paged_attention(layout, 0, {9, 0.125f}, {q.data(), rows, dim, dim}, seqs,
                                {out.data(), rows, dim, dim});
      }));
    }
    return 1e3 * fastest(times);
  }

 private:
  static constexpr std::size_t max_tokens = 512;

  float uniform() { return static_cast<float>(random_() % 2001) / 1000 - 1; }

  std::unique_ptr<weight> make(std::size_t rows, std::size_t cols) {
    std::vector<std::byte> data(rows * row_bytes(ggml_type::q4_1, cols));
    for (auto& b : data) b = static_cast<std::byte>(random_());
    for (std::size_t at = 0; at < data.size(); at += block_bytes(ggml_type::q4_1)) {
      const std::uint16_t scale = 0x2000, minimum = 0xB000;
      std::memcpy(&data[at], &scale, 2);
      std::memcpy(&data[at + 2], &minimum, 2);
    }
    files_.push_back(std::move(data));
    return std::move(*device_.load_weight(ggml_type::q4_1, rows, cols, files_.back()));
  }

  device& device_;
  std::mt19937 random_{1};
  std::vector<std::vector<std::byte>> files_;
  std::vector<layer> layers_;
  std::size_t weights_ = 0;
  std::unique_ptr<compute_queue> queue_;
  std::unique_ptr<buffer> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  host_device_options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view{argv[i]} == "--threads")
      options.threads = static_cast<unsigned>(std::atoi(argv[i + 1]));
    if (std::string_view{argv[i]} == "--isa") options.isa = argv[i + 1];
  }
  auto made = try_make_host_device(options);
  if (!made) {
    std::fprintf(stderr, "%s\n", to_string(made.error()).c_str());
    return 2;
  }
  auto& host = **made;
  const auto threads = host.info().threads;
  bench b(host);
  std::printf("%s\n", host.info().name.c_str());

  const double bytes = static_cast<double>(b.weights()) * 20 / 32;
  const double by_memory = read_limit(threads) / bytes;
  const double by_vnni = threads * vnni_limit() / (2.0 * static_cast<double>(b.weights()));
  std::printf("products, tokens/s (limit: weights read from memory %.0f/s; bare VNNI loop %.0f tokens/s)\n",
              by_memory, by_vnni);
  for (const std::size_t tokens : {1, 8, 64, 512}) {
    const double speed = b.products(tokens);
    const double limit = by_vnni > 0 ? std::min(by_memory * static_cast<double>(tokens), by_vnni)
                                     : by_memory * static_cast<double>(tokens);
    std::printf("  %4zu at once %8.0f   %.2f of the limit\n", tokens, speed, speed / limit);
  }
  std::printf("attention of one layer, ms (9 heads, 3 KV heads of 64, f16)\n");
  for (const std::uint32_t context : {512u, 4096u, 8192u}) {
    std::printf("  512 queries, context %5u: %7.2f\n", context, b.attention_ms(1, 512, context));
  }
  std::printf("  batch of 8,  context  1024: %7.2f\n", b.attention_ms(8, 1, 1024));
  std::printf("  batch of 1,  context  4096: %7.2f\n", b.attention_ms(1, 1, 4096));
  std::printf("… of one step of decoding, batch of 8, ms by number format\n");
  for (const std::uint32_t context : {4096u, 8192u, 16'384u, 32'768u}) {
    std::printf("  context %5u:", context);
    for (const auto dtype : all_values<kv_dtype>())
      std::printf("  %s %7.2f", std::string{to_string(dtype)}.c_str(), b.attention_ms(8, 1, context, dtype));
    std::printf("\n");
  }
}
