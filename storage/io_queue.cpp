#include "storage/io_queue.hpp"

#include <utility>

#include "runtime/base/units.hpp"

namespace mooncaf {

namespace {
/// Written in one go: large enough for the tier to skip its log, some 30 ms of a disk for which a read may wait.
constexpr std::size_t write_turn_bytes = 32 * MiB;
}  // namespace

std::size_t& io_queue::pending(io_job::kind what) {
  switch (what) {
    case io_job::kind::read:
      return reads_pending_;
    case io_job::kind::write:
      return writes_pending_;
    case io_job::kind::erase:
      break;
  }
  return erasures_pending_;
}

void io_queue::add(io_job job, pin_id hold) {
  job.id = next_++;
  jobs_.emplace(job.id, entry{job, hold});
  ++pending(job.what);
  (job.what == io_job::kind::read ? reads_ : writes_).push_back(job);
}

std::vector<io_job> io_queue::take(std::size_t max, std::size_t block_bytes) {
  const bool read = !reads_.empty() && (writes_.empty() || !reads_went_last_);
  reads_went_last_ = read;
  auto& from = read ? reads_ : writes_;
  if (!read) max = std::min(max, std::max<std::size_t>(1, write_turn_bytes / block_bytes));
  std::size_t count = std::min(max, from.size());
  if (read) {
    // A load's reads are one job, as many as they are; no others go with them.
    const auto load = from.front().load;
    const auto other = std::ranges::find_if(from, [&](const io_job& j) { return j.load != load; });
    const auto same = static_cast<std::size_t>(other - from.begin());
    count = load ? same : std::min(count, same);
  }
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<io_job> jobs(from.begin(), end);
  from.erase(from.begin(), end);
  running_ += count;
  return jobs;
}

std::optional<io_queue::entry> io_queue::forget(std::uint64_t id) {
  auto node = jobs_.extract(id);
  if (node.empty()) return std::nullopt;
  --pending(node.mapped().job.what);
  return node.mapped();
}

std::optional<io_queue::entry> io_queue::finish(std::uint64_t id) {
  auto done = forget(id);
  if (done) --running_;
  return done;
}

}  // namespace mooncaf
