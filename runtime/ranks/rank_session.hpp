#pragma once
// A rank's side of its leader: calls come in, its layers are computed, KV goes to the leader's pages.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/model_runner.hpp"
#include "runtime/ranks/far_exchange.hpp"
#include "runtime/ranks/far_pages.hpp"
#include "runtime/ranks/rank_notices.hpp"
#include "runtime/ranks/rank_order.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// A leader, its memory and the size of its passes.
struct rank_terms {
  node_id leader;
  region_desc pages;    ///< its KV
  region_desc replies;  ///< where it waits for answers
  std::uint32_t max_batch_tokens = 1;
  std::uint32_t max_logit_rows = 1;
  std::uint32_t context_tokens = 1;  ///< the longest context
  kv_layout layout;                  ///< of the rank's layers and heads
  std::size_t widest_row = 0;        ///< of the whole model, see `far_exchange`
};

/// With one leader, from the greeting to its end: calls that come afterwards are not answered. The device's KV is this
/// session's; the weights stay for the next one.
/// @thread  Has one of its own.
class rank_session {
 public:
  /// @param kv_bytes  for KV here: a part of what lies in the leader's pages. @param log  takes a line for people.
  /// All that is given by reference outlives the session.
  /// @error as `device_kv::make` and `model_runner::make`.
  static result<std::unique_ptr<rank_session>> make(data_plane& plane,
                                                    std::shared_ptr<std::atomic<std::uint64_t>> ids,
                                                    rank_notices& notices, device& hardware,
                                                    std::shared_ptr<const model> net, const rank_terms& terms,
                                                    std::size_t kv_bytes,
                                                    std::function<void(const std::string&)> log);
  ~rank_session();

  /// Where calls are to be written.
  region_id inbox() const noexcept { return inbox_region_; }
  /// To the other ranks of a tensor group; null: it is none.
  far_exchange* exchange() const noexcept { return exchange_.get(); }

 private:
  rank_session(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids, rank_notices& notices,
               const rank_terms& terms, std::function<void(const std::string&)> log);
  void serve(const std::stop_token& over);
  void take(const rank_notices::notice& call);
  result<void> compute(const rank_notices::notice& call);
  /// The order of a call; its rows go to `from_`.
  result<rank_order> read(const rank_notices::notice& call);
  std::vector<batch_item> items_of(const rank_order& order, std::span<const std::int32_t> ids);
  void reply(std::uint32_t call, const result<void>& outcome);
  void tell(const rank_notices::notice& what, std::vector<slice_pair> slices);

  data_plane& plane_;
  std::shared_ptr<std::atomic<std::uint64_t>> ids_;
  rank_notices& notices_;
  const rank_terms terms_;
  const std::function<void(const std::string&)> log_;
  std::shared_ptr<far_pages> pages_;
  std::unique_ptr<device> far_;
  std::shared_ptr<far_exchange> exchange_;
  std::unique_ptr<model_runner> runner_;
  std::optional<arena> inbox_, out_;  ///< that a leader on this host maps
  std::vector<float> from_, rows_, logits_;
  std::vector<std::byte*> blocks_;
  region_id inbox_region_, out_region_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace mooncaf
