#pragma once
// Disk jobs of a cache shard as work for its executor.

#include <memory>
#include <vector>

#include "runtime/compute/blocking_task.hpp"
#include "runtime/compute/prefix_load.hpp"
#include "storage/io_job.hpp"

namespace mooncaf {

/// Jobs of one turn of the disk, and their outcomes.
class disk_task final : public blocking_task {
 public:
  /// @param load  is told of the layers that are in, part by part, and ends the reads when it is given up;
  /// null: no step computes with them meanwhile. @param part_layers  layers of a part.
  disk_task(std::shared_ptr<rocksdb_tier> tier, std::vector<io_job> jobs, const block_pieces& shape,
            prefix_load_ptr load, std::uint32_t part_layers)
      : tier_(std::move(tier)),
        jobs_(std::move(jobs)),
        shape_(shape),
        load_(std::move(load)),
        part_layers_(part_layers) {}

  void run() override {
    const auto began = clock_type::now();
    results_ = execute(jobs_, *tier_, shape_, load_ ? telling_load() : load_progress{});
    elapsed_ = clock_type::now() - began;
    held_ = tier_->stats().held;
  }

  const std::vector<io_result>& results() const noexcept { return results_; }
  duration elapsed() const noexcept { return elapsed_; }
  /// Live blocks of the tier after that.
  const packed_bytes& held() const noexcept { return held_; }

 private:
  load_progress telling_load() {
    return [this](ticket_id, std::optional<std::uint32_t> parts) {
      if (!parts) {
        load_->give_up();
        return false;
      }
      load_->landed((*parts - 1) * part_layers_, part_layers_);
      // Layers that have landed need no patience: false if the load was given up.
      return load_->wait(*parts * part_layers_ - 1, duration{});
    };
  }

  std::shared_ptr<rocksdb_tier> tier_;
  std::vector<io_job> jobs_;
  block_pieces shape_;
  prefix_load_ptr load_;
  std::uint32_t part_layers_;
  std::vector<io_result> results_;
  duration elapsed_{};
  packed_bytes held_;
};

}  // namespace mooncaf
