#include "storage/io_job.hpp"

#include <memory>

namespace mooncaf {
namespace {

/// The blocks of jobs as the disk has them: where they are, or gathered beside.
class whole_blocks {
 public:
  whole_blocks(std::span<const io_job> jobs, const block_pieces& shape) : jobs_(jobs), shape_(shape) {
    if (shape.count > 1) copies_.reset(new std::byte[jobs.size() * shape.block_bytes()]);
  }
  std::span<std::byte> operator[](std::size_t i) const {
    const auto bytes = shape_.block_bytes();
    return {copies_ ? copies_.get() + i * bytes : jobs_[i].slot.address, bytes};
  }
  void gather() const {
    for (std::size_t i = 0; copies_ && i < jobs_.size(); ++i)
      mooncaf::gather(jobs_[i].slot.address, shape_, (*this)[i].data());
  }
  void scatter() const {
    for (std::size_t i = 0; copies_ && i < jobs_.size(); ++i)
      mooncaf::scatter((*this)[i].data(), shape_, jobs_[i].slot.address);
  }

 private:
  std::span<const io_job> jobs_;
  const block_pieces& shape_;
  std::unique_ptr<std::byte[]> copies_;
};

void run_writes(std::span<const io_job> jobs, rocksdb_tier& tier, const block_pieces& shape,
                std::vector<io_result>& done) {
  const whole_blocks blocks{jobs, shape};
  blocks.gather();
  std::vector<put_item> items;
  items.reserve(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) items.push_back({jobs[i].block, blocks[i]});
  const auto outcome = tier.put(items);
  for (const auto& job : jobs) done.push_back({job.id, outcome ? error{} : outcome.error()});
}

void run_reads(std::span<const io_job> jobs, rocksdb_tier& tier, const block_pieces& shape,
               const load_progress& progress, std::vector<io_result>& done) {
  const whole_blocks blocks{jobs, shape};
  std::vector<get_item> items;
  items.reserve(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) items.push_back({jobs[i].block.name.key, blocks[i]});
  const auto load = jobs.front().load;
  const auto tell = [&](std::optional<std::uint32_t> parts) {
    if (parts) blocks.scatter();
    return progress(load, parts);
  };
  const bool in_step = load && progress;
  const auto outcomes = in_step ? tier.read_in_step(items, tell) : tier.multi_get(items);
  if (!in_step) blocks.scatter();
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

std::vector<io_result> execute(std::span<const io_job> jobs, rocksdb_tier& tier, const block_pieces& shape,
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
        run_writes(run, tier, shape, done);
        break;
      case io_job::kind::read:
        run_reads(run, tier, shape, progress, done);
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
