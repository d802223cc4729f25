#pragma once
// Mounts memory of this process to the store, for as long as the object lives.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/memory_boundary.hpp"
#include "storage/objects/disk/object_disk.hpp"
#include "storage/objects/wire/directory_link.hpp"

namespace mooncaf {

class shard_mount;

/// How memory is divided that objects and something else of the process have in common.
struct shared_memory_figures {
  std::uint64_t shared_bytes = 0;
  std::uint64_t other_bytes = 0, object_bytes = 0;  ///< of the shared memory; a slab on its way counts for
                                                    ///< neither
  std::uint64_t slabs_to_other = 0, slabs_to_objects = 0;
};

struct segment_mount_options {
  directory_address directory;
  std::string name;  ///< unique in the store
  std::uint64_t bytes = 0;
  bool tcp = true;                        ///< other hosts reach it
  std::string listen_host = "127.0.0.1";  ///< of the data plane
  std::uint16_t data_port = 0;
  std::string advertised_host;
  std::uint16_t endpoint_port = 0;    ///< port of the segment's endpoint; 0: any free one
  std::shared_ptr<object_disk> disk;  ///< mounted beside the memory; null: none
  std::uint64_t shared_bytes = 0;     ///< part of `bytes` that `other` may have as well
  /// The other user of the shared memory. Told how many bytes to withhold, it gives such pages back as far as
  /// it can now, and reports how it stands; nothing where it does not answer. Called on a thread of the
  /// mount's, may take a while.
  std::function<std::optional<boundary_report>(std::uint64_t withheld_bytes)> other;
  std::function<void(const shared_memory_figures&)> divided;  ///< told on the holder's thread
  std::function<void(std::string_view)> log;  ///< one line for each change; called on a thread of the mount's
};

/// Each shard of the directory gets an even part of the memory, and of the SSD, as a segment of this name,
/// with ports that follow on the given ones. Memory that is shared with another user in this process belongs
/// to that one first, and goes to objects and back a slab at a time (`memory_boundary`). Where a directory
/// with another number of shards comes, everything begins again, empty.
/// @thread  construction and destruction only; works on threads of its own
class segment_mount {
 public:
  /// Mounts the segments. @error as `directory_link::connect`; `ec::already_exists` if the name is taken;
  /// `ec::out_of_space`, `ec::io_error` for the memory and the ports.
  static result<std::unique_ptr<segment_mount>> start(segment_mount_options options);
  ~segment_mount();

 private:
  explicit segment_mount(segment_mount_options options);
  result<void> mount();
  result<segment_mount_options> part(std::uint32_t shard, std::uint32_t count) const;
  void keep();
  std::optional<boundary_report> withhold(std::uint64_t bytes);
  void divide();
  void clear();

  segment_mount_options options_;
  memory_boundary boundary_;  // keeper's thread
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, wrong_ = false;  // guarded by it
  std::mutex parts_changing_;
  std::vector<std::unique_ptr<shard_mount>>
      parts_;  // keeper's thread's, once that runs; others hold the mutex
  std::thread keeper_;
};

}  // namespace mooncaf
