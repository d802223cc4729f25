#pragma once
// The leader's side of a rank: a stage, or a share of one, that another process computes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/units.hpp"
#include "runtime/model/pass_stage.hpp"
#include "runtime/ranks/rank_notices.hpp"
#include "storage/arena.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Place of a rank, its layers, and the memory that it shares with its leader.
struct rank_place {
  std::string name;  ///< for people
  node_id node;
  region_desc inbox;  ///< calls are written there; until it is found, its length alone
  layer_range layers;
  tensor_part part;  ///< its share of them
  kv_layout layout;  ///< of both
  std::size_t dim = 0;
};

/// One call at a time, whichever worker wants it: order and rows go to the rank's memory in one transfer; the rank writes
/// KV into the pages by itself, tells of layers, and writes the rows behind its layers here.
/// @thread  Safe.
class rank_link {
 public:
  /// @param pages  of the leader. @param notices  that land at `plane`. All of them outlive the link.
  /// @error of registering memory for calls.
  static result<std::unique_ptr<rank_link>> make(data_plane& plane,
                                                 std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                 rank_notices& notices, std::span<std::byte> pages,
                                                 rank_place place);
  ~rank_link();
  rank_link(const rank_link&) = delete;
  rank_link& operator=(const rank_link&) = delete;

  /// Where the rank writes its answers, to be told to it.
  region_id replies() const noexcept { return replies_region_; }
  /// Which node the rank is, and where it takes calls; before the first one. @pre as long as `place.inbox` was.
  void found(const std::string& name, node_id node, const region_desc& inbox) {
    place_.name = name;
    place_.node = node;
    place_.inbox = inbox;
  }
  const rank_place& place() const noexcept { return place_; }
  /// Memory of a rank for calls of so many tokens, and of a leader for the answers.
  static std::uint64_t call_bytes(std::size_t tokens, std::size_t dim) noexcept;

  /// Nothing is called any more, and the data plane may end. @pre no call is under way
  void close();

  /// As `pass_stage::run`. @throws device_failure if the rank is gone, or says that it cannot compute.
  result<void> run(const stage_work& work);

 private:
  rank_link(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids, rank_notices& notices,
            std::span<std::byte> pages, rank_place place, arena out, arena replies);
  result<void> send(const stage_work& work);
  result<void> answer(const stage_work& work);
  result<void> write(std::vector<slice_pair> slices, const rank_notices::notice& what);

  data_plane& plane_;
  std::shared_ptr<std::atomic<std::uint64_t>> ids_;
  rank_notices& notices_;
  std::span<std::byte> pages_;
  rank_place place_;
  std::mutex mutex_;
  bool closed_ = false;
  std::uint32_t call_ = 0;
  arena out_, replies_;  ///< that a rank on this host maps
  region_id out_region_, replies_region_;
};

/// A worker's use of a rank.
class remote_stage final : public pass_stage {
 public:
  explicit remote_stage(std::shared_ptr<rank_link> link) : link_(std::move(link)) {}
  result<void> run(const stage_work& work) override { return link_->run(work); }
  layer_range layers() const noexcept override { return link_->place().layers; }
  tensor_part part() const noexcept override { return link_->place().part; }
  const kv_layout& layout() const noexcept override { return link_->place().layout; }
  bool chooses() const noexcept override { return false; }

 private:
  std::shared_ptr<rank_link> link_;
};

}  // namespace mooncaf
