#include <caf/scoped_actor.hpp>

#include "actors/process/process.hpp"
#include "config/value.hpp"
#include "runtime/base/host_place.hpp"
#include "runtime/log/log.hpp"
#include "storage/objects/disk/rocksdb_object_disk.hpp"

// The object store in a process: the directory that it carries, and the memory and SSD that it mounts.

namespace mooncaf {

result<void> process::open_directory() {
  objects_ =
      std::make_shared<store_share>(key_ring{secret_, std::string{store_key_purpose}}, opts().store.protocol);
  const auto at = directory_listen(opts());
  if (!at) return {};
  const auto place = conductor_place(opts().cluster);
  const auto port = objects_->open_directory(*at, opts().store, opts().cluster.join.size() < 2);
  if (!port) return fail(port.error());
  const auto& advertised = opts().cluster.advertise;
  info_.directory = to_string(host_port{advertised.empty() ? at->host : advertised, *port});
  objects_->directory_at(place.value_or(0) + 1, {at->host, *port});
  log_info("store", {{"directory", info_.directory}});
  return {};
}

// The segment takes no memory before the directory is known that it is mounted in.
result<void> process::mount_segment(std::uint16_t control_port) {
  const auto& o = opts();
  segment_mount_options segment;
  segment.name = o.cluster.name.empty() ? to_string(host_port{info_.host, control_port}) : o.cluster.name;
  segment.bytes = o.store.dram_bytes;
  segment.tcp = o.transport.tcp;
  segment.listen_host = o.transport.data_listen.host;
  // A node that holds blocks, too, gives their data plane the port that was asked for.
  segment.data_port = holds_blocks() ? 0 : o.transport.data_listen.port;
  segment.advertised_host = o.cluster.advertise;
  if (!o.store.ssd_path.empty()) {
    const disk_policy policy{o.store.write_policy, o.store.selective_hits, o.store.promote_hits};
    rocksdb_object_disk_options ssd{o.store.ssd_path, o.store.ssd_bytes, policy, o.cache.direct_io};
    ssd.pack = o.cache.ssd_pack;
    ssd.log = [](std::string_view text) { log_warn("store", {{"ssd", std::string{text}}}); };
    auto disk = rocksdb_object_disk::open(std::move(ssd));
    if (!disk) return fail(disk.error());
    segment.disk = std::move(*disk);
  }
  segment.endpoint_port = o.store.endpoint_port;
  segment.directory.own_host = host_at(o.store.location, this_host());
  if (o.store.shared_bytes > 0) {
    segment.shared_bytes = o.store.shared_bytes;
    segment.bytes += o.store.shared_bytes;
    segment.other = [this, shard = local_.shard](std::uint64_t withheld) {
      return ask_blocks(shard, withheld);
    };
  }
  objects_->mount(std::move(segment));
  return {};
}

/// @returns nothing where the shard is too busy, or gone; no memory changes hands then.
std::optional<boundary_report> process::ask_blocks(const cache_shard_actor& shard, std::uint64_t withheld) {
  constexpr auto limit = std::chrono::seconds(2);
  std::optional<boundary_report> stands;
  caf::scoped_actor self{*system_};
  self->request(shard, limit, withhold_atom_v, withheld)
      .receive(
          [&](const boundary_state& s) {
            stands = {s.withheld_bytes, s.bytes, s.idle_bytes, s.taken_bytes, {}};
            if (s.coldest_ns >= 0) stands->coldest = duration{s.coldest_ns};
          },
          [](const caf::error&) {});
  return stands;
}

void process::directory_found(const node_info& conductor) {
  const bool own = !info_.directory.empty();
  if (conductor.directory.empty()) {
    if (own)
      log_warn("store", {{"conductor", conductor.name},
                         {"problem",
                          "it carries no directory, so there is no object store while it leads; give it "
                          "--store-listen"}});
    return;
  }
  auto at = config::parse_endpoint(conductor.directory);
  if (!at || at->port == 0)
    return log_warn("store", {{"problem", "no directory can be at " + conductor.directory}});
  // A directory that listens on all addresses is reached as its conductor is.
  if (at->host == "0.0.0.0" || at->host == "::") at->host = conductor.host;
  objects_->directory_at(conductor.seat, *at);
}

}  // namespace mooncaf
