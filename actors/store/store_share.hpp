#pragma once
// A process of the cluster as a part of the object store: the conductor's carries its directory, a cache's
// mounts memory in it. The same classes as behind `mooncaf store directory` and `mount`.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/store/carried_directory.hpp"
#include "config/options.hpp"
#include "runtime/base/result.hpp"
#include "storage/objects/client/store_client.hpp"
#include "storage/objects/mount/segment_mount.hpp"

namespace mooncaf {

/// @thread  All functions may be called from any thread, the destructor from none of its own.
class store_share {
 public:
  /// @param key  what the store's clients prove that they know (`store_key_purpose`).
  /// @param protocol  the newest version of the store's that this process knows
  store_share(key_ring key, std::uint32_t protocol) : key_(std::move(key)), protocol_(protocol) {}
  /// Ends the loan: what lay in it is gone, unless it has other replicas.
  ~store_share();

  /// Carries a directory. @returns its port. @param alone, @error  as `carried_directory::open`
  result<std::uint16_t> open_directory(const host_port& at, const store_options& chosen, bool alone);
  /// As of `carried_directory`; zeros where there is none.
  last_lead last() const { return directory_ ? directory_->last() : last_lead{}; }
  void lead(const lead_right& right) {
    if (directory_) directory_->lead(right);
  }
  /// Mounts a segment as soon as `directory_at` has told where a directory may be. Tries until it succeeds, and
  /// says in the log why it does not.
  /// @param segment  all but the directory's address.
  void mount(segment_mount_options segment);
  /// Before a planned stop: moves what would be lost with the segment to others, as far as there is free room.
  /// Returns at `until`, or soon after it; at once where nothing is mounted.
  void hand_over(time_point until);
  /// Unmounts for good; nothing that `segment` named is used any more. Threads that show figures may still
  /// use this.
  void unmount();
  /// Where the directory answers when the conductor of this seat leads. Returns at once.
  void directory_at(std::uint32_t seat, const host_port& at);
  /// For Prometheus: the directory's counts, and what is mounted. Empty where there is neither. May take as
  /// long as the directory does for an answer.
  std::string metrics_text();

 private:
  void keep();
  directory_address address_of(std::shared_ptr<const directory_seats> at) const;

  const key_ring key_;
  const std::uint32_t protocol_;
  const std::shared_ptr<directory_seats> seats_ = std::make_shared<directory_seats>();
  std::unique_ptr<carried_directory> directory_;
  std::mutex asking_;  // guards the client: `metrics_text` comes from several threads
  std::unique_ptr<store_client> client_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  bool stopping_ = false;
  std::uint64_t mounted_bytes_ = 0;
  shared_memory_figures divided_;
  segment_mount_options segment_;
  std::thread keeper_;
};

}  // namespace mooncaf
