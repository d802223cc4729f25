#pragma once
// Lists of launches that come again and again, handed over as one.

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu/cuda/accelerator.hpp"

namespace mooncaf::cuda {

/// Launches in the order in which they are to run, with copies of their parameters.
class launch_list {
 public:
  void add(kernel which, grid blocks, const void* params, std::size_t bytes);
  void clear() noexcept;
  std::size_t size() const noexcept { return launches_.size(); }
  launch_view operator[](std::size_t i) const noexcept;
  /// Of kernels and grids, not of parameters.
  std::uint64_t shape() const noexcept { return shape_; }
  /// @pre of one shape
  bool same_params(const launch_list& other, std::size_t i) const noexcept;

 private:
  struct launch {
    kernel which;
    grid blocks;
    std::size_t params;  ///< where they begin in `params_`
    std::size_t bytes;
  };
  std::vector<launch> launches_;
  std::vector<std::byte> params_;
  std::uint64_t shape_ = 1;
};

/// Graphs by the shape of their lists. A list that comes for the second time is made into one; from then on
/// it is one call, and another for each launch whose parameters have changed since.
///
/// Steps read what they have in common from tables whose place stays the same, so that from step to step
/// nothing changes; the grids change with the batch's size, and each size has a graph of its own.
class launch_graphs {
 public:
  /// Runs the list on the stream.
  void run(stream& on, const launch_list& list);

 private:
  struct entry {
    std::uint64_t shape = 0;
    std::unique_ptr<launch_graph> graph;  ///< null: seen once
    launch_list made_of;
  };
  void run_one_by_one(stream& on, const launch_list& list);

  std::list<entry> entries_;  ///< used last comes first
  std::unordered_map<std::uint64_t, std::list<entry>::iterator> by_shape_;
  bool refused_ = false;  ///< this device has no graphs, or no more memory for one
};

}  // namespace mooncaf::cuda
