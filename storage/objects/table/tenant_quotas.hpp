#pragma once
// Each tenant's use and limits, and the outcomes of its questions. With several shards a quota is one figure
// that all of them take from (`shard_commons`); a shard that finds it used up asks another one to make room.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/units.hpp"
#include "storage/objects/table/shard_commons.hpp"
#include "storage/objects/terms/key_shard.hpp"
#include "storage/objects/terms/object_terms.hpp"

namespace mooncaf {

/// The use of one tenant now, or of all together.
struct tenant_use {
  std::uint64_t used_bytes = 0;     ///< memory, resting and still being written included
  std::uint64_t resting_bytes = 0;  ///< resting memory among them: no object has it, and it is not free yet
  std::uint64_t moving_bytes =
      0;  ///< of these: of copies on their way; the object is still where it was, too
  std::uint64_t leaving_bytes = 0, leaving = 0;  ///< objects that leave memory once they are saved
  std::uint64_t objects = 0, reserved = 0;       ///< published; being written
  std::uint64_t object_bytes = 0;                ///< published objects, each counted once
  std::uint64_t replicas = 0;                    ///< in memory, including replicas being written
  std::uint64_t on_disk_alone = 0;               ///< published objects; they count against no limit of memory
  std::uint64_t disk_bytes = 0;                  ///< on SSDs, or on their way there
  friend bool operator==(const tenant_use&, const tenant_use&) = default;
};

/// Invariant: the use of all is the sum of the tenants' uses, and the other shards count this one's use as it
/// is (`told`) once `tell_others` has run.
/// @thread  not synchronised. A tenant is its number; zero stands for clients without a tenant, which have no
/// limit.
class tenant_quotas {
 public:
  /// @param limits  by name; these tenants get the first numbers, and the shards have their quotas in common.
  /// @param commons  may be null; must outlive this.
  tenant_quotas(const std::vector<std::pair<std::string, tenant_limit>>& limits, shard_place shard,
                shard_commons* commons);

  // ---- tenants
  /// Numbers from one on, in the order in which tenants came up. Zero for the empty name.
  std::uint32_t number(std::string_view tenant);
  /// The tenant that has the object; zero also if no tenant of that name ever came up.
  std::uint32_t number_of(std::string_view key) const;
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(tenants_.size()); }
  const std::string& name(std::uint32_t owner) const { return tenants_[owner].name; }
  const tenant_limit& limit(std::uint32_t owner) const { return tenants_[owner].limit; }
  /// @param total_bytes, disk_total_bytes  of this shard; where a quota is common, of all shards.
  tenant_view view(std::uint32_t owner, std::uint64_t total_bytes, std::uint64_t disk_total_bytes) const;

  // ---- use and events
  void more(std::uint32_t owner, std::uint64_t tenant_use::*what, std::uint64_t n = 1) {
    if (commons_) touch(owner);
    all_.*what += n;
    tenants_[owner].is.*what += n;
  }
  void less(std::uint32_t owner, std::uint64_t tenant_use::*what, std::uint64_t n = 1) {
    more(owner, what, std::uint64_t{0} - n);
  }
  const tenant_use& use(std::uint32_t owner) const { return tenants_[owner].is; }
  const tenant_use& use() const noexcept { return all_; }
  void count(std::uint32_t owner, std::uint64_t object_counts::*event, std::uint64_t n = 1);
  /// Counts an event of no tenant.
  void count(std::uint64_t object_counts::*event, std::uint64_t n) { seen_.*event += n; }
  /// Events so far, and the present use.
  object_counts counts() const { return with(seen_, all_); }

  // ---- limits
  quota_use own_use(std::uint32_t owner) const;     ///< the count of this shard's objects
  quota_use use_of_all(std::uint32_t owner) const;  ///< with the other shards'
  /// Takes it of the quota until it is used, or `tell` says that it was not. @returns whether it was there.
  bool claim(std::uint32_t owner, const quota_use& room);
  /// @param claimed  before, and not used yet.
  bool claim_more(std::uint32_t owner, const quota_use& room, const quota_use& claimed);
  /// @param leaving_bytes  of present objects that do not count; `leaving` of them.
  bool fits(std::uint32_t owner, const quota_use& room, std::uint64_t leaving_bytes,
            std::uint64_t leaving) const;
  /// Whether this shard has to make objects leave memory (SSDs), because the tenant has more than its quota:
  /// with a common quota, if this shard has more than its even part.
  bool is_over(std::uint32_t owner);
  bool is_over_on_disks(std::uint32_t owner);

  // ---- other shards
  /// The others hear this one's changes …
  void tell_others();
  void tell(std::uint32_t owner);  ///< … of one tenant's, now
  void note_capacity(std::uint64_t memory_bytes, std::uint64_t disk_bytes);
  /// The tenants that have little of their quota left: their coldest objects are worth comparing.
  bool is_bounded(std::uint32_t owner) const { return commons_ && commons_->bounds(owner); }
  bool is_nearly_full(std::uint32_t owner) const;
  /// @param at  when the tenant's next victim here was used last, or `shard_commons::never`.
  void say_coldest(std::uint32_t owner, std::int64_t at);
  /// Whether another shard has objects of the tenant that were last used twice as long ago as the one that
  /// would go here, and at least `one_use`; none while one of the shards is being asked.
  bool has_colder_elsewhere(std::uint32_t owner, std::int64_t here, duration one_use, time_point now) const;
  bool asks_for_memory(std::uint32_t owner) const { return tenants_[owner].to_memory.pending; }
  bool asks_for_disk(std::uint32_t owner) const { return tenants_[owner].to_disk.pending; }
  /// @returns whether room is being made elsewhere; the caller is to ask again.
  bool ask_others(std::uint32_t owner, const quota_use& room, bool lossy, time_point now);
  void hear_answer(const shard_message& room_made, time_point now);
  void answer(std::uint32_t shard, shard_message&& room_made);

  /// Whether the uses are these, tenant by tenant, and the use of all their sum. For tests.
  bool agrees_with(const std::vector<tenant_use>& recounted) const;

 private:
  /// A question to another shard to make room in a tenant's quota. One shard after the other is asked, first
  /// the one with the coldest object.
  struct request {
    bool pending = false;
    std::uint32_t asked = 0;  ///< a bit for each shard that had nothing to give
    time_point since{};       ///< the first since there was room; zero: none
    time_point heard{};       ///< last
  };
  struct account {
    std::string name;
    tenant_limit limit;
    tenant_use is;
    object_counts seen;  ///< events alone
    quota_use told{};    ///< this one's use as the other shards count it
    bool to_tell = false;
    request to_memory{}, to_disk{};
  };
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return XXH3_64bits(text.data(), text.size()); }
  };
  static object_counts with(object_counts events, const tenant_use& is);
  tenant_limit part_of(const tenant_limit& limit) const;
  void touch(std::uint32_t owner);

  std::vector<account> tenants_ = std::vector<account>(1);
  std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>> numbers_;
  tenant_use all_;
  object_counts seen_;  ///< events alone
  shard_place shard_;
  shard_commons* commons_;              ///< null: this is the only shard
  std::vector<std::uint32_t> to_tell_;  ///< tenants
};

}  // namespace mooncaf
