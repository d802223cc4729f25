#pragma once
// A rank's side of its leader: calls come in, its layers are computed, KV goes to the leader's pages.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/kv_layout.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/model_runner.hpp"
#include "runtime/ranks/far_pages.hpp"
#include "runtime/ranks/rank_notices.hpp"
#include "transport/data_plane.hpp"

namespace mooncaf {

/// A leader, its memory and the size of its passes.
struct rank_terms {
  node_id leader;
  region_desc pages;    ///< its KV
  region_desc replies;  ///< where it waits for answers
  std::uint32_t max_batch_tokens = 1;
  std::uint32_t context_tokens = 1;  ///< the longest context
  kv_layout layout;                  ///< of the rank's layers
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

 private:
  rank_session(data_plane& plane, std::shared_ptr<std::atomic<std::uint64_t>> ids, rank_notices& notices,
               const rank_terms& terms, std::function<void(const std::string&)> log);
  void serve(const std::stop_token& over);
  void take(const rank_notices::notice& call);
  result<void> compute(const rank_notices::notice& call);
  void reply(std::uint32_t call, const result<void>& outcome);
  void tell(const rank_notices::notice& what, std::vector<slice_pair> slices);

  data_plane& plane_;
  std::shared_ptr<std::atomic<std::uint64_t>> ids_;
  rank_notices& notices_;
  const rank_terms terms_;
  const std::function<void(const std::string&)> log_;
  std::shared_ptr<far_pages> pages_;
  std::unique_ptr<device> far_;
  std::unique_ptr<model_runner> runner_;
  std::vector<std::byte> inbox_, out_;
  std::vector<float> from_, rows_;
  region_id inbox_region_, out_region_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace mooncaf
