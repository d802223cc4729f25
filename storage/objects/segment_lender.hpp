#pragma once
// Lends memory of this process to the store, for as long as the object lives.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/result.hpp"
#include "storage/objects/directory_link.hpp"
#include "storage/objects/object_disk.hpp"

namespace mooncaf {

class shard_lender;

struct segment_lender_options {
  directory_address directory;
  std::string name;  ///< of the segment; unique in the store
  std::uint64_t bytes = 0;
  bool tcp = true;                        ///< other hosts reach it
  std::string listen_host = "127.0.0.1";  ///< of the data plane
  std::uint16_t data_port = 0;
  std::string advertised_host;
  std::uint16_t gate_port =
      0;  ///< of tenants, and of who has objects looked at, on the same host; 0: any free one
  std::shared_ptr<object_disk> disk;          ///< lent beside the memory; null: none
  std::function<void(std::string_view)> log;  ///< one line for each change; called on the lender's thread
};

/// Each shard of the directory gets an even part of the memory, and of the SSD, as a segment of this name,
/// with ports that follow on those that were given. Where a directory of another number of shards comes, all
/// begins again, empty.
/// @thread  construction and destruction only; works on threads of its own
class segment_lender {
 public:
  /// Mounts the segments. @error those of `directory_link::connect`; `ec::already_exists` if the name is
  /// taken; `ec::out_of_space`, `ec::io_error` for the memory and the ports.
  static result<std::unique_ptr<segment_lender>> start(segment_lender_options options);
  ~segment_lender();

 private:
  explicit segment_lender(segment_lender_options options);
  result<void> mount();
  result<segment_lender_options> part(std::uint32_t shard, std::uint32_t count) const;
  void keep();

  segment_lender_options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false, wrong_ = false;             // guarded by it
  std::vector<std::unique_ptr<shard_lender>> parts_;  // keeper's thread, once that runs
  std::thread keeper_;
};

}  // namespace mooncaf
