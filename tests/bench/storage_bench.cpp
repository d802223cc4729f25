// The SSD tier beside raw file I/O of the same blocks in the same run, and what the bookkeeping of the DRAM
// tier costs.
//
//   mooncaf_storage_bench [DIRECTORY] [--full | --packing]     DIRECTORY on the disk to measure, default: the
//   current one; --packing: what packing costs and saves alone
//
// Every figure is the median of three passes; a ratio is against the best raw figure of its row's kind. Data
// is random (incompressible) and larger than the last-level cache. Without --full about a minute, 0.7 GB of
// disk.

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/block_parts.hpp"
#include "runtime/base/posix.hpp"
#include "runtime/base/units.hpp"
#include "runtime/model/kv_residency.hpp"
#include "storage/arena.hpp"
#include "storage/block_store.hpp"
#include "storage/float_packing.hpp"
#include "storage/reader_pool.hpp"
#include "storage/rocksdb_tier.hpp"
#include "tests/support/half_floats.hpp"

using namespace mooncaf;

namespace {

using seconds = double;

seconds time_of(const std::function<void()>& work) {
  const auto begin = clock_type::now();
  work();
  return to_seconds(clock_type::now() - begin);
}

/// Processor seconds of all threads so far.
double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "storage_bench: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T must(result<T> r) {
  if (!r) give_up(to_string(r.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

/// Blocks of one size in memory, with keys and an order to read them in.
struct block_set {
  std::size_t block_bytes, count;
  arena memory;
  std::vector<ssd_block> blocks;
  std::vector<std::size_t> shuffled;

  /// @param make  numbers in 16 bits; null: bytes that no code makes fewer.
  block_set(std::size_t size, std::size_t n,
            std::vector<std::byte> (*make)(std::size_t, std::mt19937_64&) = nullptr)
      : block_bytes(size), count(n), memory(must(arena::create("bench", size * n * 2))) {
    std::mt19937_64 random(size);
    if (make != nullptr) std::ranges::copy(make(size * n / 2, random), memory.base());
    for (std::size_t i = 0; make == nullptr && i < size * n / 8; ++i) {
      const std::uint64_t x = random();
      std::memcpy(memory.base() + i * 8, &x, 8);
    }
    std::memset(memory.base() + size * n, 1, size * n);
    for (std::size_t i = 0; i < n; ++i) {
      const block_key key{random(), random()};
      blocks.push_back({{key, {}, 0}, checksum64(source(i))});
      shuffled.push_back(i);
    }
    std::shuffle(shuffled.begin(), shuffled.end(), random);
  }
  std::span<std::byte> source(std::size_t i) const { return {memory.base() + i * block_bytes, block_bytes}; }
  std::span<std::byte> target(std::size_t i) const {
    return {memory.base() + (count + i) * block_bytes, block_bytes};
  }
  double gigabytes() const { return static_cast<double>(count * block_bytes) / 1e9; }
};

/// What the disk does without us: one preallocated-by-writing file, O_DIRECT.
struct raw_limit {
  double write, read_one, read_many;
};

raw_limit measure_raw(const block_set& set, const std::string& directory, unsigned threads, int passes) {
  const std::string path = directory + "/raw";
  std::vector<double> writes, ones, manys;
  reader_pool pool(threads);
  for (int pass = 0; pass < passes; ++pass) {
    std::filesystem::remove(path);
    const unique_fd fd{::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600)};
    if (!fd) give_up("cannot open " + path + " with O_DIRECT: " + errno_text());
    const auto move = [&](std::size_t i, bool write) {
      const auto at = static_cast<off_t>(i * set.block_bytes);
      const auto n = write ? ::pwrite(fd.get(), set.source(i).data(), set.block_bytes, at)
                           : ::pread(fd.get(), set.target(i).data(), set.block_bytes, at);
      if (n != static_cast<ssize_t>(set.block_bytes)) give_up("raw I/O: " + errno_text());
    };
    writes.push_back(set.gigabytes() / time_of([&] {
                       for (std::size_t i = 0; i < set.count; ++i) move(i, true);
                       ::fdatasync(fd.get());
                     }));
    ones.push_back(set.gigabytes() / time_of([&] {
                     for (auto i : set.shuffled) move(i, false);
                   }));
    manys.push_back(set.gigabytes() / time_of([&] {
                      pool.run(set.count, [&](std::size_t i) { move(set.shuffled[i], false); });
                    }));
  }
  std::filesystem::remove(path);
  return {median(writes), median(ones), median(manys)};
}

struct tier_figures {
  double put_batch, put_one, get_one, get_many, put_cpu, get_cpu, packs;
};

/// @param part_bytes  as the server writes such blocks: reads of many are in step.
tier_figures measure_tier(const block_set& set, const std::string& directory, unsigned threads, bool direct,
                          std::size_t part_bytes, int passes, bool pack = true) {
  tier_figures f{};
  std::vector<double> batches, singles, ones, manys;
  for (int pass = 0; pass < passes; ++pass) {
    rocksdb_tier_options o;
    o.path = directory + "/tier";
    o.block_bytes = set.block_bytes;
    o.part_bytes = part_bytes;
    o.fingerprint = {1, 1};
    o.capacity_blocks = set.count * 2;
    o.read_threads = threads;
    o.direct_io = direct;
    o.pack = pack;
    std::filesystem::remove_all(o.path);
    const auto put_all = [&](rocksdb_tier& tier, std::size_t batch) {
      for (std::size_t begin = 0; begin < set.count; begin += batch) {
        std::vector<put_item> items;
        for (std::size_t i = begin; i < std::min(set.count, begin + batch); ++i)
          items.push_back({set.blocks[i], set.source(i)});
        must(tier.put(items));
      }
    };
    {
      auto tier = must(rocksdb_tier::open(o));
      singles.push_back(set.gigabytes() / time_of([&] { put_all(*tier, 1); }));
    }
    auto tier = must(rocksdb_tier::open(o));
    const std::size_t batch = 48 * MiB / set.block_bytes;
    const double before_put = processor_seconds();
    batches.push_back(set.gigabytes() / time_of([&] { put_all(*tier, batch); }));
    f.put_cpu = (processor_seconds() - before_put) / set.gigabytes();
    const auto held = tier->stats().held;
    f.packs = static_cast<double>(held.bytes()) / static_cast<double>(held.stored());
    ones.push_back(set.gigabytes() / time_of([&] {
                     for (auto i : set.shuffled) must(tier->get({set.blocks[i].name.key, set.target(i)}));
                   }));
    std::vector<get_item> items;
    for (auto i : set.shuffled) items.push_back({set.blocks[i].name.key, set.target(i)});
    const double before_get = processor_seconds();
    manys.push_back(set.gigabytes() / time_of([&] {
                      for (std::size_t at = 0; at < items.size(); at += 64) {
                        const auto some =
                            std::span{items}.subspan(at, std::min<std::size_t>(64, items.size() - at));
                        for (auto& r : tier->read_in_step(some, [](auto) { return true; }))
                          must(std::move(r));
                      }
                    }));
    f.get_cpu = (processor_seconds() - before_get) / set.gigabytes();
    for (std::size_t i = 0; i < set.count; ++i)
      if (std::memcmp(set.source(i).data(), set.target(i).data(), set.block_bytes) != 0)
        give_up("wrong bytes read");
  }
  std::filesystem::remove_all(directory + "/tier");
  f.put_batch = median(batches);
  f.put_one = median(singles);
  f.get_one = median(ones);
  f.get_many = median(manys);
  return f;
}

void bench_ssd(const std::string& directory, bool full) {
  const int passes = full ? 5 : 3;
  const unsigned threads = 4;
  std::printf(
      "SSD tier against raw files, GB/s (ratio to the raw figure at the top of its column); %u reads in "
      "flight\n\n",
      threads);
  struct shape {
    std::size_t size;
    std::uint32_t layers;
  };
  for (const auto [size, layers] : {shape{1474560, 30}, shape{163840, 10}}) {
    const auto part = layers_per_part(size / layers, layers) * (size / layers);
    const block_set set(size, 240 * MiB / size);
    const auto raw = measure_raw(set, directory, threads, passes);
    std::printf(
        "| %zu-byte blocks | write, batches of 48 MiB | write, one by one | read, one by one | read, many | "
        "processor s/GB, write / read |\n",
        size);
    std::printf("| --- | --- | --- | --- | --- | --- |\n");
    std::printf("| raw file, O_DIRECT | %.2f | %.2f | %.2f | %.2f | |\n", raw.write, raw.write, raw.read_one,
                raw.read_many);
    for (const bool direct : {true, false}) {
      const auto t = measure_tier(set, directory, threads, direct, part, passes);
      std::printf("| tier, %s | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) | %.2f / %.2f |\n",
                  direct ? "direct (cold)" : "page cache (warm)", t.put_batch, t.put_batch / raw.write,
                  t.put_one, t.put_one / raw.write, t.get_one, t.get_one / raw.read_one, t.get_many,
                  t.get_many / raw.read_many, t.put_cpu, t.get_cpu);
    }
    std::printf("\n");
  }
}

/// One core, parts of 256 KiB out of memory and into it.
void bench_codes(const block_set& set, const char* name, int passes) {
  constexpr std::size_t part = 256 * KiB;
  const std::span<const std::byte> all{set.memory.base(), set.block_bytes * set.count / part * part};
  std::vector<std::byte> packed(float_packing::bound(part)), sums(all.size());
  std::vector<double> packs, unpacks, copies;
  for (int pass = 0; pass < passes; ++pass) {
    seconds packing = 0, unpacking = 0;
    for (std::size_t at = 0; at < all.size(); at += part) {
      std::size_t n = 0;
      packing += time_of([&] { n = float_packing::pack(all.subspan(at, part), packed); });
      bool good = n > 0;
      unpacking += time_of([&] {
        good = good && float_packing::unpack(std::span{packed}.first(n), std::span{sums}.subspan(at, part));
      });
      if (!good) give_up("a part does not pack");
    }
    const auto gigabytes = static_cast<double>(all.size()) / 1e9;
    packs.push_back(gigabytes / packing);
    unpacks.push_back(gigabytes / unpacking);
    copies.push_back(gigabytes / time_of([&] { std::memcpy(sums.data(), all.data(), all.size()); }));
  }
  std::printf("%s: packed at %.2f, unpacked at %.2f, copied at %.2f GB/s a core\n", name, median(packs),
              median(unpacks), median(copies));
}

void bench_packing(const std::string& directory, int passes) {
  struct kind {
    const char* name;
    std::vector<std::byte> (*make)(std::size_t, std::mt19937_64&);
  };
  constexpr std::size_t size = 1474560, layers = 30;
  const auto part = layers_per_part(size / layers, layers) * (size / layers);
  for (const auto& k : {kind{"BF16", test::bf16_numbers}, kind{"F16", test::f16_numbers}}) {
    const block_set set(size, 240 * MiB / size, k.make);
    bench_codes(set, k.name, passes);
    const auto raw = measure_raw(set, directory, 4, passes);
    std::printf(
        "| %s | bytes to one stored | write, batches | read, one by one | read, many | processor s/GB, write "
        "/ read |\n"
        "| --- | --- | --- | --- | --- | --- |\n",
        k.name);
    std::printf("| raw file, O_DIRECT | 1 | %.2f | %.2f | %.2f | |\n", raw.write, raw.read_one,
                raw.read_many);
    for (const bool pack : {false, true}) {
      const auto t = measure_tier(set, directory, 4, true, part, passes, pack);
      std::printf("| %s | %.3f | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) | %.2f / %.2f |\n",
                  pack ? "packed" : "as they are", t.packs, t.put_batch, t.put_batch / raw.write, t.get_one,
                  t.get_one / raw.read_one, t.get_many, t.get_many / raw.read_many, t.put_cpu, t.get_cpu);
    }
    std::printf("\n");
  }
}

void row(const char* what, double operations, seconds t) {
  std::printf("| %s | %.2f M/s |\n", what, operations / t / 1e6);
}

void bench_bookkeeping() {
  std::printf("Bookkeeping, one thread\n\n| operation | rate |\n| --- | --- |\n");
  constexpr std::size_t n = 1 << 20;
  std::mt19937_64 random(1);
  {
    // The allocator never touches the memory, so a million slots need no memory behind them.
    auto slots = must(block_allocator::create({reinterpret_cast<std::byte*>(4096), n * 4096}, 4096));
    row("allocate + free a slot, 1M slots", n, time_of([&] {
          for (std::size_t i = 0; i < n; ++i) (void)slots.allocate();
          for (std::size_t i = 0; i < n; ++i) (void)slots.free(static_cast<std::uint32_t>(i));
        }));
  }
  for (const auto policy : {eviction_policy::lru, eviction_policy::lfu, eviction_policy::length_aware}) {
    prefix_tree tree;
    auto& index = tree.open(storage_tier::dram, {policy, true});
    std::vector<block_name> names;
    for (std::size_t i = 0; i < n; ++i) {
      const auto depth = static_cast<std::uint32_t>(i % 64);
      names.push_back({{random(), random()}, depth ? names.back().key : block_key{}, depth});
    }
    std::uint64_t now = 0;
    const std::string name(to_string(policy));
    row((name + ": insert, up to 1M blocks").c_str(), n, time_of([&] {
          for (const auto& b : names) index.insert(b.key, b.parent, b.depth, ++now);
        }));
    row((name + ": find + touch a prompt's block among 1M").c_str(), n, time_of([&] {
          for (std::size_t i = 0; i < n / 64; ++i)
            for (std::size_t d = 0, p = random() % (n / 64); d < 64; ++d)
              tree.touch(index.find(names[p * 64 + d].key), now + i);
          now += n;
        }));
    row((name + ": evict one, insert one at 1M blocks").c_str(), n, time_of([&] {
          for (std::size_t i = 0; i < n; ++i) {
            const auto h = index.victim();
            const auto key = tree.key(h);
            const auto depth = tree.depth(h);
            index.erase(h);
            index.insert({key.high + 1, key.low}, {}, depth & 0, ++now);
          }
        }));
  }
  auto slots = must(block_allocator::create({reinterpret_cast<std::byte*>(4096), (n / 4) * 4096}, 4096));
  block_store store(std::move(slots));
  std::uint64_t owner = 0;
  std::vector<std::vector<block_key>> prompts;
  row("reserve + commit + release a block with eviction, 256k slots, prompts of 64", n, time_of([&] {
        for (std::size_t p = 0; p < n / 64; ++p) {
          const owner_id me{++owner};
          const auto given = must(store.reserve(me, 64, time_point::max()));
          block_key parent{};
          prompts.emplace_back();
          for (std::uint32_t d = 0; d < 64; ++d) {
            const block_key key{random(), random()};
            must(store.commit(me, given[d].index, {key, parent, d}, 0));
            prompts.back().push_back(parent = key);
          }
          store.release_all(me);
          (void)store.drain_events();
        }
      }));
  const std::size_t resident = n / 4 / 64, first = prompts.size() - resident;
  row("match a block, prompts of 64", n, time_of([&] {
        std::size_t found = 0;
        for (std::size_t p = 0; p < n / 64; ++p)
          found += store.match(prompts[first + random() % resident]).dram;
        if (found == 0) give_up("nothing matched");
      }));
  row("pin + release a block, prompts of 64", n, time_of([&] {
        for (std::size_t p = 0; p < n / 64; ++p) {
          const owner_id me{++owner};
          (void)must(store.pin(prompts[first + random() % resident], me, time_point::max()));
          store.release_all(me);
        }
      }));
}

/// The device's side of a node: passes over prompts of 32 blocks, the next of which is there or takes the
/// place of another, and a look at what to write next after each.
class device_side {
 public:
  device_side(std::shared_ptr<prefix_tree> tree, const std::vector<std::vector<block_key>>& prompts)
      : tree_(std::move(tree)), prompts_(prompts), residency_(blocks, 16, 0, tree_) {}

  void pass() {
    const auto& keys = prompts_[random_() % prompts_.size()];
    const auto end = static_cast<std::uint32_t>(keys.size()) * 16;
    const auto sequence = ++sequence_;
    std::uint64_t ticket = 0;
    {
      const std::lock_guard lock(tree_->mutex());
      ticket = residency_.take({sequence, keys, end - 16, end, true}).value().ticket;
    }
    {
      const std::lock_guard lock(tree_->mutex());
      residency_.give_back(ticket, end);
      residency_.let_go(sequence);
    }
    const std::lock_guard lock(tree_->mutex());
    if (const auto w = residency_.next_write(blocks / 8))
      residency_.wrote(w->id, static_cast<std::uint32_t>(w->chain.size()));
  }

 private:
  static constexpr std::uint32_t blocks = 1 << 15;
  std::shared_ptr<prefix_tree> tree_;
  const std::vector<std::vector<block_key>>& prompts_;
  kv_residency residency_;
  std::mt19937_64 random_{7};
  std::uint64_t sequence_ = 0;
};

/// A pin of 32 blocks on a tree that the device walks, too, beside one that it does not.
void bench_shared_tree() {
  std::printf(
      "A node's tree under two threads: pin + release of 32 blocks, and the device's passes beside it\n\n");
  std::printf(
      "| | pin, us: median | 99 %% | 99.9 %% | device pass, us: mean |\n| --- | --- | --- | --- | --- |\n");
  constexpr std::size_t n = 1 << 18;
  std::mt19937_64 random(3);
  std::vector<std::vector<block_key>> prompts(n / 32);
  for (auto& p : prompts)
    for (int d = 0; d < 32; ++d) p.push_back({random(), random()});
  enum class beside { nobody, own_tree, same_tree };
  for (const auto with : {beside::nobody, beside::own_tree, beside::same_tree}) {
    const auto tree = std::make_shared<prefix_tree>();
    block_store store(must(block_allocator::create({reinterpret_cast<std::byte*>(4096), n * 4096}, 4096)), {},
                      tree);
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      const auto given = must(store.reserve(owner_id{p + 1}, 32, time_point::max()));
      for (std::uint32_t d = 0; d < 32; ++d)
        must(store.commit(owner_id{p + 1}, given[d].index, {prompts[p][d], prompts[p][d == 0 ? 0 : d - 1], d},
                          0));
      store.release_all(owner_id{p + 1});
      (void)store.drain_events();
    }
    device_side device(with == beside::same_tree ? tree : std::make_shared<prefix_tree>(), prompts);
    std::atomic<bool> over{false};
    std::uint64_t passes = 0;
    seconds passing = 0;
    std::thread other([&] {
      while (with != beside::nobody && !over.load()) {
        passing += time_of([&] { device.pass(); });
        ++passes;
      }
    });
    std::vector<double> took;
    for (std::uint64_t i = 0; i < 100'000; ++i) {
      const owner_id me{n + i};
      const auto& keys = prompts[random() % prompts.size()];
      took.push_back(time_of([&] {
        {
          const std::lock_guard lock(tree->mutex());
          (void)must(store.pin(keys, me, time_point::max()));
        }
        const std::lock_guard lock(tree->mutex());
        store.release_all(me);
      }));
      if (i % 64 == 0) {
        const std::lock_guard lock(tree->mutex());
        (void)tree->drain_events();
      }
    }
    over = true;
    other.join();
    std::sort(took.begin(), took.end());
    const auto at = [&](double share) { return took[static_cast<std::size_t>(share * 99'999)] * 1e6; };
    const char* const names[] = {"nobody beside it", "a device on a tree of its own",
                                 "the device on the same tree"};
    std::printf("| %s | %.1f | %.1f | %.1f | %.1f |\n", names[static_cast<int>(with)], at(0.5), at(0.99),
                at(0.999), passes == 0 ? 0.0 : passing / static_cast<double>(passes) * 1e6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::setlinebuf(stdout);
  std::string directory = ".";
  bool full = false, packing = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0) full = true;
    else if (std::strcmp(argv[i], "--packing") == 0) packing = true;
    else directory = argv[i];
  }
  directory += "/mooncaf-storage-bench";
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  if (failed) give_up("cannot make " + directory + ": " + failed.message());
  if (!packing) {
    bench_bookkeeping();
    std::printf("\n");
    bench_shared_tree();
    std::printf("\n");
    bench_ssd(directory, full);
  }
  bench_packing(directory, full ? 5 : 3);
  std::filesystem::remove_all(directory, failed);
}
