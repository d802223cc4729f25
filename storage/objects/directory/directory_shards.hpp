#pragma once
// A directory in several shards: as many threads, each of which knows the objects with its keys (`shard_of`),
// and has a part of the memory and of the SSD of every holder.
//
//   client ──┬── link ──► first shard: listens for all, knows its objects
//            └── link ──► first shard, handed over ──► second shard …
//
// No shard waits for another, or touches its data; their common data is in `shard_commons`. A directory in
// one shard is a `directory_server`, and nothing else.

#include <memory>
#include <string>
#include <vector>

#include "storage/objects/directory/directory_server.hpp"

namespace mooncaf {

/// @thread  as `directory_server`
class directory_shards {
 public:
  /// @param options  of all of them. All together a tenant has no more than its quota, wherever its keys
  /// fall.
  /// @param count  from one to `shards_max`.
  /// @error as `directory_server::start`
  static result<std::unique_ptr<directory_shards>> start(const directory_server_options& options,
                                                         std::uint32_t count);
  ~directory_shards();
  /// Gives up what directories noted there of SSDs, in whatever number of shards: it is not the latest.
  /// @error as `disk_notes::forget`
  static result<void> forget(const std::string& folder);

  std::uint16_t port() const noexcept { return shards_.front()->port(); }

 private:
  std::vector<std::unique_ptr<directory_server>> shards_;
};

}  // namespace mooncaf
