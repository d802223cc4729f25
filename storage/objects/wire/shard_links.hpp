#pragma once
// A client's connections to all shards of a directory, and which shard knows a key.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/objects/terms/key_scope.hpp"
#include "storage/objects/terms/key_shard.hpp"
#include "storage/objects/wire/directory_link.hpp"

namespace mooncaf {

/// The items of a list that one shard knows.
struct shard_part {
  std::uint32_t shard = 0;
  std::size_t size = 0;
  std::vector<std::size_t> which = {};  ///< empty: all of them
  std::size_t at(std::size_t i) const { return which.empty() ? i : which[i]; }
};

/// A link for each shard, to one life of the directory. Never changes.
struct shard_links {
  std::vector<std::shared_ptr<directory_link>> all;
  key_scope scope;  ///< names that this client can say
  std::uint32_t speaks() const { return all.front()->speaks(); }

  std::uint32_t shard_of(std::string_view key) const {
    if (all.size() == 1) return 0;
    std::string memory;
    return mooncaf::shard_of(scope.inside(key, memory), static_cast<std::uint32_t>(all.size()));
  }
  const std::shared_ptr<directory_link>& of(std::string_view key) const { return all[shard_of(key)]; }

  /// @param key_at  key of the item with this number. @returns the parts of all shards that have items.
  template <class KeyAt>
  std::vector<shard_part> parts(std::size_t items, const KeyAt& key_at) const {
    if (all.size() == 1) return {{0, items}};
    std::vector<shard_part> by(all.size());
    for (std::size_t i = 0; i < items; ++i) by[shard_of(key_at(i))].which.push_back(i);
    for (std::uint32_t s = 0; s < by.size(); ++s) {
      by[s].shard = s;
      by[s].size = by[s].which.size();
    }
    std::erase_if(by, [](const shard_part& p) { return p.size == 0; });
    return by;
  }
  /// Asks each shard about its part, all at once, and hands over the answers in the order of the parts.
  using answer = result<directory_link::answer>;
  void ask(store_wire::op what, std::span<const shard_part> parts,
           const std::function<void(const shard_part&, byte_writer&)>& payload,
           const std::function<void(const shard_part&, const answer&)>& heard) const;
  /// Asks all shards the same. @returns their answers, shard by shard; the first error if one has none.
  result<std::vector<directory_link::answer>> ask_everyone(
      store_wire::op what, const std::function<void(byte_writer&)>& payload) const;
};

/// Makes the links to all shards, and makes them again when one broke.
/// @thread  All functions may be called from any thread.
class shard_dialer {
 public:
  explicit shard_dialer(directory_address to) : to_(std::move(to)) {}
  using links = std::shared_ptr<const shard_links>;
  /// All links, or none. Where no directory answers it tries again after a pause that grows to half a second; where
  /// another may take over it waits for that, up to `takeover_limit`.
  /// @error as `directory_link::connect`
  result<links> get();
  /// Ends the links; calls that wait on one get an error.
  void close();
  /// For how long calls that were lost with a directory are to be made again: zero where no other takes over.
  duration patience() const { return !closed_ && to_.at->several() ? takeover_limit : duration{}; }
  static constexpr duration takeover_limit = std::chrono::seconds(8);

 private:
  result<links> get_now();
  result<links> dial();

  directory_address to_;
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  links links_;
  duration pause_{};
  time_point dial_again_{};
  error not_reached_;
};

}  // namespace mooncaf
