// The orders of `--l2-layout` under a trace: a node's tiers as the server has them, with real bytes, in each
// order and by the size of a page.
//
//   mooncaf_l2_trace_bench [TRACE.jsonl [FOLDER [ROUNDS]]]
//
// Of each prompt in turn: what memory lacks is read from SSD, what the device lacks is loaded layer by layer,
// the rest is "computed" in no time and stored layer by layer, committed, and written to SSD; then the whole
// prompt leaves layer by layer for a peer over TCP on this machine. The link has no limit of its own. Of a
// trace only what belongs to conversations of three turns or more is used; without one, conversations are
// made up. Prints Markdown: tokens found in each tier, GB moved, GB/s while moving, and seconds of
// everything.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gpu/linked/linked_device.hpp"
#include "runtime/compute/kv_stream.hpp"
#include "runtime/model/kv_mirror.hpp"
#include "runtime/sched/link_book.hpp"
#include "runtime/sim/trace_source.hpp"
#include "storage/arena.hpp"
#include "storage/io_job.hpp"
#include "storage/tiered_store.hpp"
#include "tests/bench/bench_model.hpp"
#include "transport/data_plane.hpp"

using namespace mooncaf;
using namespace mooncaf::bench;

namespace {

constexpr std::uint32_t id_tokens = 256;  // that a block of the trace stands for
constexpr std::uint32_t longest = 16 * id_tokens;
constexpr std::uint32_t device_tokens = 2 * longest, memory_tokens = 6 * longest;
constexpr int least_turns = 3;
constexpr std::size_t prompts_used = 64;

using prompt_ids = std::vector<std::uint64_t>;

/// Bytes that went one way, and for how long.
struct flow {
  double bytes = 0, seconds = 0;

  void add(double more, const auto& work) {
    const auto began = clock_type::now();
    work();
    seconds += to_seconds(clock_type::now() - began);
    bytes += more;
  }
  double rate() const { return seconds > 0 ? 1e-9 * bytes / seconds : 0; }
};

struct outcome {
  flow load, store, to_ssd, from_ssd, network;
  std::uint64_t asked = 0, on_device = 0, in_memory = 0, on_ssd = 0;  // tokens
  double seconds = 0;
};

std::vector<prompt_ids> made_up() {
  std::vector<prompt_ids> out;
  for (std::uint64_t turn = 0; turn < 4; ++turn) {
    for (std::uint64_t talk = 0; talk < 16; ++talk) {
      prompt_ids ids{0};
      for (std::uint64_t i = 0; i < 3 * (turn + 1); ++i) ids.push_back(1000 * (talk + 1) + i);
      out.push_back(std::move(ids));
    }
  }
  return out;
}

std::vector<prompt_ids> of_trace(const std::string& path) {
  const auto records = unwrap(sim::load_trace(path));
  const auto first = std::min<std::size_t>(records.size(), 1000);
  std::map<std::uint64_t, int> turns;  // by what follows the system prompt, which all share
  for (std::size_t i = 0; i < first; ++i)
    if (records[i].hash_ids.size() > 1) ++turns[records[i].hash_ids[1]];
  std::vector<prompt_ids> out;
  for (std::size_t i = 0; i < first && out.size() < prompts_used; ++i) {
    auto ids = records[i].hash_ids;
    if (ids.size() < 2 || turns[ids[1]] < least_turns) continue;
    ids.resize(std::min<std::size_t>(ids.size(), longest / id_tokens));
    out.push_back(std::move(ids));
  }
  if (out.empty()) die(path + " has no conversation of so many turns among its first 1,000 requests");
  return out;
}

kv_layout layout_of(page_order order, std::uint32_t page_tokens) {
  kv_layout l{30, 3, 64, page_tokens, kv_dtype::f16};
  l.pages = order;
  return l;
}

/// A node of the data plane, and memory that its peer may write.
struct endpoint {
  endpoint(std::uint64_t node, arena& memory) {
    data_plane_options o;
    o.node.value = node;
    o.cluster_secret = "of this bench alone";
    o.shm = false;
    plane = unwrap(data_plane::start(o, [](const landing&) {}));
    region = unwrap(plane->register_region(memory.bytes(), memory.fd())).id;
  }
  void meet(const endpoint& other) const {
    const auto there = other.plane->local_announcement();
    if (auto met = plane->add_peer(there.address, there.regions); !met) die(to_string(met.error()));
  }
  std::shared_ptr<data_plane> plane;
  region_id region;
};

/// One node with three tiers, and a peer.
class tiers_of_node {
 public:
  tiers_of_node(const kv_layout& layout, const std::string& folder)
      : layout_(layout),
        memory_(unwrap(arena::create("pages", layout.pieces().bytes_for(layout.blocks_for(memory_tokens))))),
        peer_memory_(unwrap(arena::create("peer", layout.pieces().bytes_for(layout.blocks_for(longest))))),
        device_(unwrap(make_linked_device({{}, {0, {}}, 2}))),
        kv_(unwrap(device_kv::make(*device_, layout, layout.blocks_for(device_tokens) * layout.block_bytes(),
                                   longest))),
        mirror_(*device_, kv_, kv_->layout()),
        ssd_(open_ssd(layout, folder)),
        store_(unwrap(block_allocator::create(memory_.bytes(), layout.pieces())), store_options(layout)),
        here_(1, memory_),
        there_(2, peer_memory_) {
    here_.meet(there_);
    there_.meet(here_);
    fill_device();
  }

  outcome replay(const std::vector<prompt_ids>& prompts) {
    const auto began = clock_type::now();
    for (const auto& ids : prompts) serve(ids);
    auto out = seen_;
    out.seconds = to_seconds(clock_type::now() - began);
    return out;
  }

 private:
  static std::unique_ptr<rocksdb_tier> open_ssd(const kv_layout& layout, const std::string& folder) {
    std::filesystem::remove_all(folder);
    rocksdb_tier_options o;
    o.path = folder;
    o.block_bytes = layout.block_bytes();
    o.fingerprint = {1, 2};
    o.capacity_blocks = layout.blocks_for(prompts_used * longest);
    return unwrap(rocksdb_tier::open(o));
  }
  static tiered_store_options store_options(const kv_layout& layout) {
    tiered_store_options o;
    o.ssd = true;
    o.ssd_capacity_blocks = layout.blocks_for(prompts_used * longest);
    o.write = write_policy::write_through;
    return o;
  }

  /// What a pass "computes" is what lies in its blocks: no zeros, which disks may know.
  void fill_device() {
    std::mt19937_64 random{1};
    for (std::size_t i = 0; i < memory_.size_bytes(); i += sizeof(std::uint64_t)) {
      const auto word = random();
      std::memcpy(memory_.base() + i, &word, sizeof word);
    }
    const auto queue = device_->make_copy_queue();
    for (std::uint32_t b = 0; b < kv_->stats().blocks; ++b) {
      const kv_copy all{kv_->block(b), memory_.base() + b * layout_.block_bytes(), layout_.block_bytes(), 0,
                        1};
      queue->load({&all, 1});
    }
    wait_for(queue->record());
  }

  void serve(const prompt_ids& ids) {
    const owner_id owner{++owners_};
    const auto page = layout_.block_tokens;
    const auto tokens = static_cast<std::uint32_t>(ids.size()) * id_tokens;
    std::vector<block_key> keys;
    for (const auto id : ids)
      for (std::uint32_t i = 0; i < id_tokens / page; ++i) keys.push_back({id + 1, i + 1});
    // The last token is always computed.
    auto slots = pinned(std::span{keys}.first((tokens - 1) / page), owner);
    const auto have = static_cast<std::uint32_t>(slots.size());
    for (const auto& slot : unwrap(store_.reserve(owner, keys.size() - have, time_point::max())))
      slots.push_back(slot);
    pass(keys, slots, have, tokens, owner.value);
    for (auto b = have; b < keys.size(); ++b) {
      const auto sum = checksum64(slots[b].address, layout_.pieces());
      (void)unwrap(store_.commit(owner, slots[b].index, {keys[b], keys[b == 0 ? 0 : b - 1], b}, sum));
    }
    run_disk();
    send(slots, tokens);
    store_.release_all(owner);
    run_disk();
    seen_.asked += tokens;
  }

  /// Leading pages, once they are in memory.
  std::vector<slot_ref> pinned(std::span<const block_key> keys, owner_id owner) {
    auto reply = unwrap(store_.pin(keys, owner, time_point::max()));
    auto& found = reply.pinned;
    std::uint32_t from_ssd = 0;
    if (reply.ticket) {
      run_disk();
      for (auto& ready : store_.take_ready()) {
        found = std::move(ready.pinned);
        from_ssd = ready.from_ssd;
      }
    }
    std::vector<slot_ref> slots;
    for (const auto& b : found.blocks) slots.push_back(b.slot);
    seen_.on_ssd += from_ssd * layout_.block_tokens;
    seen_.in_memory += (slots.size() - from_ssd) * layout_.block_tokens;
    return slots;
  }

  void run_disk() {
    for (auto jobs = store_.take_io_jobs(); !jobs.empty(); jobs = store_.take_io_jobs()) {
      std::vector<io_result> results;
      for (std::size_t at = 0, n = 0; at < jobs.size(); at += n) {
        for (n = 1; at + n < jobs.size() && jobs[at + n].what == jobs[at].what;) ++n;
        const auto run = std::span{jobs}.subspan(at, n);
        flow other;
        auto& way = jobs[at].what == io_job::kind::read    ? seen_.from_ssd
                    : jobs[at].what == io_job::kind::write ? seen_.to_ssd
                                                           : other;
        way.add(static_cast<double>(n * layout_.block_bytes()), [&] {
          for (auto& r : execute(run, *ssd_, layout_.pieces())) results.push_back(std::move(r));
        });
      }
      for (const auto& r : results)
        if (!r.ok()) die(to_string(r.failure));
      store_.complete(results);
    }
  }

  void pass(std::span<const block_key> keys, std::span<const slot_ref> slots, std::uint32_t have,
            std::uint32_t tokens, std::uint64_t sequence) {
    const auto before = kv_->stats();
    const std::vector<std::int32_t> none(tokens - have * layout_.block_tokens);
    std::vector<std::byte*> pages;
    for (const auto& s : slots) pages.push_back(s.address);
    batch_item item;
    item.tokens = none;
    item.start = have * layout_.block_tokens;
    item.blocks = pages;
    item.sequence = sequence;
    item.keys = keys;
    if (mirror_.begin({&item, 1}) != 1) die("the device has no room");
    seen_.load.add(0, [&] {
      for (std::uint32_t l = 0; l < layout_.n_layers; ++l) mirror_.load(l);
      for (std::uint32_t l = 0; l < layout_.n_layers; ++l) wait_for(mirror_.loaded(l));
    });
    seen_.store.add(0, [&] {
      for (std::uint32_t l = 0; l < layout_.n_layers; ++l) mirror_.store(l, nullptr);
      for (std::uint32_t l = 0; l < layout_.n_layers; ++l) wait_for(mirror_.stored(l));
    });
    mirror_.end(true);
    const auto after = kv_->stats();
    seen_.load.bytes += static_cast<double>(after.loaded_bytes - before.loaded_bytes);
    seen_.store.bytes += static_cast<double>(after.stored_bytes - before.stored_bytes);
    seen_.on_device += after.hit_tokens - before.hit_tokens;
  }

  void send(std::span<const slot_ref> slots, std::uint32_t tokens) {
    const attempt_id id{request_id{owners_}, 1};
    kv_stream::source from;
    from.region = here_.region;
    from.prompt_tokens = tokens;
    kv_target to{id, node_id{2}, there_.region, 0, {}};
    for (std::uint32_t b = 0; b < slots.size(); ++b) {
      from.offsets.push_back(slots[b].offset);
      to.offsets.push_back(layout_.pieces().offset(b));
    }
    std::promise<bool> over;
    const auto stream =
        std::make_shared<kv_stream>(id, layout_, here_.plane, transfers_, links_, std::move(from),
                                    [&](bool delivered) { over.set_value(delivered); });
    seen_.network.add(static_cast<double>(tokens * layout_.bytes_per_token()), [&] {
      stream->set_target(to);
      for (std::uint32_t l = 0; l < layout_.n_layers; ++l) stream->layer_ready(l, 0, tokens);
      stream->finish([](std::uint32_t) {});
      if (!over.get_future().get()) die("the peer did not get a prompt");
    });
  }

  const kv_layout layout_;
  arena memory_, peer_memory_;
  std::unique_ptr<device> device_;
  std::shared_ptr<device_kv> kv_;
  kv_mirror mirror_;
  std::unique_ptr<rocksdb_tier> ssd_;
  tiered_store store_;
  endpoint here_, there_;
  std::shared_ptr<std::atomic<std::uint64_t>> transfers_ = std::make_shared<std::atomic<std::uint64_t>>(1);
  std::shared_ptr<link_book> links_ = std::make_shared<link_book>();
  std::uint64_t owners_ = 0;
  outcome seen_;
};

/// The faster of two rounds, way by way: a machine that does something else makes it slower, never faster.
void keep_best(outcome& best, const outcome& more) {
  if (best.asked == 0) best = more;
  for (const auto way :
       {&outcome::load, &outcome::store, &outcome::to_ssd, &outcome::from_ssd, &outcome::network})
    if ((more.*way).rate() > (best.*way).rate()) best.*way = more.*way;
  best.seconds = std::min(best.seconds, more.seconds);
}

void print(std::uint32_t page_tokens, std::string_view order, const outcome& o) {
  const auto share = [&](std::uint64_t tokens) {
    return 100.0 * static_cast<double>(tokens) / static_cast<double>(o.asked);
  };
  std::printf("| %u | %s | %.0f / %.0f / %.0f |", page_tokens, order.data(), share(o.in_memory),
              share(o.on_ssd), share(o.on_device));
  for (const auto& way : {o.load, o.store, o.to_ssd, o.from_ssd, o.network})
    std::printf(" %.2f (%.2f) |", way.rate(), 1e-9 * way.bytes);
  std::printf(" %.1f |\n", o.seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto prompts = argc > 1 ? of_trace(argv[1]) : made_up();
  const std::filesystem::path folder = argc > 2 ? argv[2] : std::filesystem::temp_directory_path();
  const auto files = (folder / ("mooncaf-l2-trace-" + std::to_string(::getpid()))).string();
  constexpr std::pair<page_order, std::string_view> orders[] = {
      {page_order::page_first_direct, "page_first_direct"},
      {page_order::page_first, "page_first"},
      {page_order::layer_first, "layer_first"}};
  const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 3;
  std::printf("%zu prompts, best of %d rounds by turns\n\n", prompts.size(), rounds);
  std::printf(
      "| tokens of a page | order | found in memory, on SSD, of both on the device, %% | L2 to L1, GB/s (GB) "
      "| L1 to L2 | L2 to SSD "
      "| SSD to L2 | L2 to a peer | seconds |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  std::fflush(stdout);
  for (const std::uint32_t page_tokens : {16u, 64u, 256u}) {
    outcome best[std::size(orders)];
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t o = 0; o < std::size(orders); ++o) {
        tiers_of_node node{layout_of(orders[o].first, page_tokens), files};
        keep_best(best[o], node.replay(prompts));
      }
    }
    for (std::size_t o = 0; o < std::size(orders); ++o) print(page_tokens, orders[o].second, best[o]);
  }
  std::filesystem::remove_all(files);
}
