#pragma once
// Prefixes that clients asked to be kept: for whom, until when, and which give way where there is no room for all.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/hash.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/units.hpp"

namespace mooncaf {

/// Blocks that may be kept, for all tenants and for each of them.
struct keep_limits {
  std::size_t blocks = 0;  ///< 0: none
  std::size_t per_tenant = 0;

  /// A share of some blocks, and of that one for each tenant.
  static keep_limits of(std::uint64_t blocks, double share, double tenant_share) {
    const auto kept = share * static_cast<double>(blocks);
    return {static_cast<std::size_t>(kept), static_cast<std::size_t>(kept * tenant_share)};
  }
};

/// A prefix that is kept.
struct kept_prefix {
  block_key last;  ///< of its blocks, by which it is named
  std::uint32_t blocks = 0;
  time_point until;
};

/// Decides; whoever holds the blocks is told which holds begin and end. A prefix that a later one of the same tenant goes on
/// from is a part of that one. Where a tenant has too much, its prefix that was used longest ago gives way; a tenant never
/// takes another's room. A block counts once for each tenant.
/// @thread  Owned by the cache shard; not synchronised.
class kept_prefixes {
 public:
  /// Names what the holder has of a prefix.
  using hold_id = std::uint64_t;

  explicit kept_prefixes(keep_limits limits) : limits_(limits) {}

  struct decision {
    std::optional<hold_id> fresh;  ///< hold these blocks under this name
    std::vector<hold_id> over;     ///< … and let go of these
    bool kept = false;             ///< the prefix is kept from now on, afresh or as before
  };
  /// @param keys  all blocks of the prefix. @param ttl  from now on, and again from each later word of it on.
  decision keep(std::uint64_t tenant, std::span<const block_key> keys, duration ttl, time_point now);
  /// Those whose time is over.
  std::vector<hold_id> expire(time_point now);
  /// Ends a tenant's prefix of that name, or all of them. @returns what is let go of.
  std::vector<hold_id> drop(std::uint64_t tenant, std::optional<block_key> last);
  /// The longest-lived first.
  std::vector<kept_prefix> of(std::uint64_t tenant) const;

  std::size_t size() const noexcept { return kept_.size(); }
  /// Blocks of all, each once.
  std::size_t blocks() const noexcept { return held_.size(); }

 private:
  struct entry {
    hold_id hold = 0;
    std::vector<block_key> keys;
    time_point until;
    std::uint64_t used = 0;  ///< number of the call that spoke of it last
  };
  using kept_map = std::map<std::pair<std::uint64_t, block_key>, entry>;

  std::size_t new_blocks(std::uint64_t tenant, std::span<const block_key> keys) const;
  kept_map::iterator oldest_of(std::uint64_t tenant);
  kept_map::iterator end(kept_map::iterator which, std::vector<hold_id>& over);

  keep_limits limits_;
  kept_map kept_;  ///< by tenant and last key
  std::unordered_map<std::uint64_t, std::unordered_map<block_key, std::uint32_t>>
      of_tenant_;                                      ///< prefixes that have a block
  std::unordered_map<block_key, std::uint32_t> held_;  ///< tenants that do
  std::size_t charged_ = 0;                            ///< blocks of all tenants
  hold_id next_ = 1;
  std::uint64_t calls_ = 0;
};

}  // namespace mooncaf
