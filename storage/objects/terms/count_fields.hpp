#pragma once
// A line for each count of the store: its place on the wire (the order of the lines), its key in every JSON, and
// its series for scrapers.

#include <array>
#include <cstdint>

#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

struct count_field {
  std::uint64_t object_counts::*at;
  const char* key;
  const char* series;  ///< behind mooncaf_store_; a counter where it ends in _total; null: no scraper sees it
  const char* help = "";    ///< of the series
  bool of_tenants = false;  ///< mooncaf_store_tenant_… has it of each tenant, too
};

inline constexpr std::array count_fields{
    count_field{&object_counts::objects, "objects", "objects", "Objects that can be read.", true},
    count_field{&object_counts::reserved, "reserved", "reservations", "Puts under way."},
    count_field{&object_counts::object_bytes, "object_bytes", "object_bytes",
                "Bytes of objects, each counted once."},
    count_field{&object_counts::total_bytes, "capacity_bytes", "capacity_bytes", "Memory that is mounted."},
    count_field{&object_counts::free_bytes, "free_bytes", nullptr},
    count_field{&object_counts::quarantined_bytes, "resting_bytes", "resting_bytes",
                "Memory of removed objects that somebody may still use."},
    count_field{&object_counts::hits, "hits", "hits_total", "Keys that were asked for and found.", true},
    count_field{&object_counts::misses, "misses", "misses_total", "Keys that were asked for and not found.",
                true},
    count_field{&object_counts::evictions, "evictions", "evictions_total",
                "Objects that made way for others.", true},
    count_field{&object_counts::evicted_bytes, "evicted_bytes", "evicted_bytes_total",
                "Bytes of objects that made way."},
    count_field{&object_counts::expired, "expired", "expired_total", "Objects that outlived their time."},
    count_field{&object_counts::lost, "lost", "lost_total",
                "Objects that went with the last segment that held them."},
    count_field{&object_counts::refused, "refused", "refused_puts_total", "Puts that found no room.", true},
    count_field{&object_counts::recovered, "recovered", "recovered_replicas_total",
                "Replicas known from an earlier directory."},
    count_field{&object_counts::moved, "moved", "moved_total", "Objects that were given other places."},
    count_field{&object_counts::regretted, "regretted", "regretted_evictions_total",
                "Objects that were put again not long after they made way."},
    count_field{&object_counts::warmed, "hot_replicas_made", "hot_replicas_made_total",
                "Replicas that were made because an object was read so often."},
    count_field{&object_counts::cooled, "hot_replicas_dropped", "hot_replicas_dropped_total",
                "Of these, those that were given up again."},
    count_field{&object_counts::disk_objects, "ssd_objects", "ssd_objects",
                "Objects that lie on SSD, in memory as well or not."},
    count_field{&object_counts::disk_bytes, "ssd_bytes", "ssd_allocated_bytes",
                "Room on SSDs that is taken."},
    count_field{&object_counts::disk_total_bytes, "ssd_capacity_bytes", "ssd_capacity_bytes",
                "Room on SSDs that is mounted."},
    count_field{&object_counts::disk_hits, "ssd_hits", "ssd_hits_total",
                "Keys that were found on SSD alone."},
    count_field{&object_counts::saved, "ssd_saved", "ssd_writes_total", "Objects that were written to SSD."},
    count_field{&object_counts::saved_bytes, "ssd_saved_bytes", "ssd_written_bytes_total", "Their bytes."},
    count_field{&object_counts::save_failures, "ssd_save_failures", "ssd_write_failures_total",
                "Objects that an SSD refused."},
    count_field{&object_counts::loaded, "ssd_loaded", "ssd_reads_total",
                "Objects that were read from SSD into memory."},
    count_field{&object_counts::loaded_bytes, "ssd_loaded_bytes", "ssd_read_bytes_total", "Their bytes."},
    count_field{&object_counts::disk_damaged, "ssd_damaged", "ssd_damaged_total",
                "Objects that could not be read from SSD as they were written."},
    count_field{&object_counts::demoted, "ssd_demoted", "ssd_demotions_total",
                "Objects that left memory and stayed on SSD."},
    count_field{&object_counts::disk_evictions, "ssd_evictions", "ssd_evictions_total",
                "Objects that made way for others on SSD."},
    count_field{&object_counts::promoted, "ssd_promoted", "ssd_promotions_total",
                "Objects that were read from SSD so often that they stay in memory."},
    count_field{&object_counts::disk_recovered, "ssd_recovered", "ssd_recovered_total",
                "Objects that an SSD brought along."},
    count_field{&object_counts::disk_stale, "ssd_stale", "ssd_stale_total",
                "Objects that an SSD brought along and that were removed or replaced meanwhile."},
    count_field{&object_counts::replicas, "replicas", "replicas",
                "Replicas in memory, with those that are being written."},
};
static_assert(count_fields.size() * sizeof(std::uint64_t) == sizeof(object_counts), "a count has no line");

}  // namespace mooncaf
