#pragma once
// Objects on SSD, in the same tier of RocksDB as KV blocks (`storage/rocksdb_tier`).
//
// An object lies there in chunks of 1 MiB, so that several threads read a large one at once. The first chunk
// carries a note: the fields of `segment_record`, with its times on the wall's clock. It is written last, and
// an object of which some chunk is missing does not exist.

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "storage/objects/disk/object_disk.hpp"
#include "storage/rocksdb_tier.hpp"

namespace mooncaf {

struct rocksdb_object_disk_options {
  std::string path;  ///< folder; made if absent
  std::uint64_t bytes = 0;
  disk_policy policy;
  bool direct_io = true;
  std::function<void(std::string_view)> log;  ///< called from any thread
  bool own_process = true;                    ///< see `rocksdb_tier_options`
  bool pack = true;                           ///< likewise
};

class rocksdb_object_disk final : public object_disk {
 public:
  /// @error as `rocksdb_tier::open`
  static result<std::unique_ptr<rocksdb_object_disk>> open(rocksdb_object_disk_options options);
  ~rocksdb_object_disk() override;

  std::uint64_t bytes() const override { return tier_->stats().held.fitting(options_.bytes); }
  disk_policy policy() const override { return options_.policy; }
  std::uint64_t number() const override { return number_; }
  std::uint64_t store() const override { return store_; }
  std::vector<segment_record> contents() override;
  void start_over(std::uint64_t store) override;
  void renumber(std::uint64_t store) override;
  void begin_work(std::function<void(std::span<const outcome>)> report) override;
  void end_work() override;
  void save(const segment_record& object, source bytes) override;
  void load(std::uint64_t ticket, target into) override;
  void erase(std::uint64_t ticket) override;
  void after_erasures(std::function<void()> then) override;
  result<std::unique_ptr<object_disk>> part(std::uint32_t shard, std::uint32_t shards) override;

 private:
  struct kept {
    segment_record record;
    std::int64_t soft_until = 0, ttl_until = 0;  ///< nanoseconds of the wall's clock; zero: none
    std::uint32_t chunks = 0;
  };
  struct save_job {
    segment_record object;
    source bytes;
  };
  struct load_job {
    std::uint64_t ticket;
    target into;
  };
  using erasure = std::variant<std::uint64_t, std::function<void()>>;

  explicit rocksdb_object_disk(rocksdb_object_disk_options options) : options_(std::move(options)) {}
  result<void> read_identity();
  result<void> write_identity();
  void take(const listed_block& block, std::map<std::uint64_t, std::vector<block_key>>& found);
  void work();
  void turn(std::unique_lock<std::mutex>& lock);
  void do_loads(std::span<const load_job> jobs, const std::function<void(std::span<const outcome>)>& report);
  void do_erasures(std::span<const erasure> jobs);
  std::vector<outcome> do_saves(std::span<const save_job> jobs);
  void say(const std::string& line) const;

  rocksdb_object_disk_options options_;
  std::unique_ptr<rocksdb_tier> tier_;  // worker's, once that runs
  std::uint64_t number_ = 0, store_ = 0;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<std::uint64_t, kept> held_;
  std::deque<load_job> loads_;
  std::deque<erasure> erasures_;
  std::deque<save_job> saves_;
  std::function<void(std::span<const outcome>)> report_;
  bool busy_ = false, stopping_ = false;
  std::thread worker_;
};

}  // namespace mooncaf
