#pragma once
// A rank between leaders: its weights stay, its session is with whoever greeted it last.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ranks/rank_session.hpp"

namespace mooncaf {

/// A group's leader to one of its ranks.
struct rank_greeting {
  std::string name;         ///< of the leader's node
  block_key fingerprint;    ///< model, weights, number format and layout
  std::string model;        ///< … for people
  std::uint32_t stage = 0;  ///< that the leader takes it for, from 1
  std::uint32_t stages = 0;
  std::uint32_t rank = 0;  ///< … and as which of its ranks, from 1
  std::uint32_t ranks = 0;
  bool whole_experts = false;          ///< see `tensor_part`
  std::uint32_t max_batch_tokens = 0;  ///< of a pass
  std::uint32_t max_logit_rows = 0;    ///< … that want logits
  std::uint32_t context_tokens = 0;    ///< the longest context
  std::uint64_t widest_row = 0;        ///< see `far_exchange`
  std::vector<std::byte> data_plane;   ///< transport's peer_address and regions, encoded
  region_id pages;                     ///< the leader's KV
  region_id replies;                   ///< where it waits for answers
};

struct rank_welcome {
  std::string name;
  std::vector<std::byte> data_plane;
  region_id inbox;      ///< where calls go
  region_id slots;      ///< where other ranks of its stage write columns; of a tensor group
  std::string device;   ///< that computes
  std::string metrics;  ///< HOST:PORT where its process is scraped; empty: nowhere
};

/// The ranks of a stage to each of them, once all have been greeted.
struct rank_group {
  struct member {
    std::uint32_t rank = 0;             ///< from 0
    std::vector<std::byte> data_plane;  ///< transport's peer_address and regions, encoded
    region_id slots;                    ///< where it wants columns

    bool operator==(const member&) const = default;
  };
  std::uint32_t number = 0;  ///< another one each time that a group is formed
  std::vector<member> ranks;
};

/// A rank with its weights, and the process around it.
struct rank_self {
  std::string name;
  block_key fingerprint;
  std::string about;  ///< model and layout, for people
  std::uint32_t stage = 0, stages = 0;
  kv_layout layout;          ///< of whole blocks
  std::size_t kv_bytes = 0;  ///< for KV here
  std::shared_ptr<device> hardware;
  std::shared_ptr<const model> net;
  std::shared_ptr<data_plane> plane;
  std::shared_ptr<std::atomic<std::uint64_t>> ids;  ///< next id of a transfer of this node
  std::shared_ptr<rank_notices> notices;
  std::string metrics;  ///< HOST:PORT where this process is scraped; empty: nowhere
};

/// Tells an exchange of the other ranks of its stage, and the data plane of their nodes.
/// @error as `far_exchange::meet` and `data_plane::add_peer`; `ec::corrupt`
result<void> join(data_plane& plane, far_exchange& exchange, const rank_group& group);

/// One thread at a time.
class rank_host {
 public:
  using log_fn = std::function<void(const std::string& line)>;

  /// @param log  takes problems of passes, on the session's thread.
  rank_host(rank_self self, log_fn log) : self_(std::move(self)), log_(std::move(log)) {}

  /// Ends the session with another leader and begins one with this. Blocks while memory is made ready.
  /// @error `ec::incompatible` says in what the two differ; `ec::invalid_argument`, `ec::out_of_space`.
  result<rank_welcome> greeted(const rank_greeting& leader);
  /// The other ranks of its stage. @error `ec::invalid_argument`: they are not those, or nobody has greeted this one.
  result<void> joined(const rank_group& group);
  void close() { session_.reset(); }

 private:
  result<void> check(const rank_greeting& leader) const;
  rank_terms terms_of(const rank_greeting& leader, const announcement& theirs) const;

  rank_self self_;
  log_fn log_;
  std::unique_ptr<rank_session> session_;
};

}  // namespace mooncaf
