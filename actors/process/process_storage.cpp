#include <caf/scoped_actor.hpp>

#include "actors/cache_shard.hpp"
#include "actors/executor.hpp"
#include "actors/messenger.hpp"
#include "actors/metrics/metrics.hpp"
#include "actors/pool_keeper.hpp"
#include "actors/process/process.hpp"
#include "actors/process/rdma_setup.hpp"
#include "runtime/compute/kv_piece.hpp"
#include "runtime/log/log.hpp"
#include "runtime/sched/block_hash.hpp"
#include "runtime/sched/link_book.hpp"
#include "storage/disk_probe.hpp"

// The storage of a process: arena, data plane, shard, SSD tier.

namespace mooncaf {

result<void> process::open_memory() {
  auto memory = arena::create("mooncaf-kv", opts().cache.dram_bytes + opts().store.shared_bytes);
  if (!memory) return fail(memory.error());
  context_->memory = std::make_shared<arena>(std::move(*memory));
  const auto& layout = context_->layout;
  const auto room = opts().cache.dram_bytes / layout.block_bytes() * layout.block_tokens;
  const auto wanted = opts().model.context_length;
  const auto context = wanted > 0 ? wanted : context_->shape.context_length;
  if (computes() && room < context) {
    log_warn("memory",
             {{"message", "cache-dram holds less than one context: what is longer cannot be served here"},
              {"cache-dram tokens", std::to_string(room)},
              {"context tokens", std::to_string(context)}});
  }
  return {};
}

/// The arena is registered at once and as one region: peers are told of it in this node's introduction.
result<void> process::open_data_plane() {
  data_plane_options options;
  options.node = context_->id;
  options.cluster_secret = {secret_, "data plane v1"};
  const auto& t = opts().transport;
  options.tcp = t.tcp;
  options.shm = t.shm;
  options.listen_host = t.data_listen.host;
  options.data_port = t.data_listen.port;
  options.advertised_host = opts().cluster.advertise;
  options.tcp_streams = t.tcp_streams;
  options.tcp_send_buffer = t.tcp_send_buffer;
  options.slice_bytes = t.slice_bytes;
  options.checksums = t.checksums;
  auto rdma = as_rdma_options(opts());
  if (!rdma) return fail(rdma.error());
  options.rdma = std::move(*rdma);
  auto plane = data_plane::start(options, [board = board_, notices = group_.notices()](const landing& l) {
    if (!notices->take(l)) board->landed(l.tag.request.value, l.verified, piece_of(l.tag));
  });
  if (!plane) return fail(plane.error());
  context_->plane = std::move(*plane);
  for (const auto& note : context_->plane->rdma_notes()) log_info("rdma", {{"message", note}});
  context_->links = std::make_shared<link_book>();
  if (!context_->memory) return {};  // a rank's
  auto region = context_->plane->register_region(context_->memory->bytes(), context_->memory->fd());
  if (!region) return fail(region.error());
  context_->region = *region;
  return {};
}

result<void> process::check_shared_memory() {
  if (opts().store.shared_bytes == 0) return {};
  if (context_->layout.pieces().count > 1)
    return fail(
        ec::invalid_argument,
        "store-dram-shared: blocks that lie in pieces (l2-layout) have no pages of their own to give; leave "
        "l2-layout as it is, or give no --store-dram-shared");
  if (const auto rails = context_->plane->rails(); !rails.empty())
    return fail(ec::invalid_argument, "store-dram-shared: a NIC (" + rails.front().name +
                                          ") keeps the pages of memory that it has registered, so none could "
                                          "change hands; give --no-rdma, or no --store-dram-shared");
  return {};
}

/// A disk that is full takes no tier; the node serves all the same.
result<void> process::open_ssd(std::vector<ssd_block>& found) {
  const auto& c = opts().cache;
  rocksdb_tier_options ssd;
  ssd.path = c.ssd_path;
  ssd.block_bytes = context_->layout.block_bytes();
  ssd.part_bytes = context_->disk_part_layers * context_->layout.layer_bytes();
  ssd.fingerprint = root_key(context_->root, context_->layout);
  ssd.capacity_blocks = c.ssd_bytes / ssd.block_bytes;
  ssd.direct_io = c.direct_io;
  ssd.pack = c.ssd_pack;
  ssd.log = [](std::string_view line) { log_info("ssd", {{"message", line}}); };
  auto tier = rocksdb_tier::open(std::move(ssd), [&](const ssd_block& b) { found.push_back(b); });
  const bool full = !tier && tier.error() == ec::out_of_space;
  if (!tier && !full) return fail(tier.error());
  context_->meters->set(series::ssd, full ? 1 : 0, {"absent"});
  if (full) {
    log_warn("ssd", {{"problem", to_string(tier.error())}, {"effect", "blocks live in memory alone"}});
    return {};
  }
  ssd_ = std::move(*tier);
  context_->meters->set(series::ssd, ssd_->stats().repaired ? 1 : 0, {"repaired"});
  log_info("ssd", {{"path", c.ssd_path}, {"blocks found", std::to_string(found.size())}});
  auto samples = probe_reads(*ssd_, found, context_->layout.block_bytes());
  if (samples.empty()) samples = probe_folder(c.ssd_path, std::chrono::milliseconds(100));
  for (const auto& s : samples) disk_price_.observe(s.bytes, s.took);
  log_info("ssd",
           {{"reads, MB/s", std::to_string(static_cast<std::uint64_t>(disk_price_.bytes_per_s() / 1e6))}});
  return {};
}

result<tiered_store> process::open_store() {
  const auto& c = opts().cache;
  const auto block = context_->layout.block_bytes();
  auto slots = block_allocator::create(context_->memory->bytes(), context_->layout.pieces());
  if (!slots) return fail(slots.error());
  tiered_store_options options;
  options.dram.eviction.policy = c.eviction;
  options.ssd_eviction.policy = c.eviction;
  options.write = c.write_policy;
  options.selective_hits = c.selective_hits;
  options.device_gives_back = opts().model.device_write_policy == write_policy::write_back;
  std::vector<ssd_block> found;
  if (!c.ssd_path.empty()) {
    if (auto opened = open_ssd(found); !opened) return fail(opened.error());
    options.ssd = ssd_ != nullptr;
    if (ssd_) options.ssd_capacity_blocks = ssd_->stats().held.fitting(c.ssd_bytes) / block;
  }
  tiered_store store{std::move(*slots), options, context_->blocks};
  store.recover(found);
  return store;
}

result<void> process::spawn_shard() {
  auto store = open_store();
  if (!store) return fail(store.error());
  local_.shard = spawn_vital<cache_shard>("cache shard", context_, std::move(*store), ssd_, new_executor(),
                                          disk_price_, duration{opts().cache.lease_ttl});
  local_.messenger = spawn_vital<messenger>("messenger", context_, new_executor());
  // Copies of other nodes' blocks: all of them, where nothing is computed; hot ones elsewhere.
  local_.keeper = spawn_vital<pool_keeper>("pool keeper", context_, local_.shard, local_.messenger);
  info_.keeper = caf::actor_cast<caf::actor>(local_.keeper);
  return {};
}

// The flush comes while everything still runs: requests that are under way go on.
void process::flush() {
  const auto limit = opts().cache.flush_limit;
  if (!ssd_ || limit <= duration::zero()) return;
  caf::scoped_actor self{*system_};
  if (local_.writer)
    self->request(local_.writer, limit, flush_atom_v).receive([](std::uint64_t) {}, [](const caf::error&) {});
  self->request(local_.shard, limit, flush_atom_v)
      .receive(
          [](std::uint64_t blocks) {
            log_info("ssd", {{"blocks flushed", std::to_string(blocks)}});
          },
          [](const caf::error&) {
            log_info("ssd", {{"message", "the flush was cut short by flush-limit"}});
          });
}

}  // namespace mooncaf
