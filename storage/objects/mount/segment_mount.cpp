#include "storage/objects/mount/segment_mount.hpp"

#include <algorithm>

#include "storage/objects/mount/shard_mount.hpp"

namespace mooncaf {

namespace {
/// How often both sides are asked which of them has to give something up; that costs a question each.
constexpr duration look_interval = std::chrono::milliseconds(250);
}  // namespace

segment_mount::segment_mount(segment_mount_options options)
    : options_(std::move(options)),
      boundary_(options_.shared_bytes, memory_boundary::slab_for(options_.shared_bytes)) {}

result<std::unique_ptr<segment_mount>> segment_mount::start(segment_mount_options options) {
  std::unique_ptr<segment_mount> made{new segment_mount(std::move(options))};
  if (const auto first = made->mount(); !first) return fail(first.error());
  made->keeper_ = std::thread{[self = made.get()] { self->keep(); }};
  return made;
}

segment_mount::~segment_mount() {
  {
    std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  {
    std::lock_guard lock{parts_changing_};
    for (const auto& part : parts_) part->stop();  // the keeper may wait for an answer
  }
  if (keeper_.joinable()) keeper_.join();
}

/// This process's part of the mount in one of the shards.
result<segment_mount_options> segment_mount::part(std::uint32_t shard, std::uint32_t count) const {
  constexpr std::uint64_t page = 2 * MiB;  // memory comes in these
  auto o = options_;
  o.directory.shard = shard;
  if (count == 1) return o;
  o.bytes = std::max(page, options_.bytes / count / page * page);
  o.shared_bytes = options_.shared_bytes / count / page * page;
  for (const auto port : {&segment_mount_options::data_port, &segment_mount_options::endpoint_port})
    if (o.*port != 0) o.*port = static_cast<std::uint16_t>(o.*port + shard);
  if (!options_.disk) return o;
  auto disk = options_.disk->part(shard, count);
  if (!disk) return fail(disk.error());
  o.disk = std::move(*disk);
  return o;
}

result<void> segment_mount::mount() {
  const auto first = directory_link::connect(options_.directory);
  if (!first) return fail(first.error());
  const auto count = (*first)->welcome().shard.count;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto own = part(i, count);
    if (!own) return fail(own.error());
    auto started = shard_mount::start(std::move(*own), count, [this] {
      {
        std::lock_guard lock{mutex_};
        wrong_ = true;
      }
      changed_.notify_all();
    });
    if (!started) return fail(started.error());
    std::lock_guard lock{parts_changing_};
    parts_.push_back(std::move(*started));
  }
  return {};
}

// Another number of shards shows only when a shard is asked, so all of them end and begin together here.
void segment_mount::keep() {
  constexpr duration shortest = std::chrono::milliseconds(20), longest = std::chrono::milliseconds(250);
  std::unique_lock lock{mutex_};
  for (auto pause = shortest;;) {
    const auto called = [&] { return stopping_ || wrong_; };
    while (options_.shared_bytes > 0 && !called()) {
      lock.unlock();
      divide();
      lock.lock();
      changed_.wait_for(lock, look_interval, called);
    }
    changed_.wait(lock, called);
    if (stopping_) break;
    lock.unlock();
    clear();
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
  clear();
}

void segment_mount::clear() {
  std::vector<std::unique_ptr<shard_mount>> gone;
  {
    std::lock_guard lock{parts_changing_};
    gone.swap(parts_);
  }
}

// ---- memory that is shared with something else ------------------------------------------------------------

/// Every shard keeps its objects out of an even part.
std::optional<boundary_report> segment_mount::withhold(std::uint64_t bytes) {
  constexpr std::uint64_t page = 4 * KiB;
  const auto n = parts_.size();
  const auto each = (bytes / std::max<std::size_t>(n, 1) + page - 1) / page * page;
  boundary_report all;
  duration ages{};
  std::int64_t known = 0;
  for (const auto& part : parts_) {
    const auto one = part->withhold(std::min(each, part->shared_bytes()));
    if (!one) return std::nullopt;
    all.withheld_bytes += one->withheld_bytes;
    all.bytes += one->bytes;
    all.idle_bytes += one->idle_bytes;
    all.taken_bytes += one->taken_bytes;
    if (!one->coldest) continue;
    ages += *one->coldest;
    ++known;
  }
  if (n == 0) return std::nullopt;
  if (known > 0) all.coldest = ages / known;
  return all;
}

/// Tells both sides how much to withhold, until neither figure changes any more.
void segment_mount::divide() {
  using side = memory_boundary::side;
  constexpr int rounds_max = 16;  // then other work has its turn
  bool told_again = true;
  for (int i = 0; i < rounds_max && told_again; ++i) {
    const auto objects = withhold(boundary_.withheld_from(side::objects));
    const auto other = options_.other(boundary_.withheld_from(side::blocks));
    told_again = objects && other && boundary_.look(*other, *objects, clock_type::now());
  }
  if (options_.divided)
    options_.divided({boundary_.shared(), boundary_.has(side::blocks), boundary_.has(side::objects),
                      boundary_.moved_to(side::blocks), boundary_.moved_to(side::objects)});
}

}  // namespace mooncaf
