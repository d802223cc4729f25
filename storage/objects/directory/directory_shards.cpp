#include "storage/objects/directory/directory_shards.hpp"

#include <string>

namespace mooncaf {

namespace {

std::string folder_of(const std::string& folder, const shard_place& shard) {
  if (folder.empty() || shard.count == 1) return folder;
  return folder + "/shard-" + std::to_string(shard.index + 1) + "-of-" + std::to_string(shard.count);
}

/// Removals are noted for the present number of shards alone: a later directory with another number would
/// show the objects again, so SSDs' contents for that number are given up.
result<void> forget_others(const std::string& folder, std::uint32_t count) {
  for (std::uint32_t other = 1; other <= shards_max && !folder.empty(); ++other)
    for (std::uint32_t i = 0; i < other && other != count; ++i)
      if (auto ok = disk_notes::forget(folder_of(folder, {i, other})); !ok) return ok;
  return {};
}

directory_server_options options_of(const directory_server_options& all, const shard_place& shard) {
  auto o = all;
  if (shard.count == 1) return o;
  o.table.shard = shard;
  o.state_folder = folder_of(o.state_folder, shard);
  return o;
}

}  // namespace

result<void> directory_shards::forget(const std::string& folder) { return forget_others(folder, 0); }

result<std::unique_ptr<directory_shards>> directory_shards::start(const directory_server_options& options,
                                                                  std::uint32_t count) {
  if (auto ok = forget_others(options.state_folder, count); !ok) return fail(ok.error());
  std::unique_ptr<directory_shards> made{new directory_shards};
  made->shards_.resize(count);
  std::vector<directory_server*> others(count);
  std::vector<tenant_limit> limits;
  for (const auto& t : options.tenants) limits.push_back(t.limit);
  const auto commons = count > 1 ? std::make_shared<shard_commons>(count, std::move(limits)) : nullptr;
  for (auto i = count; i-- > 0;) {  // the first shard, which lets clients in, begins last
    auto own = options_of(options, {i, count});
    own.table.commons = commons;
    if (i == 0) own.shards = others;
    auto started = directory_server::start(std::move(own));
    if (!started) return fail(started.error());
    others[i] = started->get();
    made->shards_[i] = std::move(*started);
  }
  return made;
}

directory_shards::~directory_shards() {
  for (auto& s : shards_)
    s.reset();  // the first shard ends first, so that it hands no client over to one
                // that has ended
}

}  // namespace mooncaf
