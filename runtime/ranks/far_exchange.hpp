#pragma once
// The exchange of a tensor group whose ranks are in several processes.
//
//   rank 0   own columns -> a slot in the memory of each other rank | awaits theirs | slots -> its rows
//   rank 1   own columns -> …
//
// Slots are there twice, for even and odd gathers: a rank that sends columns of gather n has read all of n - 1, so
// a rank that has them may write into the slots of n - 1 again. Between processes of one host columns are written
// into memory that both have mapped, and a flag there is raised; else a gather takes one transfer from each to each.
// The first columns are always a transfer, which says whether its sender has mapped the other's memory.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/turn_flag.hpp"
#include "runtime/model/group_exchange.hpp"
#include "runtime/model/rank_exchange.hpp"
#include "runtime/ranks/rank_notices.hpp"
#include "storage/arena.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// Of a group, and where its columns go.
struct exchange_peer {
  std::uint32_t rank = 0;
  node_id node;
  region_desc slots;
};

/// One rank's end. After a failure it stays abandoned: the group is formed anew.
class far_exchange final : public rank_exchange, public group_exchange {
 public:
  /// @param ids  the next id of a transfer of this node. @param notices  that land at `plane`. Both outlive it.
  /// @error of the memory for slots, and of registering it.
  static result<std::shared_ptr<far_exchange>> make(data_plane& plane,
                                                    std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                    rank_notices& notices, const tensor_part& part,
                                                    std::size_t widest_row);
  ~far_exchange() override;

  /// Nothing is gathered any more, and the data plane may end. @pre no pass is under way
  void close();
  /// How many of the others take columns by transfer, as far as the last gather knows: those of other hosts.
  std::size_t by_transfer() const noexcept;

  /// Memory that the others write into.
  region_id slots() const noexcept { return region_; }
  /// The other ranks, before the first pass. @param group  marks its columns, so that a former group's are ignored.
  /// @pre the data plane knows their nodes.
  /// @error `ec::invalid_argument` if they are not all of them, or have less memory.
  result<void> meet(std::uint32_t group, std::vector<exchange_peer> others);

  // rank_exchange. A pass is not called off, so the first rank's word is known already.
  tensor_part part() const noexcept override { return part_; }
  bool goes_on(bool said) override { return said; }

  // group_exchange
  void abandon(const std::string& why) override;
  void renew() override {}
  bool far() const noexcept override { return true; }

 private:
  struct other {
    exchange_peer at;
    peer_view view;              ///< of its slots, if it is a process of this host
    std::optional<bool> direct;  ///< both have mapped the other's; known by its first columns
    bool early = false;          ///< the columns of the next gather are there already
  };
  /// Of columns that are on their way, by half of the memory that they leave from.
  struct sends {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t under_way[2] = {};
    std::string problem;
  };

  far_exchange(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids, rank_notices& notices,
               const tensor_part& part, std::size_t widest_row, arena memory);
  turn_flag& flag(std::byte* slots, std::uint32_t rank) const noexcept;
  float* slot(std::byte* slots, std::uint32_t turn, std::uint32_t rank) const noexcept;
  std::uint64_t offset(std::uint32_t turn, std::uint32_t rank) const noexcept;
  void swap(std::span<const tensor> parts) override;
  std::size_t room() const noexcept override { return slot_floats_; }
  void send(std::uint32_t turn, tensor own);
  void transfer_to(const other& to, std::uint32_t turn, std::size_t bytes);
  void await(other& from, std::uint32_t turn);
  bool here(other& from, std::uint32_t turn);
  void check() const;

  data_plane& plane_;
  std::shared_ptr<std::atomic<std::uint64_t>> ids_;
  rank_notices& notices_;
  const tensor_part part_;
  const std::size_t slot_floats_;
  arena
      memory_;  ///< flags, [2, ranks, slot]: the others' columns, and in this rank's own slot those that leave
  region_id region_;
  std::vector<other> others_;
  std::uint32_t group_ = 0;
  std::uint32_t turn_ = 0;
  std::shared_ptr<sends> sends_ = std::make_shared<sends>();
  std::atomic<bool> abandoned_ = false;
};

/// A stage's ranks that are all in other processes: they tell each other when one fails.
class elsewhere final : public group_exchange {
 public:
  void abandon(const std::string&) override {}
  void renew() override {}
  bool far() const noexcept override { return true; }
};

}  // namespace mooncaf
