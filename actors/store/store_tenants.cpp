// The command that says how much of the store each tenant has.

#include <nlohmann/json.hpp>

#include "actors/store/store_command.hpp"

namespace mooncaf::store {

// A limit that is not set is shown as none, never as the number that stands for it.
int list_tenants(std::span<const std::string> args, const sim::console& io) {
  common_arguments common;
  cli::command_line line{"mooncaf store tenants [options]",
                         "Who has a part of the store, how much of it, and what may be had.",
                         {},
                         {}};
  line.arguments = common.list();
  if (const auto status = begin(line, args, io)) return *status;
  const auto store = common.connect();
  if (!store) return complain(io, store.error(), 1);
  const auto all = (*store)->tenants();
  if (!all) return complain(io, all.error(), 1);
  nlohmann::json told = nlohmann::json::array();
  constexpr auto none = ~std::uint64_t{0};
  for (const auto& t : *all) {
    const auto used = t.counts.total_bytes - t.counts.free_bytes;
    nlohmann::json one{{"name", t.name},
                       {"objects", t.counts.objects},
                       {"used_bytes", used},
                       {"resting_bytes", t.counts.quarantined_bytes},
                       {"hits", t.counts.hits},
                       {"misses", t.counts.misses},
                       {"refused", t.counts.refused},
                       {"evictions", t.counts.evictions},
                       {"ssd_bytes", t.counts.disk_bytes},
                       {"quota_bytes", nullptr},
                       {"quota_ssd_bytes", nullptr},
                       {"quota_objects", nullptr}};
    if (t.limit.bytes != none) one["quota_bytes"] = t.limit.bytes;
    if (t.limit.disk_bytes != none) one["quota_ssd_bytes"] = t.limit.disk_bytes;
    if (t.limit.objects != none) one["quota_objects"] = t.limit.objects;
    told.push_back(one);
    if (common.json) continue;
    io.out << t.name << "  " << readable(used);
    if (t.limit.bytes != none) io.out << " of " << readable(t.limit.bytes);
    const bool on_ssd = t.counts.disk_bytes > 0 || t.limit.disk_bytes != none;
    if (on_ssd) io.out << "  SSD " << readable(t.counts.disk_bytes);
    if (t.limit.disk_bytes != none) io.out << " of " << readable(t.limit.disk_bytes);
    io.out << "  " << t.counts.objects;
    if (t.limit.objects != none) io.out << " of " << t.limit.objects;
    io.out << " objects\n";
  }
  if (common.json) io.out << told.dump(2) << "\n";
  return 0;
}

}  // namespace mooncaf::store
