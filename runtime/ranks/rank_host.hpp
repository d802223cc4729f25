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

/// A pipeline group's leader to one of its ranks.
struct rank_greeting {
  std::string name;         ///< of the leader's node
  block_key fingerprint;    ///< model, weights, number format and layout
  std::string model;        ///< … for people
  std::uint32_t stage = 0;  ///< that the leader takes it for, from 1
  std::uint32_t stages = 0;
  std::uint32_t max_batch_tokens = 0;  ///< of a pass
  std::uint32_t context_tokens = 0;    ///< the longest context
  std::vector<std::byte> data_plane;   ///< transport's peer_address and regions, encoded
  region_id pages;                     ///< the leader's KV
  region_id replies;                   ///< where it waits for answers
};

struct rank_welcome {
  std::string name;
  std::vector<std::byte> data_plane;
  region_id inbox;      ///< where calls go
  std::string device;   ///< that computes
  std::string metrics;  ///< HOST:PORT where its process is scraped; empty: nowhere
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

/// One thread at a time.
class rank_host {
 public:
  using log_fn = std::function<void(const std::string& line)>;

  /// @param log  takes problems of passes, on the session's thread.
  rank_host(rank_self self, log_fn log) : self_(std::move(self)), log_(std::move(log)) {}

  /// Ends the session with another leader and begins one with this. Blocks while memory is made ready.
  /// @error `ec::incompatible` says in what the two differ; `ec::invalid_argument`, `ec::out_of_space`.
  result<rank_welcome> greeted(const rank_greeting& leader);
  void close() { session_.reset(); }

 private:
  result<void> check(const rank_greeting& leader) const;

  rank_self self_;
  log_fn log_;
  std::unique_ptr<rank_session> session_;
};

}  // namespace mooncaf
