#include "storage/objects/segment_lender.hpp"

#include <algorithm>

#include "storage/objects/shard_lender.hpp"

namespace mooncaf {

segment_lender::segment_lender(segment_lender_options options) : options_(std::move(options)) {}

result<std::unique_ptr<segment_lender>> segment_lender::start(segment_lender_options options) {
  std::unique_ptr<segment_lender> made{new segment_lender(std::move(options))};
  if (const auto first = made->mount(); !first) return fail(first.error());
  made->keeper_ = std::thread{[self = made.get()] { self->keep(); }};
  return made;
}

segment_lender::~segment_lender() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

/// What this process lends to one of the shards.
result<segment_lender_options> segment_lender::part(std::uint32_t shard, std::uint32_t count) const {
  constexpr std::uint64_t page = 2 * MiB;  // memory comes in these
  auto o = options_;
  o.directory.shard = shard;
  if (count == 1) return o;
  o.bytes = std::max(page, options_.bytes / count / page * page);
  for (const auto port : {&segment_lender_options::data_port, &segment_lender_options::gate_port})
    if (o.*port != 0) o.*port = static_cast<std::uint16_t>(o.*port + shard);
  if (!options_.disk) return o;
  auto disk = options_.disk->part(shard, count);
  if (!disk) return fail(disk.error());
  o.disk = std::move(*disk);
  return o;
}

result<void> segment_lender::mount() {
  const auto first = directory_link::connect(options_.directory);
  if (!first) return fail(first.error());
  const auto count = (*first)->welcome().shard.count;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto own = part(i, count);
    if (!own) return fail(own.error());
    auto started = shard_lender::start(std::move(*own), count, [this] {
      {
        std::lock_guard lock{mutex_};
        wrong_ = true;
      }
      changed_.notify_all();
    });
    if (!started) return fail(started.error());
    parts_.push_back(std::move(*started));
  }
  return {};
}

void segment_lender::keep() {
  constexpr duration shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(250);
  std::unique_lock lock{mutex_};
  for (auto pause = shortest;;) {
    changed_.wait(lock, [&] { return stopping_ || wrong_; });
    if (stopping_) break;
    lock.unlock();
    parts_.clear();
    if (options_.log)
      options_.log("the directory has another number of shards: the segment begins again, empty");
    lock.lock();
    wrong_ = false;
    lock.unlock();
    const bool done = mount().has_value();
    lock.lock();
    if (done) continue;
    wrong_ = true;
    changed_.wait_for(lock, pause, [&] { return stopping_; });
    pause = std::min(2 * pause, longest);
  }
  lock.unlock();
  parts_.clear();
}

}  // namespace mooncaf
