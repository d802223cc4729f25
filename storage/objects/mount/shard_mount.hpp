#pragma once
// Mounts memory of this process to one shard of a directory, for as long as the object lives.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/result.hpp"
#include "storage/objects/disk/object_disk.hpp"
#include "storage/objects/mount/segment_mount.hpp"
#include "storage/objects/mount/task_worker.hpp"
#include "storage/objects/segment/segment_ledger.hpp"
#include "storage/objects/wire/directory_link.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// When the directory is lost, the memory stays as it is, and its contents are announced to the next one.
/// When the connection alone was lost, and the same directory answers again, that one has given the contents
/// up meanwhile: the segment is offered with fresh memory, so that a client which still knows places in the
/// old cannot touch the new. The contents of the SSD are announced to whichever directory comes, and erased
/// as far as that one says.
/// @thread  construction and destruction only; works on a thread of its own
class shard_mount {
 public:
  /// Mounts the segment.
  /// @param options  of this shard's part of the mount. @param shards  of the directory: where one of another
  /// number answers, the contents are of no use to it.
  /// @param wrong  called then, on the holder's thread, which tries on.
  /// @error as `segment_mount::start`; `ec::peer_lost` for another number of shards, too.
  static result<std::unique_ptr<shard_mount>> start(segment_mount_options options, std::uint32_t shards,
                                                    std::function<void()> wrong);
  ~shard_mount();

  /// Has the directory keep objects out of so much of the segment, and gives those pages back to the kernel.
  /// @returns how it stands; nothing while there is no directory. Waits for its answer. @thread  any
  std::optional<boundary_report> withhold(std::uint64_t bytes);
  std::uint64_t shared_bytes() const noexcept { return options_.shared_bytes; }
  /// Ends all waiting in `withhold`, for good. @thread  any
  void stop();

 private:
  struct life;
  shard_mount(segment_mount_options options, std::uint32_t shards, std::function<void()> wrong);
  result<std::unique_ptr<life>> begin_life() const;
  result<void> mount();
  result<void> open_endpoint();
  result<store_code> offer(directory_link& link);
  result<void> announce(directory_link& link);
  result<void> mount_disk(const std::shared_ptr<directory_link>& link);
  void order(const disk_order& o);
  void acknowledge(std::uint64_t number);
  void listen();
  void keep();
  void begin_again();
  void forget_mounted();
  void say(const std::string& line) const;
  bool wait(duration d);

  segment_mount_options options_;
  std::uint32_t shards_;
  std::function<void()> wrong_;
  std::shared_ptr<life> life_;  // keeper's thread
  task_worker worker_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::shared_ptr<directory_link> link_;
  bool draining_ = false;   // keeper's thread: of the next life
  std::uint32_t disk_ = 0;  // keeper's thread: number of the segment on SSD
  /// The life that a directory knows, and the link to it. While the mutex is held no other directory can
  /// place anything in it.
  struct mounted {
    std::shared_ptr<life> of;
    std::shared_ptr<directory_link> link;
  };
  std::mutex punching_;
  mounted mounted_;  // guarded by it
  std::thread keeper_;
};

}  // namespace mooncaf
