#include "storage/io_job.hpp"

namespace mooncaf {
namespace {

void run_writes(std::span<const io_job> jobs, rocksdb_tier& tier, std::size_t block_bytes,
                std::vector<io_result>& done) {
  std::vector<put_item> items;
  items.reserve(jobs.size());
  for (const auto& job : jobs) items.push_back({job.block, {job.slot.address, block_bytes}});
  const auto outcome = tier.put(items);
  for (const auto& job : jobs) done.push_back({job.id, outcome ? error{} : outcome.error()});
}

void run_reads(std::span<const io_job> jobs, rocksdb_tier& tier, std::size_t block_bytes,
               const load_progress& progress, std::vector<io_result>& done) {
  std::vector<get_item> items;
  items.reserve(jobs.size());
  for (const auto& job : jobs) items.push_back({job.block.name.key, {job.slot.address, block_bytes}});
  const auto load = jobs.front().load;
  const auto outcomes = load && progress
                            ? tier.read_in_step(items, [&](auto parts) { progress(load, parts); })
                            : tier.multi_get(items);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    done.push_back({jobs[i].id, outcomes[i] ? error{} : outcomes[i].error()});
  }
}

void run_erasures(std::span<const io_job> jobs, rocksdb_tier& tier, std::vector<io_result>& done) {
  std::vector<block_key> keys;
  keys.reserve(jobs.size());
  for (const auto& job : jobs) keys.push_back(job.block.name.key);
  const auto outcome = tier.erase(keys);
  for (const auto& job : jobs) done.push_back({job.id, outcome ? error{} : outcome.error()});
}

}  // namespace

std::vector<io_result> execute(std::span<const io_job> jobs, rocksdb_tier& tier, std::size_t block_bytes,
                               const load_progress& progress) {
  std::vector<io_result> done;
  done.reserve(jobs.size());
  for (std::size_t begin = 0; begin < jobs.size();) {
    std::size_t end = begin + 1;
    while (end < jobs.size() && jobs[end].what == jobs[begin].what && jobs[end].load == jobs[begin].load)
      ++end;
    const auto run = jobs.subspan(begin, end - begin);
    switch (run.front().what) {
      case io_job::kind::write:
        run_writes(run, tier, block_bytes, done);
        break;
      case io_job::kind::read:
        run_reads(run, tier, block_bytes, progress, done);
        break;
      case io_job::kind::erase:
        run_erasures(run, tier, done);
        break;
    }
    begin = end;
  }
  return done;
}

}  // namespace mooncaf
