// Options of the object store, as its directory and the nodes that mount memory take them: a part of the
// table of declarations.cpp.

#include "config/declaration_kinds.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/wire/store_version.hpp"

namespace mooncaf::config {

using namespace std::chrono_literals;

/// `mooncaf store directory` takes these, too, without the "store-".
static void add_directory(table& t) {
  const auto c = &options::store;
  const std::string s = "store", who = "conductor";
  t.push_back(time({"store-lease", "lease", "How long a look protects an object of the store", who}, s,
                   at(c, &store_options::lease), 1ms, 1h));
  t.push_back(
      time({"store-recovery", "recovery",
            "How long a directory waits for the first segment that an earlier one knew; for the others "
            "five times as long",
            who},
           s, at(c, &store_options::recovery), 0s, 1h));
  t.push_back(choice({"store-eviction", "eviction",
                      "Which objects leave first; cost_aware: what costs least "
                      "to lose, by the costs that puts name and by what "
                      "was wanted again before",
                      who},
                     s, at(c, &store_options::eviction)));
  t.push_back(real({"store-high-watermark", "high_watermark",
                    "Share of the mounted memory above which objects are evicted", who},
                   s, at(c, &store_options::high_watermark), 0.01, 1, false));
  t.push_back(real({"store-low-watermark", "low_watermark", "Share of it down to which they are", who}, s,
                   at(c, &store_options::low_watermark), 0, 1, false));
  t.push_back(
      real({"store-hot-reads", "hot_reads",
            "Reads a second of one object above which it gets a replica on another host, in memory that is "
            "free; given up when it is read less; 0: never",
            who},
           s, at(c, &store_options::hot_reads_per_s), 0, 1e6, false));
  t.push_back(integer<store_options, std::uint32_t>(
      {"store-hot-replicas", "hot_replicas", "Replicas that such an object has at most", who}, s,
      at(c, &store_options::hot_replicas), 2, 16, ""));
  t.push_back(
      text({"store-tenants-file", "tenants_file",
            "TOML with a token for each tenant of the store, and its quota; empty: there are none", who},
           s, at(c, &store_options::tenants_file), "FILE"));
  t.push_back(
      text({"store-state", "state",
            "Folder for what the next directory at this address has to know of SSDs; empty: one beside the "
            "user's secret",
            who},
           s, at(c, &store_options::state_folder), "DIR"));
}

static void add_shards(table& t) {
  t.push_back(integer<store_options, std::uint32_t>(
      {"store-shards", "shards",
       "Threads among which the objects are divided by their keys; each has an even part of what every "
       "process "
       "mounts. Another number than before begins an empty store",
       "conductor"},
      "store", at(&options::store, &store_options::shards), 1, 16, "shards"));
}

static void add_protocol(table& t) {
  t.push_back(integer<store_options, std::uint32_t>(
      {"store-protocol", "protocol",
       "Newest version of the object store's protocol that this process knows: lower than it is, the process "
       "behaves as the "
       "release before, to rehearse an upgrade. The others speak with it as it knows",
       "conductor, cache"},
      "store", at(&options::store, &store_options::protocol), store_wire::oldest, store_wire::newest, ""));
}

/// One section for the directory and for nodes that mount memory, since a process may be both.
void add_store(table& t) {
  const auto c = &options::store;
  const std::string s = "store";
  t.push_back(optional_endpoint({"store-listen", "listen",
                                 "Where the directory of the object store for other engines answers; of "
                                 "several conductors each has one, "
                                 "and that of the leader serves; empty: there is none, but without a model "
                                 "it is port 7460 of listen's host",
                                 "conductor"},
                                s, at(c, &store_options::listen), 0));
  t.push_back(size(
      {"store-dram", "dram",
       "Memory mounted in the object store, where the conductor carries its directory; 0B: none", "cache"},
      s, at(c, &store_options::dram_bytes), 0, 16'384 * GiB));
  t.push_back(size(
      {"store-dram-shared", "dram_shared",
       "Memory for objects and KV blocks, beside store-dram and cache-dram, which each has for itself: it "
       "goes to those that would have to give up what was used more lately. What a NIC or a device has "
       "registered cannot change hands, so where there is a NIC rdma has to be off, and a device must not "
       "have memory of its own; 0B: none",
       "cache"},
      s, at(c, &store_options::shared_bytes), 0, 16'384 * GiB));
  t.push_back(
      text({"store-ssd-path", "ssd_path",
            "Folder on an SSD, mounted in the object store beside store-dram, for what that has no room "
            "for; it survives a restart; empty: none",
            "cache"},
           s, at(c, &store_options::ssd_path), "DIR"));
  t.push_back(size({"store-ssd-size", "ssd", "Room for objects there", "cache"}, s,
                   at(c, &store_options::ssd_bytes), 16 * MiB, 1'048'576 * GiB));
  t.push_back(
      choice({"store-write-policy", "write_policy",
              "When an object goes to SSD: when it leaves memory, at once, or after some uses", "cache"},
             s, at(c, &store_options::write_policy)));
  t.push_back(integer({"store-selective-hits", "selective_hits",
                       "Uses after which write_through_selective writes an object", "cache"},
                      s, at(c, &store_options::selective_hits), 1u, 1000u, "uses"));
  t.push_back(integer({"store-promote-hits", "promote_hits",
                       "Uses after which an object that was read from SSD stays in memory", "cache"},
                      s, at(c, &store_options::promote_hits), 1u, 1000u, "uses"));
  t.push_back(integer<store_options, std::uint16_t>(
      {"store-endpoint-port", "endpoint_port",
       "Port of the segment's endpoint, where tenants' clients read and write; 0: any free one", "cache"},
      s, at(c, &store_options::endpoint_port), 0, 65535, ""));
  t.push_back(text(
      {"store-location", "location",
       "Where this host stands, from the widest to the closest, such as row2/rack7: replicas lie far from "
       "each other, an object's first near its writer; empty: nobody knows",
       "cache"},
      s, at(c, &store_options::location), "WHERE"));
  add_directory(t);
  add_shards(t);
  add_protocol(t);
}

}  // namespace mooncaf::config
