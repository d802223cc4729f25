// What the order of KV in the host's memory costs on its way: between a device and memory layer by layer, and
// between memory and SSD block by block, in each of the three orders and by the size of a page.
//
//   mooncaf_l2_layout_bench [FOLDER]     SSD files in FOLDER; by default where temporary files go
//
// The link has no limit of its own, so that what shows is the copying; its peer is one copy of all the bytes
// over the same link in the same round. The peer of SSD figures is the order whose page is one piece.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "gpu/linked/linked_device.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "storage/arena.hpp"
#include "storage/io_job.hpp"
#include "tests/bench/bench_model.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

constexpr std::uint32_t tokens = 8192;  // 180 MiB of KV in SmolLM2-135M's shape
constexpr int rounds = 5;

struct order_name {
  page_order order;
  const char* name;
};
constexpr order_name orders[] = {{page_order::page_first_direct, "page_first_direct"},
                                 {page_order::page_first, "page_first"},
                                 {page_order::layer_first, "layer_first"}};

kv_layout layout_of(page_order order, std::uint32_t page_tokens) {
  kv_layout l{30, 3, 64, page_tokens, kv_dtype::f16};
  l.pages = order;
  return l;
}

double seconds_of(const auto& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

/// Memory of pages beside a device that has blocks of them.
class pages_beside_device {
 public:
  explicit pages_beside_device(const kv_layout& layout)
      : layout_(layout),
        count_(static_cast<std::uint32_t>(layout.blocks_for(tokens))),
        memory_(unwrap(arena::create("pages", layout.pieces().bytes_for(count_)))),
        device_(unwrap(make_linked_device({{}, {0, {}}, 1}))),
        room_(unwrap(device_->allocate(count_ * layout.block_bytes()))),
        queue_(device_->make_copy_queue()) {
    std::fill(memory_.bytes().begin(), memory_.bytes().end(), std::byte{7});
  }

  std::size_t bytes() const { return count_ * layout_.block_bytes(); }
  std::byte* page(std::uint32_t i) { return memory_.base() + layout_.pieces().offset(i); }
  device_bytes base() { return device_bytes{reinterpret_cast<std::byte*>(room_->data())}; }

  /// Everything as a pass has it: layer by layer, all pages of a layer.
  double by_layer(bool load) {
    return seconds_of([&] {
      for (std::uint32_t layer = 0; layer < layout_.n_layers; ++layer) {
        copies_.clear();
        for (std::uint32_t i = 0; i < count_; ++i)
          append_rows(layout_, base() + i * layout_.block_bytes(), page(i), layer, 0, layout_.block_tokens,
                      copies_);
        load ? queue_->load(copies_) : queue_->store(copies_);
      }
      wait_for(queue_->record());
    });
  }
  /// As many bytes in one copy.
  double plain(bool load) {
    const kv_copy all{base(), memory_.base(), bytes(), 0, 1};
    return seconds_of([&] {
      load ? queue_->load({&all, 1}) : queue_->store({&all, 1});
      wait_for(queue_->record());
    });
  }

  std::vector<io_job> jobs(io_job::kind what) {
    std::vector<io_job> out;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const block_key key{1, i + 1};
      const auto sum = checksum64(page(i), layout_.pieces());
      out.push_back({i + 1, what, {{key, key, 0}, sum}, {i, layout_.pieces().offset(i), page(i)}, {}});
    }
    return out;
  }
  double checksums() {
    return seconds_of([&] {
      for (std::uint32_t i = 0; i < count_; ++i) last_sum_ ^= checksum64(page(i), layout_.pieces());
    });
  }

 private:
  kv_layout layout_;
  std::uint32_t count_;
  arena memory_;
  std::unique_ptr<device> device_;
  std::unique_ptr<buffer> room_;
  std::unique_ptr<copy_queue> queue_;
  std::vector<kv_copy> copies_;
  std::uint64_t last_sum_ = 0;
};

/// Seconds of writing all pages, and of reading them again.
std::pair<double, double> through_disk(pages_beside_device& pages, const kv_layout& layout,
                                       const std::string& folder) {
  std::filesystem::remove_all(folder);
  rocksdb_tier_options options;
  options.path = folder;
  options.block_bytes = layout.block_bytes();
  options.fingerprint = {1, 2};
  options.capacity_blocks = 2 * layout.blocks_for(tokens);
  const auto tier = unwrap(rocksdb_tier::open(options));
  const auto run = [&](io_job::kind what) {
    const auto jobs = pages.jobs(what);
    // As many at once as a shard gives the disk.
    const auto turn = std::max<std::size_t>(1, 32 * MiB / layout.block_bytes());
    return seconds_of([&] {
      for (std::size_t at = 0; at < jobs.size(); at += turn)
        for (const auto& r :
             execute(std::span{jobs}.subspan(at, std::min(turn, jobs.size() - at)), *tier, layout.pieces()))
          if (!r.ok()) die(to_string(r.failure));
    });
  };
  const auto written = run(io_job::kind::write);
  return {written, run(io_job::kind::read)};
}

struct best {
  double load = 1e9, store = 1e9, plain_load = 1e9, plain_store = 1e9, sum = 1e9, write = 1e9, read = 1e9;
};

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path();
  const auto files = (folder / ("mooncaf-l2-" + std::to_string(::getpid()))).string();
  std::printf("%u tokens of 30 layers x 3 heads x 64, f16; GB/s, best of %d by turns\n", tokens, rounds);
  std::printf("%6s %-18s %8s %8s %8s %8s %9s %9s %9s\n", "page", "order", "L2>L1", "/plain", "L1>L2",
              "/plain", "checksum", "L2>SSD", "SSD>L2");
  for (const std::uint32_t page_tokens : {16u, 64u, 256u, 512u}) {
    best all[std::size(orders)];
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t o = 0; o < std::size(orders); ++o) {
        const auto layout = layout_of(orders[o].order, page_tokens);
        pages_beside_device pages{layout};
        auto& b = all[o];
        pages.plain(true);  // touches the device's memory for the first time
        b.plain_load = std::min(b.plain_load, pages.plain(true));
        b.load = std::min(b.load, pages.by_layer(true));
        b.plain_store = std::min(b.plain_store, pages.plain(false));
        b.store = std::min(b.store, pages.by_layer(false));
        b.sum = std::min(b.sum, pages.checksums());
        const auto [write, read] = through_disk(pages, layout, files);
        b.write = std::min(b.write, write);
        b.read = std::min(b.read, read);
      }
    }
    for (std::size_t o = 0; o < std::size(orders); ++o) {
      const auto& b = all[o];
      const auto gb =
          1e-9 * static_cast<double>(layout_of(orders[o].order, page_tokens).bytes_per_token()) * tokens;
      std::printf("%6u %-18s %8.2f %8.2f %8.2f %8.2f %9.2f %9.2f %9.2f\n", page_tokens, orders[o].name,
                  gb / b.load, b.plain_load / b.load, gb / b.store, b.plain_store / b.store, gb / b.sum,
                  gb / b.write, gb / b.read);
    }
  }
  std::filesystem::remove_all(files);
}
