#pragma once
// Transfers of a node to itself: a copy from region to region on a thread of its own, made on first use.
// Bytes already in place are not copied: handing blocks over is the business of the layers above, but a
// transfer that amounts to it costs nothing.

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "transport/node_state.hpp"
#include "transport/transport.hpp"

namespace mooncaf {

class local_transport final : public transport {
 public:
  explicit local_transport(node_state& node) : node_(node) {}
  ~local_transport() override;

  std::string_view name() const noexcept override { return "local"; }
  transfer_path path() const noexcept override { return transfer_path::local; }
  transport_capabilities capabilities(node_id peer) const override;
  result<std::vector<std::byte>> register_region(region_id id) override;
  result<void> unregister_region(region_id id) override;
  void submit(transfer what, completion_handler on_done) override;
  void cancel(transfer_id id) override;
  void connect(node_id) override {}
  void disconnect(node_id) override {}
  result<void> close(node_id) override { return {}; }

 private:
  struct job {
    transfer what;
    completion_handler on_done;
  };
  void main();
  void run(job& j);
  result<void> copy(const transfer& t, std::uint64_t& bytes);
  result<void> copy_slice(const transfer& t, const slice_pair& pair, std::uint32_t& piece);

  node_state& node_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<job> queue_;
  transfer_id running_;
  bool cancel_running_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace mooncaf
